// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path lookup in an image, for Pando's own needs: whether the program exists, and where other images are mounted.
//!
//! Images are not trusted: all fields are checked before use, and no loop is longer than the image.

use std::collections::VecDeque;

use pando_erofs::{
    BLOCK_SIZE, Corrupt, DataLayout, DirectoryBlock, Dirent, DiskInode, FileType, InodeVersion, Nid, SUPER_OFFSET, SuperBlock,
};

use crate::{
    BlockError, Error, Image,
    block::BLOCK,
    path::{TARGET_MAX, shown},
};

/// Maximal number of links in a path, as in Linux.
const LINKS_MAX: usize = 40;
/// Maximal bytes of a directory: some two million entries.
const DIRECTORY_MAX: u64 = 64 << 20;
/// Maximal bytes of a text file.
const TEXT_MAX: u64 = 1 << 20;

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

/// An inode and its location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) nid: Nid,
    /// Its offset in the image, in bytes.
    pub(crate) offset: u64,
    pub(crate) inode: DiskInode,
}

impl Node {
    pub(crate) fn is_directory(&self) -> bool {
        self.inode.file_type == FileType::Directory
    }
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
        Ok(last.map(|node| match node.inode.file_type {
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
            let current = found.chain[found.chain.len() - 1];
            if !current.is_directory() {
                return Err(Error::NotADirectory { path: shown(path), ancestor: shown(&found.names.join(&b'/')) });
            }
            if name == b".." {
                found.names.pop();
                found.chain.truncate(found.chain.len().saturating_sub(1).max(1));
                continue;
            }
            let Some(node) = self.look_up(&current, &name)? else {
                found.missing = std::iter::once(name).chain(pending).collect();
                return match found.missing.iter().any(|name| name == b"..") {
                    true => Err(Error::Path { path: shown(path), reason: "it contains a directory that does not exist" }),
                    false => Ok(found),
                };
            };
            if node.inode.file_type != FileType::Symlink {
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
        let (mut low, mut high) = (0, directory.inode.size.div_ceil(BLOCK_SIZE));
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let bytes = self.piece(directory, middle * BLOCK_SIZE, BLOCK_SIZE)?;
            let block = DirectoryBlock::decode(&bytes)?;
            if block.dirent(0)?.name <= name {
                let entries: Vec<Dirent<'_>> = block.dirents().collect::<Result<_, _>>()?;
                found = entries.iter().find(|entry| entry.name == name).map(|entry| entry.nid);
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        found.map(|nid| self.node(nid)).transpose()
    }

    fn root(&self) -> Result<Nid, Error> {
        Ok(self.superblock()?.root_nid)
    }

    /// The offset of the inodes, in bytes.
    pub(crate) fn inodes(&self) -> Result<u64, Error> {
        Ok(self.superblock()?.inodes())
    }

    pub(crate) fn superblock(&self) -> Result<SuperBlock, Error> {
        let mut bytes = [0; SUPER_OFFSET + SuperBlock::SIZE];
        self.read_bytes(0, &mut bytes)?;
        SuperBlock::decode(&bytes).ok_or(Corrupt("it has no EROFS superblock").into())
    }

    pub(crate) fn node(&self, nid: Nid) -> Result<Node, Error> {
        let offset = nid.offset(self.inodes()?).ok_or(Corrupt("an inode is outside of it"))?;
        let mut bytes = [0; DiskInode::SIZE_MAX];
        self.read_bytes(offset, &mut bytes[..InodeVersion::Compact.size()])?;
        let size = DiskInode::version(&bytes)?.size();
        self.read_bytes(offset, &mut bytes[..size])?;
        Ok(Node { nid, offset, inode: DiskInode::decode(&bytes)? })
    }

    /// The data of a directory or link.
    pub(crate) fn data(&self, node: &Node) -> Result<Vec<u8>, Error> {
        let max = if node.inode.file_type == FileType::Symlink { TARGET_MAX as u64 } else { DIRECTORY_MAX };
        if node.inode.size > max.min(self.size()) {
            return Err(Corrupt("a directory or link is too large").into());
        }
        self.piece(node, 0, node.inode.size)
    }

    /// The content of a small text file, following links; `None` if there is none, or it is not UTF-8.
    ///
    /// # Errors
    /// The image cannot be read, or is invalid.
    pub fn file_text(&self, path: &[u8]) -> Result<Option<String>, Error> {
        let Resolved { chain, missing, .. } = self.resolve(path)?;
        let is_text = |node: &&Node| missing.is_empty() && node.inode.file_type == FileType::Regular && node.inode.size <= TEXT_MAX;
        match chain.last().filter(is_text) {
            Some(node) => Ok(String::from_utf8(self.data(node)?).ok()),
            None => Ok(None),
        }
    }

    /// At most `length` bytes of a directory or link from the start of a block on.
    fn piece(&self, node: &Node, start: u64, length: u64) -> Result<Vec<u8>, Error> {
        let DiskInode { layout, size, startblk_or_rdev, .. } = node.inode;
        if !matches!(layout, DataLayout::FlatPlain | DataLayout::FlatInline) {
            return Err(Corrupt("a directory or link is stored in an unsupported layout").into());
        }
        let end = start.saturating_add(length).min(size);
        let head_end = (size - node.inode.inline_size()).min(end);
        let mut data = vec![0; end.saturating_sub(start) as usize];
        let (head, rest) = data.split_at_mut(head_end.saturating_sub(start) as usize);
        self.read_bytes((u64::from(startblk_or_rdev) * BLOCK_SIZE).saturating_add(start), head)?;
        self.read_bytes(node.offset.saturating_add(node.inode.header_size()), rest)?;
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
            BlockError::Outside { .. } => Error::from(Corrupt("a block is outside of it")),
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
        for entry in DirectoryBlock::decode(block)?.dirents() {
            entries.push(entry?);
        }
    }
    Ok(entries)
}

impl From<Corrupt> for BlockError {
    fn from(Corrupt(what): Corrupt) -> Self {
        BlockError::Damaged(what)
    }
}

impl From<Corrupt> for Error {
    fn from(error: Corrupt) -> Self {
        Error::Block(error.into())
    }
}
