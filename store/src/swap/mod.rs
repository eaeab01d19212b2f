// SPDX-License-Identifier: MIT OR Apache-2.0
//! Swap space for sleeping cells: compressed records in memory, or in unlinked files of several directories.
//!
//! Each record is one zstd frame. Its length and a checksum stay in memory, so that a record that differs from what was written is
//! noticed, whatever its bytes. Nothing of swap space outlives the process.

mod extents;

use extents::Extents;
use pando_kernel::{Swap, SwapError, SwapSlot, SwapUsage};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// The level of compression: the fastest, because a cell waits for it.
const LEVEL: i32 = 1;
/// Bytes of memory for each record besides its own: its entry in the index.
const ENTRY_BYTES: u64 = size_of::<Option<Record>>() as u64;

/// Where the bytes of a record are.
#[derive(Debug)]
enum Place {
    Memory(Arc<[u8]>),
    /// In a file, from this byte on.
    File {
        file: usize,
        start: u64,
    },
}

/// A record.
#[derive(Debug)]
struct Record {
    place: Place,
    /// Bytes as they are stored.
    stored: u32,
    /// Bytes of the record itself.
    length: u32,
    checksum: u64,
}

/// All records.
#[derive(Debug, Default)]
struct Index {
    records: Vec<Option<Record>>,
    free: Vec<u64>,
    files: Vec<Extents>,
    /// Bytes that records take.
    used: u64,
    count: u64,
}

/// Swap space in memory or in files.
#[derive(Debug)]
pub struct SwapSpace {
    /// The files; none: records stay in memory.
    files: Vec<File>,
    /// Bytes that records may take.
    size: u64,
    index: Mutex<Index>,
}

impl SwapSpace {
    /// Swap space in memory of `size` bytes.
    #[must_use]
    pub fn in_memory(size: u64) -> SwapSpace {
        SwapSpace { files: Vec::new(), size, index: Mutex::default() }
    }

    /// Swap space in files, each with its size in bytes. Their content is overwritten.
    #[must_use]
    pub fn in_files(files: Vec<(File, u64)>) -> SwapSpace {
        let size = files.iter().map(|(_, size)| size).sum();
        let (files, sizes): (Vec<File>, Vec<u64>) = files.into_iter().unzip();
        let index = Index { files: sizes.into_iter().map(Extents::new).collect(), ..Index::default() };
        SwapSpace { files, size, index: Mutex::new(index) }
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().expect("no holder of this lock panics")
    }

    /// Takes room for a record of `length` bytes. `None`: there is none.
    fn reserve(&self, length: u64) -> Option<(usize, u64)> {
        let mut index = self.lock();
        // The emptiest file first: the load is spread.
        let mut order: Vec<usize> = (0..index.files.len()).collect();
        order.sort_by_key(|file| std::cmp::Reverse(index.files[*file].free()));
        order.into_iter().find_map(|file| Some((file, index.files[file].take(length)?)))
    }

    /// Adds a record to the index.
    fn insert(&self, record: Record) -> SwapSlot {
        let mut index = self.lock();
        index.count += 1;
        match index.free.pop() {
            Some(slot) => {
                index.records[slot as usize] = Some(record);
                SwapSlot(slot)
            }
            None => {
                index.records.push(Some(record));
                SwapSlot(index.records.len() as u64 - 1)
            }
        }
    }
}

/// Creates an unlinked file for swap space in a directory.
///
/// # Errors
/// The directory cannot be written, or its file system has no unnamed files.
pub fn create_swap_file(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?.into())
}

impl Swap for SwapSpace {
    fn put(&self, record: &[u8]) -> Result<SwapSlot, SwapError> {
        let bytes = zstd::bulk::compress(record, LEVEL).map_err(|error| SwapError::Host(error.to_string()))?;
        let (Ok(stored), Ok(length)) = (u32::try_from(bytes.len()), u32::try_from(record.len())) else { return Err(SwapError::Full) };
        let checksum = checksum(&bytes);
        let place = if self.files.is_empty() {
            let mut index = self.lock();
            let needed = u64::from(stored) + ENTRY_BYTES;
            if index.used.saturating_add(needed) > self.size {
                return Err(SwapError::Full);
            }
            index.used += needed;
            Place::Memory(bytes.into())
        } else {
            let (file, start) = self.reserve(stored.into()).ok_or(SwapError::Full)?;
            if let Err(error) = self.files[file].write_all_at(&bytes, start) {
                self.lock().files[file].give_back(start, stored.into());
                return Err(SwapError::Host(format!("the swap file cannot be written: {error}")));
            }
            Place::File { file, start }
        };
        Ok(self.insert(Record { place, stored, length, checksum }))
    }

    fn read(&self, slot: &SwapSlot) -> Result<Vec<u8>, SwapError> {
        let index = self.lock();
        let Some(Some(record)) = index.records.get(slot.0 as usize) else { return Err(SwapError::Damaged) };
        let (expected, length, stored) = (record.checksum, record.length, record.stored);
        let bytes = match &record.place {
            Place::Memory(bytes) => {
                let bytes = Arc::clone(bytes);
                drop(index);
                bytes
            }
            Place::File { file, start } => {
                let (file, start) = (*file, *start);
                // The caller owns the slot, so its place stays. Other cells do not wait for this read.
                drop(index);
                let mut bytes = vec![0; stored as usize];
                let read = self.files[file].read_exact_at(&mut bytes, start);
                read.map_err(|error| SwapError::Host(format!("the swap file cannot be read: {error}")))?;
                bytes.into()
            }
        };
        if checksum(&bytes) != expected {
            return Err(SwapError::Damaged);
        }
        zstd::bulk::decompress(&bytes, length as usize).ok().filter(|record| record.len() == length as usize).ok_or(SwapError::Damaged)
    }

    fn discard(&self, slot: SwapSlot) {
        let mut index = self.lock();
        let Some(record) = index.records.get_mut(slot.0 as usize).and_then(Option::take) else { return };
        match record.place {
            Place::Memory(_) => index.used -= u64::from(record.stored) + ENTRY_BYTES,
            Place::File { file, start } => index.files[file].give_back(start, record.stored.into()),
        }
        index.count -= 1;
        index.free.push(slot.0);
        if index.count == 0 {
            (index.records, index.free) = (Vec::new(), Vec::new());
        }
    }

    fn usage(&self) -> SwapUsage {
        let index = self.lock();
        let in_files: u64 = index.files.iter().map(Extents::used).sum();
        SwapUsage { used: index.used + in_files, size: self.size, records: index.count }
    }
}

/// The checksum of stored bytes.
fn checksum(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    hash.as_bytes().first_chunk().copied().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
