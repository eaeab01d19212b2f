// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories: blocks of sorted entries (`struct erofs_dirent`), each block complete in itself.
//!
//! A block begins with an array of twelve-byte entries (nid, offset of the name, type), followed by their names. The first name's offset
//! therefore gives the number of entries. Names are sorted as bytes within a block and from block to block.

use alloc::vec::Vec;

use crate::{
    BLOCK_SIZE, Corrupt, FileType, Nid,
    fields::{Fields, put},
};

/// The largest length of a name in bytes (`EROFS_NAME_LEN`).
pub const NAME_LEN: usize = 255;

const DIRENT_SIZE: usize = 12;
const BLOCK: usize = BLOCK_SIZE as usize;

/// One name in a directory; `.` and `..` are among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// The name: 1 to 255 bytes, no slash, no NUL.
    pub name: &'a [u8],
    /// The inode it names, which has not been read yet.
    pub nid: Nid,
    /// The type of the inode according to the directory; `None` if the directory does not record it.
    pub file_type: Option<FileType>,
}

/// One block of a directory, with at least one entry before the names.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryBlock<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> DirectoryBlock<'a> {
    /// Finds out how many entries a block has. `bytes` are at most a block and may be shorter, at the end of a directory.
    ///
    /// # Errors
    /// The number of entries is invalid.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let names = Fields(bytes).u16(8).map_or(0, usize::from);
        if names < DIRENT_SIZE || !names.is_multiple_of(DIRENT_SIZE) || names >= bytes.len() {
            return Err(Corrupt("a directory block has no valid number of entries"));
        }
        Ok(DirectoryBlock { bytes, count: names / DIRENT_SIZE })
    }

    /// The number of entries, at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The offset of an entry in the block, in bytes.
    pub fn offset_of(index: usize) -> usize {
        index * DIRENT_SIZE
    }

    /// The index of the entry at an offset in the block.
    pub fn index_at(offset: usize) -> usize {
        offset / DIRENT_SIZE
    }

    /// The entry with this index.
    ///
    /// # Errors
    /// It has no valid name.
    pub fn dirent(&self, index: usize) -> Result<Dirent<'a>, Corrupt> {
        self.decode_dirent(index).ok_or(Corrupt("a directory entry has no valid name"))
    }

    /// All entries, in the order of their names.
    pub fn dirents(self) -> impl Iterator<Item = Result<Dirent<'a>, Corrupt>> {
        (0..self.count).map(move |index| self.dirent(index))
    }

    fn decode_dirent(&self, index: usize) -> Option<Dirent<'a>> {
        if index >= self.count {
            return None;
        }
        let (fields, at) = (Fields(self.bytes), index * DIRENT_SIZE);
        let start = usize::from(fields.u16(at + 8)?);
        let name = if index + 1 < self.count {
            let end = usize::from(fields.u16(at + DIRENT_SIZE + 8)?);
            self.bytes.get(start..end)?
        } else {
            // The last name ends at the end of the block or at a NUL.
            self.bytes.get(start..)?.split(|&byte| byte == 0).next()?
        };
        if name.is_empty() || name.len() > NAME_LEN || name.iter().any(|&byte| byte == 0 || byte == b'/') {
            return None;
        }
        Some(Dirent { name, nid: Nid::new(fields.u64(at)?), file_type: FileType::from_dirent(fields.u8(at + 10)?) })
    }
}

/// How many of these names, from the first on, fit into one block.
fn count_in_block<'a>(names: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut used = 0;
    names
        .take_while(|name| {
            used += DIRENT_SIZE + name.len();
            used <= BLOCK
        })
        .count()
}

/// The number of bytes of a directory with these names, as [`encode_directory`] encodes it.
pub fn directory_size<'a>(mut names: impl Iterator<Item = &'a [u8]> + Clone) -> usize {
    let mut size: usize = 0;
    loop {
        let count = count_in_block(names.clone());
        if count == 0 {
            return size;
        }
        let used: usize = names.by_ref().take(count).map(|name| DIRENT_SIZE + name.len()).sum();
        size = size.next_multiple_of(BLOCK) + used;
    }
}

/// Encodes a directory: as many entries to a block as fit, the last block as long as it needs to be.
///
/// Entries must be sorted by name, as bytes, with `.` and `..` among them, and have names of at most [`NAME_LEN`] bytes.
pub fn encode_directory(entries: &[Dirent<'_>]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let (block, later) = rest.split_at(count_in_block(rest.iter().map(|entry| entry.name)).max(1));
        let start = encoded.len().next_multiple_of(BLOCK);
        encoded.resize(start + block.len() * DIRENT_SIZE, 0);
        for (index, entry) in block.iter().enumerate() {
            let (at, name_offset) = (start + index * DIRENT_SIZE, encoded.len() - start);
            put(&mut encoded, at, entry.nid.number().to_le_bytes());
            // It is less than a block, so it fits.
            put(&mut encoded, at + 8, (name_offset as u16).to_le_bytes());
            put(&mut encoded, at + 10, [entry.file_type.map_or(0, |file_type| file_type as u8)]);
            encoded.extend(entry.name);
        }
        rest = later;
    }
    encoded
}
