// SPDX-License-Identifier: MIT OR Apache-2.0
//! The swap file: the content of pages that were taken, by swap number.

use pando_abi::PAGE_SIZE;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Pages after whose transfer the file's content leaves the cache, which is memory of the cell around: 4 MiB.
const CACHED_PAGES: u64 = 1024;

/// A swap file.
#[derive(Debug)]
pub(super) struct SwapFile {
    file: File,
    /// Its name in errors.
    name: String,
    /// Whether each page of it is in use.
    used: Vec<bool>,
    /// Number of pages that are not.
    free: usize,
    /// The page from which the search for a free one goes on.
    hand: usize,
    /// Pages that were moved since the last advice.
    moved: u64,
}

impl SwapFile {
    /// A file of at most so many pages. Its content is lost.
    pub(super) fn new(file: File, name: String, pages: u32) -> SwapFile {
        SwapFile { file, name, used: vec![false; pages as usize], free: pages as usize, hand: 0, moved: 0 }
    }

    /// Number of pages that it may have.
    pub(super) fn pages(&self) -> u32 {
        self.used.len() as u32
    }

    /// Number of pages that are not in use.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// The next free pages: consecutive ones, at most `most`. Empty: all are in use.
    pub(super) fn find_free(&mut self, most: usize) -> Range<u32> {
        let after = self.used[self.hand..].iter().position(|used| !used).map(|skipped| self.hand + skipped);
        let Some(start) = after.or_else(|| self.used.iter().position(|used| !used)) else { return 0..0 };
        let count = self.used[start..].iter().take(most).take_while(|used| !**used).count();
        start as u32..(start + count) as u32
    }

    /// Stores the content of pages that were free.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn store(&mut self, first: u32, bytes: &[u8]) -> Result<()> {
        self.note_moved(bytes);
        self.file.write_all_at(bytes, u64::from(first) * PAGE_SIZE).map_err(|error| self.failed("write to", error))?;
        let pages = bytes.len() / PAGE_SIZE as usize;
        self.used[first as usize..][..pages].fill(true);
        self.free -= pages;
        self.hand = (first as usize + pages) % self.used.len();
        Ok(())
    }

    /// Number of pages in use from `first` on, at most `most`.
    pub(super) fn used_from(&self, first: u32, most: u64) -> u64 {
        self.used.iter().skip(first as usize).take(most as usize).take_while(|used| **used).count() as u64
    }

    /// Loads the content of pages.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn load(&mut self, first: u32, bytes: &mut [u8]) -> Result<()> {
        self.note_moved(bytes);
        self.file.read_exact_at(bytes, u64::from(first) * PAGE_SIZE).map_err(|error| self.failed("read from", error))?;
        Ok(())
    }

    /// Frees the pages whose bits are not set in a bitmap that begins with page `first`.
    pub(super) fn keep_only(&mut self, first: u32, bitmap: &[u8]) {
        for (page, used) in self.used.iter_mut().enumerate().skip(first as usize).take(bitmap.len() * 8) {
            let bit = page - first as usize;
            *used &= bitmap[bit / 8] >> (bit % 8) & 1 == 1;
        }
        self.free = self.used.iter().filter(|used| !**used).count();
    }

    /// Lets the cell around forget the content of the file now and then. Before a transfer, because content is kept while it is on its way
    /// to the host.
    fn note_moved(&mut self, bytes: &[u8]) {
        self.moved += bytes.len() as u64 / PAGE_SIZE;
        if self.moved >= CACHED_PAGES {
            self.moved = 0;
            // Advice: without it, more memory is used.
            let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        }
    }

    fn failed(&self, action: &str, error: Error) -> Error {
        let advice = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => ": make room, or choose another file",
            _ => "",
        };
        Error::new(error.kind(), format!("cannot {action} the swap file {}: {}{advice}", self.name, error.kind()))
    }
}

#[cfg(test)]
mod tests {
    use super::SwapFile;
    use pando_abi::PAGE_SIZE;

    fn swap_file(pages: u32) -> SwapFile {
        SwapFile::new(tempfile::tempfile().expect("a temporary file"), "test".into(), pages)
    }

    #[test]
    fn pages_are_found_again_after_others_were_freed() {
        let mut swap = swap_file(10);
        let page = |byte: u8, count: usize| vec![byte; count * PAGE_SIZE as usize];
        assert_eq!(swap.find_free(4), 0..4);
        swap.store(0, &page(1, 4)).expect("room");
        assert_eq!(swap.find_free(8), 4..10);
        swap.store(4, &page(2, 6)).expect("room");
        assert_eq!((swap.find_free(8), swap.free()), (0..0, 0));
        // Pages 1, 2 and 9 are not needed any more.
        swap.keep_only(0, &[0b1111_1001, 0b01]);
        assert_eq!((swap.find_free(8), swap.free()), (1..3, 3));
        assert_eq!((swap.used_from(3, 9), swap.used_from(1, 9)), (6, 0));
        let mut bytes = page(0, 2);
        swap.load(3, &mut bytes).expect("they were stored");
        assert_eq!(bytes, [page(1, 1), page(2, 1)].concat());
    }
}
