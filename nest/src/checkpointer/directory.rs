// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory of the checkpoints of a program.

use super::file::{CACHED_CHUNKS, CheckpointFile, PageRange, RestoreRequirements, path_of};
use super::image::{FamilyImage, StoredContent};
use pando_abi::PAGE_SIZE;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// The prefix of the names of complete checkpoints.
const PREFIX: &str = "checkpoint-";

/// A directory of checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointDirectory {
    path: PathBuf,
}

impl CheckpointDirectory {
    /// The directory at a path.
    #[must_use]
    pub fn new(path: PathBuf) -> CheckpointDirectory {
        CheckpointDirectory { path }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The numbers of its checkpoints, the newest first.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn checkpoints(&self) -> Result<Vec<u32>> {
        let entries = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
        let number = |name: &std::ffi::OsString| name.to_str()?.strip_prefix(PREFIX)?.parse::<u32>().ok();
        let mut numbers: Vec<u32> = entries.iter().filter_map(number).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        Ok(numbers)
    }

    /// Removes all checkpoints but the newest `keep`, and files that have pages of those. A damaged one counts for nothing, and stays.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    pub(super) fn remove_older(&self, keep: u32) -> Result<()> {
        let mut needed = HashSet::new();
        let (mut left, mut old) = (keep, Vec::new());
        for number in self.checkpoints()? {
            if left == 0 {
                old.push(number);
            } else if let Ok(file) = CheckpointFile::read(&self.path, number) {
                left -= 1;
                needed.extend(file.earlier.iter().map(|range| range.checkpoint));
            }
        }
        old.into_iter().filter(|number| !needed.contains(number)).try_for_each(|number| fs::remove_file(path_of(&self.path, number)))
    }

    /// Removes what a process has left that was killed while it wrote.
    pub fn remove_unfinished(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let is_unfinished = entry.file_name().to_str().is_some_and(|name| name.starts_with(".checkpoint-") && name.ends_with(".new"));
            if is_unfinished {
                // It counts for nothing, and its name is used again.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Opens the newest checkpoint, or that with a number. `skipped` receives the newer ones that cannot be used. `verifies`: all pages are
    /// read.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn open(&self, number: Option<u32>, verifies: bool, skipped: &mut dyn FnMut(u32, &Error)) -> Result<StoredCheckpoint> {
        if let Some(number) = number {
            let failed = |error: Error| Error::new(error.kind(), format!("cannot use checkpoint {number}: {}", error_text(&error)));
            return StoredCheckpoint::open(&self.path, number, verifies).map_err(failed);
        }
        let mut last_error = None;
        for number in self.checkpoints()? {
            match StoredCheckpoint::open(&self.path, number, verifies) {
                Ok(stored) => return Ok(stored),
                Err(error) => {
                    skipped(number, &error);
                    last_error = Some(error);
                }
            }
        }
        Err(last_error.map_or_else(
            || Error::other("there is no complete checkpoint in the directory"),
            |_| Error::other("no checkpoint in the directory can be used"),
        ))
    }
}

/// The text of an error: without the number of an error of the host.
pub(super) fn error_text(error: &Error) -> String {
    if error.raw_os_error().is_some() { error.kind().to_string() } else { error.to_string() }
}

/// A complete checkpoint with all files that have pages of it.
#[derive(Debug)]
pub struct StoredCheckpoint {
    newest: CheckpointFile,
    image: FamilyImage,
    /// In the order of their pages.
    earlier: Vec<CheckpointFile>,
    /// The file that was read last, by the number of its checkpoint.
    open: Option<(u32, File)>,
    /// The chunk that was read last.
    chunk: Option<(u32, Vec<u8>)>,
    read: u32,
}

impl StoredCheckpoint {
    fn open(directory: &Path, number: u32, verifies: bool) -> Result<StoredCheckpoint> {
        let newest = CheckpointFile::read(directory, number)?;
        let image = newest.image()?;
        let mut earlier = Vec::with_capacity(newest.earlier.len());
        let mut next = 0;
        for range in &newest.earlier {
            let number = range.checkpoint;
            let failed = |reason: &str| Error::other(format!("it needs pages of checkpoint {number}, {reason}"));
            let file = CheckpointFile::read(directory, number)
                .map_err(|error| failed(&format!("which cannot be used: {}", error_text(&error))))?;
            if file.own != *range || range.first < next || range.pages == 0 {
                return Err(failed("but the file of that number is another one: its checksum or its pages differ"));
            }
            next = range.first + range.pages;
            earlier.push(file.without_image());
        }
        if newest.own.first < next {
            return Err(Error::other("it is damaged: its pages have numbers of others"));
        }
        let stored = StoredCheckpoint { newest: newest.without_image(), image, earlier, open: None, chunk: None, read: 0 };
        if verifies {
            stored.files().try_for_each(CheckpointFile::verify)?;
        }
        stored.has_all_pages().then_some(stored).ok_or_else(|| Error::other("it is damaged: a page is missing"))
    }

    fn files(&self) -> impl Iterator<Item = &CheckpointFile> {
        self.earlier.iter().chain([&self.newest])
    }

    /// Whether each stored extent lies in files.
    fn has_all_pages(&self) -> bool {
        self.image.extents().all(|extent| {
            let StoredContent::Stored(first) = extent.content else { return true };
            let (mut number, end) = (u64::from(first), u64::from(first) + extent.count);
            while number < end {
                let Some(file) = self.files().find(|file| u32::try_from(number).is_ok_and(|number| file.covers(number))) else {
                    return false;
                };
                number = u64::from(file.own.first + file.own.pages);
            }
            true
        })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.newest.own.checkpoint
    }

    /// Number of pages of the program with content of their own.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.image.stored_pages()
    }

    /// Its requirements of a machine.
    #[must_use]
    pub fn requirements(&self) -> &RestoreRequirements {
        &self.newest.requirements
    }

    /// The image.
    pub(super) fn image(&self) -> &FamilyImage {
        &self.image
    }

    /// The number of the first page that no file has.
    pub(super) fn next_page(&self) -> u32 {
        self.newest.own.first + self.newest.own.pages
    }

    /// The files with pages of it. Its own file may have none.
    pub(super) fn ranges(&self) -> Vec<PageRange> {
        self.files().map(|file| file.own).filter(|range| range.pages > 0).collect()
    }

    /// Reads pages with consecutive numbers, as many as the buffer has room for.
    ///
    /// # Errors
    /// One cannot be read, or is damaged.
    pub(super) fn read(&mut self, first: u32, buffer: &mut [u8]) -> Result<()> {
        let size = PAGE_SIZE as usize;
        for (number, page) in (first..).zip(buffer.chunks_exact_mut(size)) {
            let chunk = match self.chunk.take() {
                Some((start, bytes)) if (start..start + (bytes.len() / size) as u32).contains(&number) => (start, bytes),
                _ => self.read_chunk(number)?,
            };
            let at = (number - chunk.0) as usize * size;
            page.copy_from_slice(&chunk.1[at..at + size]);
            self.chunk = Some(chunk);
        }
        Ok(())
    }

    fn read_chunk(&mut self, number: u32) -> Result<(u32, Vec<u8>)> {
        let StoredCheckpoint { newest, earlier, open, read, .. } = self;
        let file = earlier.iter().chain([&*newest]).find(|file| file.covers(number));
        let file = file.ok_or_else(|| Error::other(format!("the checkpoint has no page {number}")))?;
        *read += 1;
        let is_open = open.as_ref().is_some_and(|(checkpoint, _)| *checkpoint == file.own.checkpoint);
        if !is_open || read.is_multiple_of(CACHED_CHUNKS) {
            *open = None;
        }
        let (_, content) = match open.take() {
            Some(content) => open.insert(content),
            None => open.insert((file.own.checkpoint, file.open()?)),
        };
        file.chunk_of(content, number)
    }

    /// The number of pages from `first` on that one file has.
    pub(super) fn run_length(&self, first: u32) -> u32 {
        self.files().find(|file| file.covers(first)).map_or(1, |file| file.own.first + file.own.pages - first)
    }
}
