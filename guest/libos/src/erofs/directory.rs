// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories: a lookup is two binary searches, because names are sorted within a block and from block to block.

use core::cmp::Ordering;

use pando_erofs::{Corrupt, DirectoryBlock, NAME_LEN};

use super::{BLOCK_SIZE, Data, Error, FileType, Image, Inode, Nid};

/// A directory whose data lies inside the image.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a> {
    nid: Nid,
    data: Data<'a>,
}

/// One name in a directory; `.` and `..` are among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedName<'a> {
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
        if name.len() > NAME_LEN {
            return Err(Error::NameTooLong);
        }
        // The name is in the last block that does not begin after it.
        let blocks = self.data.size().div_ceil(BLOCK_SIZE);
        let (mut low, mut high) = (0, blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.checked(self.block(middle)?.dirent(0))?.name.cmp(name) {
                Ordering::Greater => high = middle,
                Ordering::Less | Ordering::Equal => low = middle + 1,
            }
        }
        let block = self.block(low.checked_sub(1).ok_or(Error::NotFound)?)?;
        let (mut low, mut high) = (0, block.count());
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.checked(block.dirent(middle))?;
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

    fn block(&self, index: u64) -> Result<DirectoryBlock<'a>, Error> {
        self.checked(DirectoryBlock::decode(self.data.block(index * BLOCK_SIZE)))
    }

    fn entry_at(&self, position: Position) -> Result<Option<ListedName<'a>>, Error> {
        if position.0 >= self.data.size() {
            return Ok(None);
        }
        let block = self.block(position.0 / BLOCK_SIZE)?;
        let index = DirectoryBlock::index_at((position.0 % BLOCK_SIZE) as usize);
        if index >= block.count() {
            return Ok(None);
        }
        let entry = self.checked(block.dirent(index))?;
        let start = position.0 - position.0 % BLOCK_SIZE;
        let after = if index + 1 < block.count() { DirectoryBlock::offset_of(index + 1) as u64 } else { BLOCK_SIZE };
        Ok(Some(ListedName { name: entry.name, nid: entry.nid, kind: entry.file_type, next: Position(start + after) }))
    }

    /// Adds the directory's number to an error of the format.
    fn checked<T>(&self, decoded: Result<T, Corrupt>) -> Result<T, Error> {
        decoded.map_err(|Corrupt(what)| Error::Corrupt { nid: self.nid, what })
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
    type Item = Result<ListedName<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.directory.entry_at(self.position?).transpose();
        self.position = match &entry {
            Some(Ok(entry)) => Some(entry.next),
            _ => None,
        };
        entry
    }
}
