// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories: blocks of sorted entries, each block complete in itself.
//!
//! A block begins with an array of twelve-byte entries (nid, offset of the name, type), followed by their names. The first name's offset
//! therefore gives the number of entries. Names are sorted as bytes within a block and from block to block, so a lookup is two binary
//! searches.

use core::cmp::Ordering;

use super::{BLOCK_SIZE, Data, Error, FileType, Image, Inode, Nid, fields::Fields};

const ENTRY_SIZE: usize = 12;
const NAME_MAX: usize = 255;

/// A directory whose data lies inside the image.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a> {
    nid: Nid,
    data: Data<'a>,
}

/// One name in a directory; `.` and `..` are among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// The name: 1 to 255 bytes, no slash, no NUL.
    pub name: &'a [u8],
    /// The number of the inode it names, which has not been read yet.
    pub nid: Nid,
    /// The type of the inode according to the directory; `None` if the directory does not record it.
    pub kind: Option<FileType>,
    /// The position after this entry.
    pub next: Position,
}

/// A position in a directory from which reading can continue; 0 is the start. Any number is safe, but few are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

impl<'a> Image<'a> {
    /// Opens a directory.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], or those of [`Image::data`].
    pub fn directory(&self, inode: &Inode) -> Result<Directory<'a>, Error> {
        match inode.kind {
            FileType::Directory => Ok(Directory { nid: inode.nid, data: self.data(inode)? }),
            _ => Err(Error::NotADirectory),
        }
    }
}

impl<'a> Directory<'a> {
    /// Finds a name, in O(log n).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NameTooLong`], [`Error::Corrupt`].
    pub fn lookup(&self, name: &[u8]) -> Result<Nid, Error> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        // The name is in the last block that does not begin after it.
        let blocks = self.data.size().div_ceil(BLOCK_SIZE);
        let (mut low, mut high) = (0, blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.block(middle)?.entry(0)?.name.cmp(name) {
                Ordering::Greater => high = middle,
                Ordering::Less | Ordering::Equal => low = middle + 1,
            }
        }
        let block = self.block(low.checked_sub(1).ok_or(Error::NotFound)?)?;
        let (mut low, mut high) = (0, block.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = block.entry(middle)?;
            match entry.name.cmp(name) {
                Ordering::Equal => return Ok(entry.nid),
                Ordering::Greater => high = middle,
                Ordering::Less => low = middle + 1,
            }
        }
        Err(Error::NotFound)
    }

    /// All entries from `position` on, sorted by name.
    pub fn entries(&self, position: Position) -> Entries<'a> {
        Entries { directory: *self, position: Some(position) }
    }

    fn block(&self, index: u64) -> Result<Block<'a>, Error> {
        let start = index * BLOCK_SIZE;
        let bytes = self.data.block(start);
        let names = Fields::new(bytes).u16(8).map_or(0, usize::from);
        if names < ENTRY_SIZE || !names.is_multiple_of(ENTRY_SIZE) || names >= bytes.len() {
            return Err(Error::Corrupt { nid: self.nid, what: "a directory block has no valid number of entries" });
        }
        Ok(Block { nid: self.nid, start, bytes, count: names / ENTRY_SIZE })
    }

    fn entry_at(&self, position: Position) -> Result<Option<Dirent<'a>>, Error> {
        if position.0 >= self.data.size() {
            return Ok(None);
        }
        let block = self.block(position.0 / BLOCK_SIZE)?;
        let index = (position.0 % BLOCK_SIZE) as usize / ENTRY_SIZE;
        if index < block.count { block.entry(index).map(Some) } else { Ok(None) }
    }
}

/// One block of a directory, with at least one entry in front of the names.
struct Block<'a> {
    nid: Nid,
    /// Its offset in the directory's data.
    start: u64,
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Block<'a> {
    fn entry(&self, index: usize) -> Result<Dirent<'a>, Error> {
        self.decode(index).ok_or(Error::Corrupt { nid: self.nid, what: "a directory entry has no valid name" })
    }

    /// Decodes the entry; `None` if its name is empty or lies outside the block.
    fn decode(&self, index: usize) -> Option<Dirent<'a>> {
        let (fields, at) = (Fields::new(self.bytes), index * ENTRY_SIZE);
        let name_start = usize::from(fields.u16(at + 8)?);
        let name = if index + 1 < self.count {
            let name_end = usize::from(fields.u16(at + ENTRY_SIZE + 8)?);
            self.bytes.get(name_start..name_end)?
        } else {
            // The last name ends at the end of the block or at a NUL.
            self.bytes.get(name_start..)?.split(|&byte| byte == 0).next()?
        };
        if name.is_empty() || name.len() > NAME_MAX || name.iter().any(|&byte| byte == 0 || byte == b'/') {
            return None;
        }
        let kind = match fields.u8(at + 10)? {
            1 => Some(FileType::Regular),
            2 => Some(FileType::Directory),
            3 => Some(FileType::CharacterDevice),
            4 => Some(FileType::BlockDevice),
            5 => Some(FileType::Fifo),
            6 => Some(FileType::Socket),
            7 => Some(FileType::Symlink),
            _ => None,
        };
        let next = if index + 1 < self.count { self.start + (at + ENTRY_SIZE) as u64 } else { self.start + BLOCK_SIZE };
        Some(Dirent { name, nid: Nid::new(fields.u64(at)?), kind, next: Position(next) })
    }
}

/// The entries of a directory; ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    directory: Directory<'a>,
    /// `None` after the end.
    position: Option<Position>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Dirent<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.directory.entry_at(self.position?).transpose();
        self.position = match &entry {
            Some(Ok(entry)) => Some(entry.next),
            _ => None,
        };
        entry
    }
}
