// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a saved template as a disk: a chunk is read, verified and decompressed when a page of it is requested.

use crate::format::{CHUNK_PAGES, Checksum, Chunk, HEADER, PAGE, PageRun, checksum};
use pando_abi::BlockNumber;
use pando_kernel::{Disk, DiskError};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// Decompressed chunks that one read keeps: as many as the pages of a kernel's largest read can lie in.
const CHUNKS_KEPT: usize = 64;

/// The reason why a page could not be read.
#[derive(Debug, thiserror::Error)]
enum PageError {
    #[error("cannot read it: {0}")]
    Host(#[from] io::Error),
    #[error("the pages at offset {0} are damaged")]
    Damaged(u64),
    #[error("it has no such page")]
    NoSuchPage,
}

/// The place of a chunk.
#[derive(Clone, Copy, Debug)]
struct ChunkPlace {
    start: u64,
    length: usize,
    checksum: Checksum,
    pages: usize,
}

/// The pages.
pub(crate) struct Pages {
    file: File,
    /// Each run with the number of its first page.
    runs: Vec<(u64, PageRun)>,
    count: u64,
    chunks: Vec<ChunkPlace>,
    /// The reason of the last failed read.
    last_error: Mutex<Option<String>>,
}

impl Pages {
    /// The pages in a file whose chunks end at `end`. `None`: the index is inconsistent.
    pub(crate) fn new(file: File, runs: &[PageRun], stored: u32, chunks: &[Chunk], end: u64) -> Option<Pages> {
        let mut start = HEADER as u64;
        let mut left = stored as usize;
        let mut places = Vec::with_capacity(chunks.len());
        for Chunk { length, checksum } in chunks {
            let pages = left.min(CHUNK_PAGES);
            let fits = pages > 0 && *length as usize <= zstd::zstd_safe::compress_bound(pages * PAGE);
            places.push(fits.then_some(ChunkPlace { start, length: *length as usize, checksum: *checksum, pages })?);
            start = start.checked_add((*length).into())?;
            left -= pages;
        }
        let mut count = 0;
        let mut found = Vec::with_capacity(runs.len());
        for run in runs {
            let is_stored = run.place.is_none_or(|place| place.checked_add(run.count).is_some_and(|behind| behind <= stored));
            found.push((run.count > 0 && is_stored).then_some((count, *run))?);
            count += u64::from(run.count);
        }
        let index_matches = left == 0 && start == end && count <= u32::MAX.into();
        index_matches.then(|| Pages { file, runs: found, count, chunks: places, last_error: Mutex::default() })
    }

    /// The reason of the last failed read, if any has failed.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().ok()?.clone()
    }

    /// The number of a page among the stored ones. `None`: it is zero.
    fn place(&self, page: u64) -> Result<Option<u32>, PageError> {
        let run = self.runs.partition_point(|(first, _)| *first <= page).checked_sub(1);
        let (first, run) = run.and_then(|run| self.runs.get(run)).filter(|_| page < self.count).ok_or(PageError::NoSuchPage)?;
        Ok(run.place.map(|place| place + (page - first) as u32))
    }

    /// The bytes of a chunk's pages.
    fn chunk(&self, index: usize) -> Result<Vec<u8>, PageError> {
        let ChunkPlace { start, length, checksum: expected, pages } = *self.chunks.get(index).ok_or(PageError::NoSuchPage)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        if checksum(&bytes) != expected {
            return Err(PageError::Damaged(start));
        }
        let whole = zstd::bulk::decompress(&bytes, pages * PAGE).map_err(|_| PageError::Damaged(start))?;
        if whole.len() == pages * PAGE { Ok(whole) } else { Err(PageError::Damaged(start)) }
    }

    /// Reads all chunks, and reports the number of pages so far.
    pub(crate) fn check(&self, done: &mut dyn FnMut(u64)) -> Result<(), ()> {
        for index in 0..self.chunks.len() {
            self.chunk(index).map_err(|_| ())?;
            done((index * CHUNK_PAGES) as u64);
        }
        Ok(())
    }

    fn read_pages(&self, first: u64, buffer: &mut [u8]) -> Result<(), PageError> {
        let mut chunks: HashMap<usize, Vec<u8>> = HashMap::new();
        for (number, page) in (first..).zip(buffer.chunks_exact_mut(PAGE)) {
            let Some(place) = self.place(number)?.map(|place| place as usize) else {
                page.fill(0);
                continue;
            };
            let index = place / CHUNK_PAGES;
            if !chunks.contains_key(&index) {
                if chunks.len() >= CHUNKS_KEPT {
                    chunks.clear();
                }
                chunks.insert(index, self.chunk(index)?);
            }
            let start = place % CHUNK_PAGES * PAGE;
            page.copy_from_slice(&chunks[&index][start..start + PAGE]);
        }
        Ok(())
    }
}

impl Disk for Pages {
    fn blocks(&self) -> u64 {
        self.count
    }

    fn read(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.read_pages(first.0.into(), buffer).map_err(|trouble| {
            if let Ok(mut last_error) = self.last_error.lock() {
                *last_error = Some(trouble.to_string());
            }
            DiskError
        })
    }
}
