// SPDX-License-Identifier: MIT OR Apache-2.0
//! `swap-write` and `swap-read`: records of swap space, with compression and checksums, against the same bytes in a plain file.
//!
//! The bytes cannot be compressed, so both move as many. Writes count until they are on the disk. Before reads the pages of the file leave
//! the host's page cache.

use crate::native::files::drop_cached_pages;
use crate::sample::Pairs;
use crate::{BenchError, BenchOptions, Row};
use pando_kernel::{Swap, SwapError, SwapSlot};
use pando_store::swap::{SwapSpace, create_swap_file};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Bytes of a record.
const RECORD: usize = 1 << 20;
/// Number of records.
const RECORDS: usize = 64;

/// A file and the swap space in another one.
struct Files {
    plain: File,
    swapped: File,
    swap: SwapSpace,
    bytes: Vec<u8>,
}

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let create = || create_swap_file(directory.path()).map_err(BenchError::host("create a file in the temporary directory"));
    let (plain, swapped) = (create()?, create()?);
    let copy = swapped.try_clone().map_err(BenchError::host("duplicate a descriptor"))?;
    let records = if options.brief { 4 } else { RECORDS };
    let swap = SwapSpace::in_files(vec![(copy, 2 * (RECORD * records) as u64)]);
    let files = Files { plain, swapped, swap, bytes: noise(RECORD) };
    let (mut writes, mut reads) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for _ in 0..options.rounds(9) {
        let (write, read) = files.plain(records).map_err(BenchError::host("write or read a file"))?;
        writes.1.push(write);
        reads.1.push(read);
        let (write, read) = files.swapped(records)?;
        writes.0.push(write);
        reads.0.push(read);
    }
    let note = format!("{records} records of {} KiB that cannot be compressed", RECORD >> 10);
    report(
        Row::pairs("swap-write", "the same bytes to a file; both until they are on the disk", &Pairs::of(writes.0, writes.1)).noting(&note),
    );
    report(Row::pairs("swap-read", "the same bytes of a file; both from the disk", &Pairs::of(reads.0, reads.1)).noting(&note));
    Ok(())
}

impl Files {
    /// Nanoseconds of writes to the plain file, and of reads.
    fn plain(&self, records: usize) -> std::io::Result<(f64, f64)> {
        let start = Instant::now();
        for index in 0..records {
            self.plain.write_all_at(&self.bytes, (index * RECORD) as u64)?;
        }
        self.plain.sync_data()?;
        let write = start.elapsed().as_nanos() as f64;
        drop_cached_pages(&self.plain)?;
        let mut buffer = vec![0; RECORD];
        let start = Instant::now();
        for index in 0..records {
            self.plain.read_exact_at(&mut buffer, (index * RECORD) as u64)?;
        }
        Ok((write, start.elapsed().as_nanos() as f64))
    }

    /// The same for swap space.
    fn swapped(&self, records: usize) -> Result<(f64, f64), BenchError> {
        let host = |error| BenchError::host("use the swap file")(error);
        let failed = |error: SwapError| BenchError::Failed(error.to_string());
        let start = Instant::now();
        let slots: Vec<SwapSlot> = (0..records).map(|_| self.swap.put(&self.bytes)).collect::<Result<_, _>>().map_err(failed)?;
        self.swapped.sync_data().map_err(host)?;
        let write = start.elapsed().as_nanos() as f64;
        drop_cached_pages(&self.swapped).map_err(host)?;
        let start = Instant::now();
        for slot in &slots {
            self.swap.read(slot).map_err(failed)?;
        }
        let read = start.elapsed().as_nanos() as f64;
        slots.into_iter().for_each(|slot| self.swap.discard(slot));
        Ok((write, read))
    }
}

/// Bytes that cannot be compressed (xorshift).
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length / 8).flat_map(|_| next().to_le_bytes()).collect()
}
