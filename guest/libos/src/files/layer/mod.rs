// SPDX-License-Identifier: MIT OR Apache-2.0
//! The changes of the root volume as a tar archive: a layer of a container image, with whiteouts for removed files.
//!
//! Other volumes, live mounts and temporary file systems are left out, and so are the files that the libOS provides ([`EXCLUDED_PATHS`]).
//! Sockets have no form in an archive. The archive is written in pieces, while no program of the cell runs.

mod tar;
mod walk;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Files;
use super::tree::{InodeRef, Tree};
use crate::erofs::FileType;
use crate::errno::Errno;
use tar::{BLOCK_SIZE, Member};
use walk::{ChangeKind, PathChange};

/// Paths that every cell gets from the libOS: those that docker mounts into a container.
const EXCLUDED_PATHS: [&[u8]; 6] = [b"dev", b"proc", b"sys", b"etc/hosts", b"etc/hostname", b"etc/resolv.conf"];
/// The prefix of names that stand for removed files.
const WHITEOUT: &[u8] = b".wh.";
/// The name that hides everything that the lower layers have in a directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Extended attributes that only the host's store of layers uses.
const STORE_XATTR_PREFIX: &[u8] = b"trusted.pando.";
/// Bytes of an archive that are prepared at a time.
const PIECE: usize = 16 << 10;

/// A regular file whose content is being written.
#[derive(Debug)]
struct OpenContent {
    inode: InodeRef,
    offset: u64,
    size: u64,
}

/// The archive, and how much of it has been read.
#[derive(Debug)]
pub struct LayerArchive {
    changes: Vec<PathChange>,
    /// The number of changes whose headers have been written.
    done: usize,
    content: Option<OpenContent>,
    /// Prepared bytes, and how many of them have been read.
    bytes: Vec<u8>,
    read: usize,
    /// The archive's end has been written.
    is_complete: bool,
}

impl LayerArchive {
    /// Finds the changes of the root volume.
    ///
    /// # Errors
    /// `ENOSPC`: there is no memory for their list. `EIO`, `ENAMETOOLONG`.
    pub fn new(files: &Files) -> Result<LayerArchive, Errno> {
        let changes = walk::changes(&files.tree)?;
        let mut bytes = Vec::new();
        bytes.try_reserve(2 * PIECE).map_err(|_| Errno::ENOSPC)?;
        Ok(LayerArchive { changes, done: 0, content: None, bytes, read: 0, is_complete: false })
    }

    /// Copies the next bytes without advancing. Returns how many; 0: the archive is complete.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn peek(&mut self, files: &Files, buffer: &mut [u8]) -> Result<usize, Errno> {
        while self.read == self.bytes.len() {
            if self.is_complete {
                return Ok(0);
            }
            self.bytes.clear();
            self.read = 0;
            while self.bytes.len() < PIECE && !self.is_complete {
                self.write_next(&files.tree)?;
            }
        }
        let ready = &self.bytes[self.read..];
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        Ok(count)
    }

    /// Advances by so many bytes.
    pub fn skip(&mut self, bytes: usize) {
        self.read = (self.read + bytes).min(self.bytes.len());
    }

    /// Writes the next piece of a file, or the next header.
    fn write_next(&mut self, tree: &Tree) -> Result<(), Errno> {
        if let Some(content) = &mut self.content {
            if content.write(tree, &mut self.bytes)? {
                self.content = None;
            }
            return Ok(());
        }
        let Some(change) = self.changes.get(self.done) else {
            // Two blocks of zeros end an archive.
            self.bytes.resize(self.bytes.len() + 2 * BLOCK_SIZE, 0);
            self.is_complete = true;
            return Ok(());
        };
        self.content = write_header(tree, change, &self.changes, &mut self.bytes)?;
        self.done += 1;
        Ok(())
    }
}

/// Writes the header of a change. Returns the file whose content follows.
fn write_header(tree: &Tree, change: &PathChange, all: &[PathChange], out: &mut Vec<u8>) -> Result<Option<OpenContent>, Errno> {
    let inode = match change.kind {
        ChangeKind::Present(inode) => inode,
        ChangeKind::Link(first) => {
            let target = all.get(first).ok_or(Errno::EIO)?;
            let member = Member { path: &change.path, link: &target.path, kind: tar::LINK, ..Member::default() };
            tar::write(&member, out)?;
            return Ok(None);
        }
        ChangeKind::Whiteout => {
            tar::write(&Member { path: &change.path, kind: tar::REGULAR, ..Member::default() }, out)?;
            return Ok(None);
        }
    };
    let (status, kind) = (tree.status(inode)?, tree.kind(inode)?);
    let attributes = attributes(tree, inode)?;
    let member = Member {
        path: &change.path,
        link: if kind == FileType::Symlink { tree.target(inode)? } else { &[] },
        kind: match kind {
            FileType::Regular => tar::REGULAR,
            FileType::Directory => tar::DIRECTORY,
            FileType::Symlink => tar::SYMLINK,
            FileType::CharacterDevice => tar::CHARACTER_DEVICE,
            FileType::BlockDevice => tar::BLOCK_DEVICE,
            FileType::Fifo => tar::FIFO,
            _ => return Err(Errno::EIO),
        },
        permissions: u32::from(status.owner().permissions),
        uid: status.uid,
        gid: status.gid,
        size: if kind == FileType::Regular { status.size } else { 0 },
        modified: status.times.modified,
        device: status.numbers,
        attributes: &attributes,
    };
    tar::write(&member, out)?;
    let is_file = kind == FileType::Regular && status.size > 0;
    Ok(is_file.then_some(OpenContent { inode, offset: 0, size: status.size }))
}

/// The extended attributes of a file.
fn attributes(tree: &Tree, inode: InodeRef) -> Result<Vec<tar::ExtendedAttribute>, Errno> {
    let mut names: Vec<Box<[u8]>> = Vec::new();
    tree.attribute_names(inode, |prefix, name| {
        names.push([prefix, name].concat().into());
        Ok(())
    })?;
    names.retain(|name| !name.starts_with(STORE_XATTR_PREFIX));
    let value = |name: Box<[u8]>| {
        let value = tree.attribute(inode, &name)?;
        let mut copy = alloc::vec![0; value.len()];
        if pando_rt::user::fetch(value, &mut copy) < copy.len() {
            return Err(Errno::EIO);
        }
        Ok((name, copy.into()))
    };
    names.into_iter().map(value).collect()
}

impl OpenContent {
    /// Appends the next piece of the file, and the padding after its last one. Returns whether that was all.
    fn write(&mut self, tree: &Tree, out: &mut Vec<u8>) -> Result<bool, Errno> {
        let count = (self.size - self.offset).min(PIECE as u64) as usize;
        let start = out.len();
        out.try_reserve(count + BLOCK_SIZE).map_err(|_| Errno::ENOSPC)?;
        out.resize(start + count, 0);
        self.read(tree, &mut out[start..])?;
        self.offset += count as u64;
        let is_complete = self.offset == self.size;
        if is_complete {
            let padding = self.size.next_multiple_of(BLOCK_SIZE as u64) - self.size;
            out.resize(out.len() + padding as usize, 0);
        }
        Ok(is_complete)
    }

    /// Reads the file at the present offset.
    fn read(&self, tree: &Tree, buffer: &mut [u8]) -> Result<(), Errno> {
        let mut filled = 0;
        match tree.real_inode(self.inode) {
            InodeRef::Node(id) => {
                tree.node(id)?.content()?.read(self.offset, buffer.len() as u64, |piece| {
                    let count = pando_rt::user::fetch(piece, &mut buffer[filled..filled + piece.len()]);
                    filled += count;
                    if count == piece.len() { Ok(count) } else { Err(Errno::EIO) }
                })?;
            }
            InodeRef::Image(image) => filled = tree.image_file(image)?.read(self.offset, buffer)?,
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => {}
        }
        if filled == buffer.len() { Ok(()) } else { Err(Errno::EIO) }
    }
}
