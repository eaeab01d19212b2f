// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types that several structures share.

use core::fmt;

/// The unit in which inodes are numbered, in bytes: `1 << EROFS_ISLOTBITS`.
pub const ISLOT_SIZE: u64 = 32;

/// A structure contradicts the format; the text names the contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt(pub &'static str);

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for Corrupt {}

/// The number of an inode: its distance from the start of the inodes (`meta_blkaddr`) in units of [`ISLOT_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid(u64);

impl Nid {
    /// The inode with this number.
    pub const fn new(number: u64) -> Self {
        Nid(number)
    }

    /// The inode at this distance from the start of the inodes, in bytes: a multiple of [`ISLOT_SIZE`].
    pub const fn at(distance: u64) -> Self {
        Nid(distance / ISLOT_SIZE)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The inode's offset in an image whose inodes start at `inodes`, in bytes; `None` if it exceeds 64 bits.
    pub fn offset(self, inodes: u64) -> Option<u64> {
        self.0.checked_mul(ISLOT_SIZE)?.checked_add(inodes)
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time, counted from 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// The nanoseconds after them. Below a billion in well-formed images.
    pub nanoseconds: u32,
}

/// The bits of a mode that give the type.
const S_IFMT: u32 = 0o170_000;

/// The type of a file. The values are those in directory entries (`EROFS_FT_REG_FILE` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the standard terms")]
pub enum FileType {
    Regular = 1,
    Directory = 2,
    CharacterDevice = 3,
    BlockDevice = 4,
    Fifo = 5,
    Socket = 6,
    Symlink = 7,
}

impl FileType {
    /// The type in the bits `S_IFMT` of a mode; `None` if it is unknown.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & S_IFMT {
            0o010_000 => FileType::Fifo,
            0o020_000 => FileType::CharacterDevice,
            0o040_000 => FileType::Directory,
            0o060_000 => FileType::BlockDevice,
            0o100_000 => FileType::Regular,
            0o120_000 => FileType::Symlink,
            0o140_000 => FileType::Socket,
            _ => return None,
        })
    }

    /// The type as bits of a mode.
    pub const fn mode(self) -> u32 {
        match self {
            FileType::Fifo => 0o010_000,
            FileType::CharacterDevice => 0o020_000,
            FileType::Directory => 0o040_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Regular => 0o100_000,
            FileType::Symlink => 0o120_000,
            FileType::Socket => 0o140_000,
        }
    }

    /// The type in a directory entry; `None` if the entry does not record it.
    pub(crate) const fn from_dirent(value: u8) -> Option<Self> {
        Some(match value {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::CharacterDevice,
            4 => FileType::BlockDevice,
            5 => FileType::Fifo,
            6 => FileType::Socket,
            7 => FileType::Symlink,
            _ => return None,
        })
    }
}
