// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of the program's own executable file, which an arena can map instead of copying them.
//!
//! The host keeps one copy of them in its page cache, for all processes that run the same program.

use crate::FRAME_SIZE;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// Bytes of the running program, with the file that contains them.
#[derive(Debug)]
pub struct ExecutableBytes {
    bytes: &'static [u8],
    file: File,
    /// Where the bytes begin in the file.
    offset: u64,
}

impl ExecutableBytes {
    /// Finds bytes that begin at a page boundary. `None`: they are not in the program's file, or that cannot be opened. Call it before the
    /// process loses the right to open files.
    #[must_use]
    pub fn find(bytes: &'static [u8]) -> Option<ExecutableBytes> {
        let start = bytes.as_ptr() as u64;
        let file = File::open("/proc/self/exe").ok()?;
        let inode = file.metadata().ok()?.ino();
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let mapping = maps.lines().filter_map(FileMapping::parse).find(|mapping| mapping.addresses.contains(&start))?;
        let is_found = start.is_multiple_of(FRAME_SIZE as u64)
            && mapping.inode == inode
            && mapping.is_read_only
            && bytes.len() as u64 <= mapping.addresses.end - start;
        is_found.then(|| ExecutableBytes { bytes, file, offset: mapping.offset + (start - mapping.addresses.start) })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &'static [u8] {
        self.bytes
    }

    /// A whole page of them.
    ///
    /// # Panics
    /// They have no such page.
    #[must_use]
    pub fn page(&self, page: u32) -> &'static [u8] {
        &self.bytes[page as usize * FRAME_SIZE..][..FRAME_SIZE]
    }

    /// The file, and where the bytes begin in it: at a page boundary.
    pub(crate) fn file(&self) -> (&File, u64) {
        (&self.file, self.offset)
    }
}

/// A line of `/proc/self/maps`.
struct FileMapping {
    addresses: Range<u64>,
    /// Whether the process has not written to it.
    is_read_only: bool,
    offset: u64,
    inode: u64,
}

impl FileMapping {
    fn parse(line: &str) -> Option<FileMapping> {
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?;
        let offset = hexadecimal(fields.next()?)?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(FileMapping {
            addresses: hexadecimal(start)?..hexadecimal(end)?,
            is_read_only: permissions.starts_with('r') && !permissions.contains('w'),
            offset,
            inode,
        })
    }
}
