// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inodes, and the location of their data.

use core::{fmt, ops::Range};

use super::{BLOCK_SIZE, Error, Image, fields::Fields};

const COMPACT_SIZE: u64 = 32;
const EXTENDED_SIZE: u64 = 64;
/// Inodes are numbered by their distance from the first in units of this many bytes.
const SLOT_SIZE: u64 = 32;

/// The number of an inode: its position in the image. Unchecked until [`Image::inode`] has accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid(u64);

impl Nid {
    /// The inode with this number.
    pub const fn new(number: u64) -> Self {
        Nid(number)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time, counted from 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// The nanoseconds after them. Below a billion in well-formed images.
    pub nanoseconds: u32,
}

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the standard terms")]
pub enum FileType {
    Regular,
    Directory,
    CharacterDevice,
    BlockDevice,
    Fifo,
    Socket,
    Symlink,
}

impl FileType {
    /// The type in the upper four bits of a mode.
    fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode >> 12 {
            0o01 => FileType::Fifo,
            0o02 => FileType::CharacterDevice,
            0o04 => FileType::Directory,
            0o06 => FileType::BlockDevice,
            0o10 => FileType::Regular,
            0o12 => FileType::Symlink,
            0o14 => FileType::Socket,
            _ => return None,
        })
    }
}

/// How an inode's data is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataLayout {
    /// Whole blocks from `first`.
    Plain {
        first: u32,
    },
    /// Whole blocks from `first`, then the tail at image offset `tail`.
    Inline {
        first: u32,
        tail: u64,
    },
    Compressed,
    Chunked,
}

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
    /// The offset of its extended attributes in the image, and their size in bytes.
    pub(super) attributes: (u64, u64),
}

impl<'a> Image<'a> {
    /// Reads the inode of this number.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is none or it is malformed.
    pub fn inode(&self, nid: Nid) -> Result<Inode, Error> {
        let corrupt = |what| Error::Corrupt { nid, what };
        let outside = corrupt("lies outside the image");
        let offset = nid.0.checked_mul(SLOT_SIZE).and_then(|offset| offset.checked_add(self.inodes)).ok_or(outside)?;
        let format = self.slice(offset, 2).and_then(|bytes| Fields::new(bytes).u16(0)).ok_or(outside)?;
        if format >> 4 != 0 {
            return Err(corrupt("unknown inode format"));
        }
        let size = if format & 1 == 0 { COMPACT_SIZE } else { EXTENDED_SIZE };
        let bytes = self.slice(offset, size).ok_or(outside)?;
        let mut inode = self.decode_inode(nid, Fields::new(bytes)).ok_or(corrupt("unknown file type"))?;
        inode.attributes = (offset + size, attributes_size(bytes));
        inode.layout = match (format >> 1, inode.layout) {
            (0, plain) => plain,
            (1 | 3, _) => DataLayout::Compressed,
            (2, DataLayout::Plain { first }) => DataLayout::Inline { first, tail: inode.attributes.0 + inode.attributes.1 },
            (4, _) => DataLayout::Chunked,
            _ => return Err(corrupt("unknown data layout")),
        };
        Ok(inode)
    }

    /// Decodes an inode, compact or extended by the length of `fields`, as if its data were plain; `None` if its type is unknown.
    fn decode_inode(&self, nid: Nid, fields: Fields<'_>) -> Option<Inode> {
        let mode = fields.u16(4)?;
        let (kind, permissions) = (FileType::from_mode(mode)?, mode & 0o7777);
        let word = fields.u32(16)?;
        let layout = DataLayout::Plain { first: word };
        let device = match kind {
            FileType::CharacterDevice | FileType::BlockDevice => (word >> 8 & 0xfff, word & 0xff | word >> 12 & 0xf_ff00),
            _ => (0, 0),
        };
        let attributes = (0, 0);
        Some(if fields.u16(0)? & 1 == 0 {
            Inode {
                nid,
                kind,
                permissions,
                uid: fields.u16(24)?.into(),
                gid: fields.u16(26)?.into(),
                links: fields.u16(6)?.into(),
                size: fields.u32(8)?.into(),
                modified: self.built,
                device,
                layout,
                attributes,
            }
        } else {
            Inode {
                nid,
                kind,
                permissions,
                uid: fields.u32(24)?,
                gid: fields.u32(28)?,
                links: fields.u32(44)?,
                size: fields.u64(8)?,
                modified: Time { seconds: fields.u64(32)?.cast_signed(), nanoseconds: fields.u32(40)? },
                device,
                layout,
                attributes,
            }
        })
    }

    /// The data of an inode, whatever its type.
    ///
    /// # Errors
    /// [`Error::Compressed`], [`Error::Chunked`], or [`Error::Corrupt`] if it lies outside the image.
    pub fn data(&self, inode: &Inode) -> Result<Data<'a>, Error> {
        let (first, tail, tail_size) = match inode.layout {
            DataLayout::Plain { first } => (first, 0, 0),
            DataLayout::Inline { first, tail } => (first, tail, inode.size % BLOCK_SIZE),
            DataLayout::Compressed => return Err(Error::Compressed(inode.nid)),
            DataLayout::Chunked => return Err(Error::Chunked(inode.nid)),
        };
        let head_size = inode.size - tail_size;
        // Without blocks, the number of the first block is arbitrary.
        let head_offset = if head_size == 0 { 0 } else { u64::from(first) * BLOCK_SIZE };
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

/// Bytes of extended attributes between an inode and its inline data.
fn attributes_size(inode: &[u8]) -> u64 {
    match Fields::new(inode).u16(2) {
        None | Some(0) => 0,
        Some(count) => 12 + 4 * (u64::from(count) - 1),
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
