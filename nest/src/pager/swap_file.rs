// SPDX-License-Identifier: MIT OR Apache-2.0
//! The swap file: the content of pages that were taken, by swap number.

use pando_abi::PAGE_SIZE;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Pages after whose transfer the file is opened again: 16 MiB. On a live mount, the cell around forgets the content of a file that is
/// closed, which would otherwise take as much of its memory as the child saves.
const CACHED_PAGES: u64 = 4096;

/// A swap file.
#[derive(Debug)]
pub(super) struct SwapFile {
    file: File,
    path: PathBuf,
    /// Its name in errors.
    name: String,
    /// Whether each page of it is in use.
    used: Vec<bool>,
    /// Number of pages that are not.
    free: usize,
    /// The page from which the search for a free one goes on.
    hand: usize,
    /// Pages that were moved since it was opened.
    moved: u64,
}

impl SwapFile {
    /// Creates a file for at most so many pages. `name` stands in errors. Dropping the value removes the file.
    ///
    /// # Errors
    /// It cannot be created, or exists: it may have content that somebody needs, another program's pages for example.
    pub(super) fn create(path: PathBuf, name: String, pages: u32) -> Result<SwapFile> {
        let created = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = created.map_err(|error| swap_file_error("create", &name, &error))?;
        Ok(SwapFile { file, path, name, used: vec![false; pages as usize], free: pages as usize, hand: 0, moved: 0 })
    }

    /// Number of pages that it may have.
    pub(super) fn pages(&self) -> u32 {
        self.used.len() as u32
    }

    /// Number of pages that are not in use.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// Free pages: the next `max` consecutive ones, or the longest run if all are shorter. Empty: all are in use.
    pub(super) fn find_free(&self, max: usize) -> Range<u32> {
        let mut longest = 0..0;
        for part in [self.hand..self.used.len(), 0..self.hand] {
            let mut page = part.start;
            while page < part.end {
                let count = self.used[page..part.end].iter().take(max).take_while(|used| !**used).count();
                if count > longest.len() {
                    longest = page..page + count;
                }
                if count == max {
                    return longest.start as u32..longest.end as u32;
                }
                page += count + 1;
            }
        }
        longest.start as u32..longest.end as u32
    }

    /// Stores the content of pages that were free.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn store(&mut self, first: u32, bytes: &[u8]) -> Result<()> {
        self.note_moved(bytes)?;
        self.file.write_all_at(bytes, u64::from(first) * PAGE_SIZE).map_err(|error| swap_file_error("write to", &self.name, &error))?;
        let pages = bytes.len() / PAGE_SIZE as usize;
        self.used[first as usize..][..pages].fill(true);
        self.free -= pages;
        self.hand = (first as usize + pages) % self.used.len();
        Ok(())
    }

    /// Number of pages in use from `first` on, at most `max`.
    pub(super) fn used_from(&self, first: u32, max: u64) -> u64 {
        self.used.iter().skip(first as usize).take(max as usize).take_while(|used| **used).count() as u64
    }

    /// Loads the content of pages.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn load(&mut self, first: u32, bytes: &mut [u8]) -> Result<()> {
        self.note_moved(bytes)?;
        self.file.read_exact_at(bytes, u64::from(first) * PAGE_SIZE).map_err(|error| swap_file_error("read from", &self.name, &error))?;
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

    /// Opens the file again now and then.
    fn note_moved(&mut self, bytes: &[u8]) -> Result<()> {
        self.moved += bytes.len() as u64 / PAGE_SIZE;
        if self.moved >= CACHED_PAGES {
            // An error of a write that the cell around has put off: after a close it would be lost.
            self.file.sync_data().map_err(|error| swap_file_error("write to", &self.name, &error))?;
            let opened = OpenOptions::new().read(true).write(true).open(&self.path);
            (self.file, self.moved) = (opened.map_err(|error| swap_file_error("open", &self.name, &error))?, 0);
        }
        Ok(())
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        // Nobody needs its content. If it cannot be removed, the next program with this file is refused with advice.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// An error with the file's name and advice.
pub fn swap_file_error(action: &str, name: &str, error: &Error) -> Error {
    let advice = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => ": make room, or choose another file",
        ErrorKind::AlreadyExists => ": remove it if no program uses it, or choose another name",
        _ => "",
    };
    Error::new(error.kind(), format!("cannot {action} the swap file {name}: {}{advice}", error.kind()))
}

#[cfg(test)]
mod tests {
    use super::SwapFile;
    use pando_abi::PAGE_SIZE;

    #[test]
    fn pages_are_found_again_after_others_were_freed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("swap");
        let mut swap = SwapFile::create(path.clone(), "test".into(), 10).expect("a new file");
        assert!(SwapFile::create(path.clone(), "test".into(), 10).is_err_and(|error| error.to_string().contains("another name")));
        let page = |byte: u8, count: usize| vec![byte; count * PAGE_SIZE as usize];
        assert_eq!(swap.find_free(4), 0..4);
        swap.store(0, &page(1, 4)).expect("room");
        assert_eq!(swap.find_free(8), 4..10);
        swap.store(4, &page(2, 6)).expect("room");
        assert_eq!((swap.find_free(8), swap.free()), (0..0, 0));
        // Pages 1, 2 and 9 are not needed any more.
        swap.keep_only(0, &[0b1111_1001, 0b01]);
        assert_eq!((swap.find_free(8), swap.find_free(1), swap.free()), (1..3, 1..2, 3));
        assert_eq!((swap.used_from(3, 9), swap.used_from(1, 9)), (6, 0));
        let mut bytes = page(0, 2);
        swap.load(3, &mut bytes).expect("they were stored");
        assert_eq!(bytes, [page(1, 1), page(2, 1)].concat());
        drop(swap);
        assert!(!path.exists(), "it is removed");
    }
}
