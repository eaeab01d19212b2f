// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path lookup in an image, for Pando's own needs: whether the program exists, and where other images are mounted.
//!
//! Images are not trusted: all fields are checked before use, and no loop is longer than the image.

use std::collections::VecDeque;

use crate::{
    BlockError, Error, Image,
    builder::{TARGET_MAX, shown},
    format::{
        BLOCK, BLOCK_SIZE, Dirent, ENTRY_SIZE, EXTENDED, FileType, INLINE, INODE_SIZE, LAYOUT_SHIFT, Nid, PLAIN, SLOT_SIZE,
        SUPERBLOCK_OFFSET,
    },
};

/// Maximal number of links in a path, as in Linux.
const LINKS_MAX: usize = 40;
/// Maximal bytes of a directory: some two million entries.
const DIRECTORY_MAX: u64 = 64 << 20;
/// Maximal bytes of a text file.
const TEXT_MAX: u64 = 1 << 20;
const COMPACT_SIZE: usize = 32;

/// The type of a file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// Another type, but not a link: links are followed.
    Other,
}

/// The fields of an inode that are needed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) nid: Nid,
    /// Its offset in the image, in bytes.
    pub(crate) offset: u64,
    pub(crate) kind: FileType,
    pub(crate) extended: bool,
    layout: u16,
    size: u64,
    first_block: u32,
    /// Bytes between the inode's start and inline data.
    header: u64,
    pub(crate) links: u32,
}

/// A resolved path.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The existing inodes, from the root on.
    pub(crate) chain: Vec<Node>,
    /// The names of `chain`, without the root's.
    pub(crate) names: Vec<Vec<u8>>,
    /// The remaining names, which do not exist.
    pub(crate) missing: Vec<Vec<u8>>,
}

impl Image {
    /// The type of the file at a path, following links; `None` if it does not exist.
    ///
    /// # Errors
    /// A block cannot be read, or is invalid.
    pub fn find(&self, path: &[u8]) -> Result<Option<Kind>, Error> {
        let found = match self.resolve(path) {
            Ok(found) => found,
            Err(Error::NotADirectory { .. } | Error::Path { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let last = found.chain.last().filter(|_| found.missing.is_empty());
        Ok(last.map(|node| match node.kind {
            FileType::Directory => Kind::Directory,
            FileType::Regular => Kind::File,
            _ => Kind::Other,
        }))
    }

    /// Resolves a path as far as it exists.
    pub(crate) fn resolve(&self, path: &[u8]) -> Result<Resolved, Error> {
        let mut pending: VecDeque<Vec<u8>> = names(path).collect();
        let mut found = Resolved { chain: vec![self.node(self.root()?)?], names: Vec::new(), missing: Vec::new() };
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            let here = found.chain[found.chain.len() - 1];
            if here.kind != FileType::Directory {
                return Err(Error::NotADirectory { path: shown(path), ancestor: shown(&found.names.join(&b'/')) });
            }
            if name == b".." {
                found.names.pop();
                found.chain.truncate(found.chain.len().saturating_sub(1).max(1));
                continue;
            }
            let Some(node) = self.look_up(&here, &name)? else {
                found.missing = std::iter::once(name).chain(pending).collect();
                return match found.missing.iter().any(|name| name == b"..") {
                    true => Err(Error::Path { path: shown(path), reason: "it contains a directory that does not exist" }),
                    false => Ok(found),
                };
            };
            if node.kind != FileType::Symlink {
                found.names.push(name);
                found.chain.push(node);
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::Path { path: shown(path), reason: "it contains too many links" });
            }
            let target = self.data(&node)?;
            if target.starts_with(b"/") {
                found.names.clear();
                found.chain.truncate(1);
            }
            names(&target).rev().for_each(|name| pending.push_front(name));
        }
        Ok(found)
    }

    /// Looks up a name in a directory: binary search among the blocks, then in one.
    fn look_up(&self, directory: &Node, name: &[u8]) -> Result<Option<Node>, Error> {
        // The name is in the last block that does not start after it.
        let (mut low, mut high) = (0, directory.size.div_ceil(BLOCK_SIZE));
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let block = self.piece(directory, middle * BLOCK_SIZE, BLOCK_SIZE)?;
            let entries = entries(&block)?;
            match entries.first().is_some_and(|first| first.name <= name) {
                true => {
                    found = entries.iter().find(|entry| entry.name == name).map(|entry| entry.nid);
                    low = middle + 1;
                }
                false => high = middle,
            }
        }
        found.map(|nid| self.node(nid)).transpose()
    }

    fn root(&self) -> Result<Nid, Error> {
        let mut bytes = [0; 2];
        self.read_bytes(SUPERBLOCK_OFFSET as u64 + 14, &mut bytes)?;
        Ok(Nid(u16::from_le_bytes(bytes).into()))
    }

    /// The offset of the inodes, in bytes.
    pub(crate) fn inodes(&self) -> Result<u64, Error> {
        let mut bytes = [0; 4];
        self.read_bytes(SUPERBLOCK_OFFSET as u64 + 40, &mut bytes)?;
        Ok(u64::from(u32::from_le_bytes(bytes)) * BLOCK_SIZE)
    }

    pub(crate) fn node(&self, nid: Nid) -> Result<Node, Error> {
        let offset = nid.0.checked_mul(SLOT_SIZE as u64).and_then(|offset| offset.checked_add(self.inodes().ok()?));
        let offset = offset.ok_or(damaged("an inode is outside of it"))?;
        let mut bytes = [0; INODE_SIZE];
        self.read_bytes(offset, &mut bytes[..COMPACT_SIZE])?;
        let format = u16::from_le_bytes([bytes[0], bytes[1]]);
        let extended = format & EXTENDED != 0;
        if extended {
            self.read_bytes(offset, &mut bytes)?;
        }
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let attributes = half(2);
        let attributes = if attributes == 0 { 0 } else { 12 + 4 * (u64::from(attributes) - 1) };
        Ok(Node {
            nid,
            offset,
            kind: FileType::from_mode(half(4).into()).ok_or(damaged("an inode is of an unknown type"))?,
            extended,
            layout: format >> LAYOUT_SHIFT,
            size: if extended { u64::from(word(8)) | u64::from(word(12)) << 32 } else { word(8).into() },
            first_block: word(16),
            header: if extended { INODE_SIZE as u64 } else { COMPACT_SIZE as u64 } + attributes,
            links: if extended { word(44) } else { half(6).into() },
        })
    }

    /// The data of a directory or link.
    pub(crate) fn data(&self, node: &Node) -> Result<Vec<u8>, Error> {
        let most = if node.kind == FileType::Symlink { TARGET_MAX as u64 } else { DIRECTORY_MAX };
        if node.size > most.min(self.size()) {
            return Err(damaged("a directory or link is too large"));
        }
        self.piece(node, 0, node.size)
    }

    /// The content of a small text file, following links; `None` if there is none, or it is not UTF-8.
    ///
    /// # Errors
    /// The image cannot be read, or is invalid.
    pub fn file_text(&self, path: &[u8]) -> Result<Option<String>, Error> {
        let Resolved { chain, missing, .. } = self.resolve(path)?;
        let is_text = |node: &&Node| missing.is_empty() && node.kind == FileType::Regular && node.size <= TEXT_MAX;
        match chain.last().filter(is_text) {
            Some(node) => Ok(String::from_utf8(self.data(node)?).ok()),
            None => Ok(None),
        }
    }

    /// At most `length` bytes of a directory or link from the start of a block on.
    fn piece(&self, node: &Node, start: u64, length: u64) -> Result<Vec<u8>, Error> {
        let tail = match node.layout {
            PLAIN => 0,
            INLINE => node.size % BLOCK_SIZE,
            _ => return Err(damaged("a directory or link is stored in an unsupported layout")),
        };
        let end = start.saturating_add(length).min(node.size);
        let head_end = (node.size - tail).min(end);
        let mut data = vec![0; end.saturating_sub(start) as usize];
        let (head, rest) = data.split_at_mut(head_end.saturating_sub(start) as usize);
        self.read_bytes((u64::from(node.first_block) * BLOCK_SIZE).saturating_add(start), head)?;
        self.read_bytes(node.offset.saturating_add(node.header), rest)?;
        Ok(data)
    }

    /// Fills the buffer from this offset of the image on.
    pub(crate) fn read_bytes(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        if buffer.is_empty() {
            return Ok(());
        }
        let first = offset / BLOCK_SIZE;
        let within = (offset % BLOCK_SIZE) as usize;
        let mut blocks = vec![0; (within + buffer.len()).next_multiple_of(BLOCK)];
        self.read_blocks(first, &mut blocks).map_err(|error| match error {
            BlockError::Outside { .. } => damaged("a block is outside of it"),
            error => error.into(),
        })?;
        buffer.copy_from_slice(&blocks[within..][..buffer.len()]);
        Ok(())
    }
}

/// The names of a path, without empty ones and `.`.
fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}

/// The entries of a directory.
pub(crate) fn entries(data: &[u8]) -> Result<Vec<Dirent<'_>>, Error> {
    let mut entries = Vec::new();
    for block in data.chunks(BLOCK) {
        let offset_of_name = |index: usize| -> Option<usize> {
            let field = block.get(index * ENTRY_SIZE..)?.get(8..10)?;
            Some(u16::from_le_bytes([field[0], field[1]]).into())
        };
        let names = offset_of_name(0).filter(|names| *names >= ENTRY_SIZE && names.is_multiple_of(ENTRY_SIZE) && *names <= block.len());
        let count = names.ok_or(damaged("a directory has no entries"))? / ENTRY_SIZE;
        for index in 0..count {
            let end = if index + 1 < count { offset_of_name(index + 1) } else { Some(block.len()) };
            let name = offset_of_name(index).zip(end).and_then(|(start, end)| block.get(start..end));
            // The last name may be followed by zeros.
            let name = name.and_then(|name| name.split(|&byte| byte == 0).next()).filter(|name| !name.is_empty());
            let name = name.ok_or(damaged("a directory's entry has no name"))?;
            let fields = &block[index * ENTRY_SIZE..][..ENTRY_SIZE];
            let nid = fields.first_chunk().map_or(0, |nid| u64::from_le_bytes(*nid));
            entries.push(Dirent { name, nid: Nid(nid), kind: fields[10] });
        }
    }
    Ok(entries)
}

pub(crate) fn damaged(what: &'static str) -> Error {
    Error::Block(BlockError::Damaged(what))
}
