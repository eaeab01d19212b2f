// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of reading an image.

use core::fmt;

use super::{BLOCK_SIZE, Nid};

/// The reason why an image, or a request to it, was refused.
///
/// The first group of variants concerns the image, the second the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No EROFS superblock at its offset.
    NotErofs,
    /// The superblock counts more bytes than the image has.
    Truncated {
        /// The bytes that the superblock counts.
        expected: u64,
        /// The bytes that the image has.
        actual: u64,
    },
    /// A block size, or directory block size, other than 4 KiB.
    BlockSize {
        /// The base-2 logarithm of the size found.
        bits: u8,
    },
    /// Features that this reader does not support.
    Features {
        /// The unknown incompatible features, as bits.
        unknown: u32,
    },
    /// A file with compressed data.
    Compressed(Nid),
    /// A file whose data is scattered in chunks.
    Chunked(Nid),
    /// The image contradicts the format.
    Corrupt {
        /// The inode whose metadata or data is at fault.
        nid: Nid,
        /// The contradiction.
        what: &'static str,
    },

    /// No such name (`ENOENT`).
    NotFound,
    /// A component of the path is not a directory (`ENOTDIR`).
    NotADirectory,
    /// The inode is not a symbolic link, so it has no target (`EINVAL`).
    NotASymlink,
    /// A name of more than 255 bytes, or a path of 4096 or more (`ENAMETOOLONG`).
    NameTooLong,
    /// More than 40 symbolic links in one path (`ELOOP`).
    TooManyLinks,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotErofs => write!(f, "not an EROFS image"),
            Error::Truncated { expected, actual } => {
                write!(f, "the image is cut short: its superblock counts {expected} bytes, there are {actual}")
            }
            Error::BlockSize { bits } => {
                write!(f, "the image has blocks of 2^{bits} bytes; build it with blocks of {BLOCK_SIZE} bytes")
            }
            Error::Features { unknown } => write!(f, "the image has features that are not supported: {unknown:#x}"),
            Error::Compressed(nid) => write!(f, "inode {nid} is compressed; build the image without compression"),
            Error::Chunked(nid) => write!(f, "inode {nid} is chunk-based; build the image without chunks"),
            Error::Corrupt { nid, what } => write!(f, "the image is corrupt at inode {nid}: {what}"),
            Error::NotFound => write!(f, "no such file or directory"),
            Error::NotADirectory => write!(f, "not a directory"),
            Error::NotASymlink => write!(f, "not a symbolic link"),
            Error::NameTooLong => write!(f, "name too long"),
            Error::TooManyLinks => write!(f, "too many levels of symbolic links"),
        }
    }
}

impl core::error::Error for Error {}
