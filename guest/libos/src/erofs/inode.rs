// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inodes, and the location of their data.

use core::ops::Range;

use pando_erofs::{Corrupt, DataLayout, DiskInode};

use super::{BLOCK_SIZE, Error, FileType, Image, Nid, Time};

/// A decoded inode. Its data may still turn out to lie outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub nid: Nid,
    /// Its type.
    pub kind: FileType,
    /// Permissions: the lower twelve bits of the mode.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// Number of links to it.
    pub links: u32,
    /// Size of its data in bytes.
    pub size: u64,
    /// When its data last changed.
    pub modified: Time,
    /// Major and minor number, if it is a device.
    pub device: (u32, u32),
    layout: DataLayout,
    /// The first block of its data.
    first_block: u32,
    /// The offset of its extended attributes in the image, and their size in bytes. Its inline data follows.
    pub(super) xattrs: (u64, u64),
}

impl<'a> Image<'a> {
    /// Reads the inode of this number.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is none or it is malformed.
    pub fn inode(&self, nid: Nid) -> Result<Inode, Error> {
        let offset = nid.offset(self.inodes).ok_or(Error::Corrupt { nid, what: "lies outside the image" })?;
        let inode = DiskInode::decode(self.tail(offset)).map_err(|Corrupt(what)| Error::Corrupt { nid, what })?;
        let size = inode.version.size() as u64;
        Ok(Inode {
            nid,
            kind: inode.file_type,
            permissions: inode.permissions,
            uid: inode.uid,
            gid: inode.gid,
            links: inode.nlink,
            size: inode.size,
            modified: inode.mtime.unwrap_or(self.built),
            device: inode.device(),
            layout: inode.layout,
            first_block: inode.startblk_or_rdev,
            xattrs: (offset + size, inode.header_size() - size),
        })
    }

    /// The data of an inode, whatever its type.
    ///
    /// # Errors
    /// [`Error::Compressed`], [`Error::Chunked`], or [`Error::Corrupt`] if it lies outside the image.
    pub fn data(&self, inode: &Inode) -> Result<Data<'a>, Error> {
        let tail_size = match inode.layout {
            DataLayout::FlatPlain => 0,
            DataLayout::FlatInline => inode.size % BLOCK_SIZE,
            DataLayout::CompressedFull | DataLayout::CompressedCompact => return Err(Error::Compressed(inode.nid)),
            DataLayout::ChunkBased => return Err(Error::Chunked(inode.nid)),
        };
        let tail = if tail_size == 0 { 0 } else { inode.xattrs.0 + inode.xattrs.1 };
        let head_size = inode.size - tail_size;
        // Without blocks, the number of the first block is arbitrary.
        let head_offset = if head_size == 0 { 0 } else { u64::from(inode.first_block) * BLOCK_SIZE };
        match (self.slice(head_offset, head_size), self.slice(tail, tail_size)) {
            (Some(head), Some(tail)) => Ok(Data { head_offset, head, tail }),
            _ => Err(Error::Corrupt { nid: inode.nid, what: "its data lies outside the image" }),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::NotASymlink`], or those of [`Image::data`]; a target of a block or more is [`Error::Corrupt`].
    pub fn link_target(&self, inode: &Inode) -> Result<&'a [u8], Error> {
        if inode.kind != FileType::Symlink {
            return Err(Error::NotASymlink);
        }
        if inode.size >= BLOCK_SIZE {
            return Err(Error::Corrupt { nid: inode.nid, what: "a symbolic link's target is too long" });
        }
        let data = self.data(inode)?;
        // Less than a block lies either in one block or beside the inode.
        Ok(if data.tail.is_empty() { data.head } else { data.tail })
    }
}

/// An inode's data: whole blocks, then possibly a tail that lies elsewhere. Both are inside the image.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    head_offset: u64,
    /// If there is a tail, its length is a multiple of the block size.
    head: &'a [u8],
    tail: &'a [u8],
}

impl<'a> Data<'a> {
    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.head.len() as u64 + self.tail.len() as u64
    }

    /// Copies data from `offset` on into `buffer`; returns the number of bytes copied, 0 at the end.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let from_head = copy(self.head, offset, buffer);
        let in_tail = (offset + from_head as u64).checked_sub(self.head.len() as u64);
        from_head + in_tail.map_or(0, |offset| copy(self.tail, offset, &mut buffer[from_head..]))
    }

    /// The range of the image that can be mapped. It begins at the start of a block, and the image contains its last block whole. Only
    /// the first bytes of that block may belong to the data. The bytes beyond it, up to [`Data::size`], are an unaligned tail that must
    /// be copied.
    pub fn extent(&self) -> Range<u64> {
        self.head_offset..self.head_offset + self.head.len() as u64
    }

    /// The data beyond the extent.
    pub fn tail(&self) -> &'a [u8] {
        self.tail
    }

    /// The part from `start`, the start of a block, to the end of that block or of the data.
    pub(super) fn block(&self, start: u64) -> &'a [u8] {
        let (part, start) = match start.checked_sub(self.head.len() as u64) {
            Some(in_tail) => (self.tail, in_tail),
            None => (self.head, start),
        };
        let rest = usize::try_from(start).ok().and_then(|start| part.get(start..)).unwrap_or_default();
        &rest[..rest.len().min(BLOCK_SIZE as usize)]
    }
}

/// Copies bytes of `source` from `offset` on.
fn copy(source: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|offset| source.get(offset..)).unwrap_or_default();
    let count = rest.len().min(buffer.len());
    buffer[..count].copy_from_slice(&rest[..count]);
    count
}
