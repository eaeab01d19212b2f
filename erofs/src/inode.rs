// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inodes: `struct erofs_inode_compact` and `struct erofs_inode_extended`.
//!
//! The extended attributes follow an inode, then its inline data.

use crate::{
    BLOCK_SIZE, Corrupt, FileType, Timestamp,
    fields::{Fields, put},
    xattr_ibody_size,
};

/// The first block of data that has no blocks (`EROFS_NULL_ADDR`).
pub const NULL_ADDR: u32 = u32::MAX;

/// The form of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeVersion {
    /// 32 bytes: 16-bit owners and link count, a 32-bit size, no time.
    Compact = 0,
    /// 64 bytes.
    Extended = 1,
}

impl InodeVersion {
    /// The size of the inode in bytes.
    pub const fn size(self) -> usize {
        match self {
            InodeVersion::Compact => 32,
            InodeVersion::Extended => 64,
        }
    }
}

/// How an inode's data is stored (`EROFS_INODE_FLAT_PLAIN` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLayout {
    /// In consecutive blocks.
    FlatPlain = 0,
    /// Compressed, with an index of full size.
    CompressedFull = 1,
    /// In consecutive blocks, except for the last partial block, which follows the inode and its attributes.
    FlatInline = 2,
    /// Compressed, with a compact index.
    CompressedCompact = 3,
    /// In chunks, each with a position of its own.
    ChunkBased = 4,
}

/// An inode's fields. The type is known; the rest is unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskInode {
    /// Its form.
    pub version: InodeVersion,
    /// How its data is stored.
    pub layout: DataLayout,
    /// The size of its extended attributes, as [`xattr_ibody_size`] understands it.
    pub xattr_icount: u16,
    /// Its type: the upper four bits of the mode.
    pub file_type: FileType,
    /// Permissions: the lower twelve bits of the mode.
    pub permissions: u16,
    /// The number of links.
    pub nlink: u32,
    /// The size of its data in bytes.
    pub size: u64,
    /// The first block of flat data, or the number of a device.
    pub startblk_or_rdev: u32,
    /// A serial number for the 32-bit `stat`.
    pub ino: u32,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// When the data last changed; `None` for a compact inode, which has the superblock's time.
    pub mtime: Option<Timestamp>,
}

impl DiskInode {
    /// The size of the larger form in bytes.
    pub const SIZE_MAX: usize = InodeVersion::Extended.size();

    /// The form of the inode that begins with these bytes.
    ///
    /// # Errors
    /// There are less than two bytes, or the form is unknown.
    pub fn version(bytes: &[u8]) -> Result<InodeVersion, Corrupt> {
        match Fields(bytes).u16(0).ok_or(OUTSIDE)? {
            format if format >> 4 != 0 => Err(Corrupt("unknown inode format")),
            format if format & 1 == 0 => Ok(InodeVersion::Compact),
            _ => Ok(InodeVersion::Extended),
        }
    }

    /// Decodes the inode that begins with these bytes; ignores bytes after it.
    ///
    /// # Errors
    /// The bytes end before the inode does, or its form, type or data layout is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let version = Self::version(bytes)?;
        let fields = Fields(bytes.get(..version.size()).ok_or(OUTSIDE)?);
        let file_type = fields.u16(4).and_then(|mode| FileType::from_mode(mode.into())).ok_or(Corrupt("unknown file type"))?;
        let layout = match fields.u16(0).ok_or(OUTSIDE)? >> 1 {
            0 => DataLayout::FlatPlain,
            1 => DataLayout::CompressedFull,
            2 => DataLayout::FlatInline,
            3 => DataLayout::CompressedCompact,
            4 => DataLayout::ChunkBased,
            _ => return Err(Corrupt("unknown data layout")),
        };
        Self::decode_fields(fields, version, layout, file_type).ok_or(OUTSIDE)
    }

    fn decode_fields(fields: Fields<'_>, version: InodeVersion, layout: DataLayout, file_type: FileType) -> Option<Self> {
        let permissions = fields.u16(4)? & 0o7777;
        let (xattr_icount, startblk_or_rdev, ino) = (fields.u16(2)?, fields.u32(16)?, fields.u32(20)?);
        let (nlink, size, uid, gid, mtime) = match version {
            InodeVersion::Compact => (fields.u16(6)?.into(), fields.u32(8)?.into(), fields.u16(24)?.into(), fields.u16(26)?.into(), None),
            InodeVersion::Extended => {
                let mtime = Timestamp { seconds: fields.u64(32)?.cast_signed(), nanoseconds: fields.u32(40)? };
                (fields.u32(44)?, fields.u64(8)?, fields.u32(24)?, fields.u32(28)?, Some(mtime))
            }
        };
        Some(DiskInode { version, layout, xattr_icount, file_type, permissions, nlink, size, startblk_or_rdev, ino, uid, gid, mtime })
    }

    /// Writes the fields into the bytes of an inode, and leaves its reserved bytes as they are. Numbers that exceed the fields of a
    /// compact inode become the largest that these can hold.
    ///
    /// # Panics
    /// If the bytes end before the inode does.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        fn saturated(value: u32) -> [u8; 2] {
            u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes()
        }
        put(bytes, 0, (self.version as u16 | (self.layout as u16) << 1).to_le_bytes());
        put(bytes, 2, self.xattr_icount.to_le_bytes());
        put(bytes, 4, (self.file_type.mode() as u16 | self.permissions & 0o7777).to_le_bytes());
        put(bytes, 16, self.startblk_or_rdev.to_le_bytes());
        put(bytes, 20, self.ino.to_le_bytes());
        match self.version {
            InodeVersion::Compact => {
                put(bytes, 6, saturated(self.nlink));
                put(bytes, 8, u32::try_from(self.size).unwrap_or(u32::MAX).to_le_bytes());
                put(bytes, 24, saturated(self.uid));
                put(bytes, 26, saturated(self.gid));
            }
            InodeVersion::Extended => {
                let mtime = self.mtime.unwrap_or_default();
                put(bytes, 8, self.size.to_le_bytes());
                put(bytes, 24, self.uid.to_le_bytes());
                put(bytes, 28, self.gid.to_le_bytes());
                put(bytes, 32, mtime.seconds.to_le_bytes());
                put(bytes, 40, mtime.nanoseconds.to_le_bytes());
                put(bytes, 44, self.nlink.to_le_bytes());
            }
        }
    }

    /// The distance from the inode's start to its inline data, in bytes: the inode and its extended attributes.
    pub fn header_size(&self) -> u64 {
        self.version.size() as u64 + xattr_ibody_size(self.xattr_icount)
    }

    /// The bytes of data that are inline.
    pub fn inline_size(&self) -> u64 {
        match self.layout {
            DataLayout::FlatInline => self.size % BLOCK_SIZE,
            _ => 0,
        }
    }

    /// The major and minor number of a device; 0 for other types.
    pub fn device(&self) -> (u32, u32) {
        // `new_decode_dev`: the major number lies between two parts of the minor number.
        let device = self.startblk_or_rdev;
        match self.file_type {
            FileType::CharacterDevice | FileType::BlockDevice => (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00),
            _ => (0, 0),
        }
    }
}

const OUTSIDE: Corrupt = Corrupt("lies outside the image");
