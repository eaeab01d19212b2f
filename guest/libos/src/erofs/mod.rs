// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader of EROFS images that lie in memory: the cell's root.
//!
//! The image is untrusted. A superblock, an inode or a directory block is first decoded into a checked value ([`Image`], [`Inode`],
//! [`Directory`], [`Data`]) and only then used. Every offset is compared with the image's length, and every walk is bounded by it. So no
//! content can cause a panic or an endless loop; it is refused with an [`Error`] that names the place.
//!
//! It supports images as `mkfs.erofs` writes them without compression: blocks of 4 KiB, compact and extended inodes. Data lies in whole
//! blocks ("flat plain"), or has its tail beside the inode ("flat inline"). Compressed and chunk-based files are listed but cannot be
//! read. The superblock's checksum is left to `fsck.erofs`: it protects against accidents, and bounds are checked at each use anyway.
//! Nothing is copied or allocated: results borrow from the image.
//!
//! The format: the kernel's `Documentation/filesystems/erofs.rst` and `fs/erofs/erofs_fs.h`.

mod attributes;
mod directory;
mod error;
mod fields;
mod identity;
mod inode;
mod path;
#[cfg(test)]
mod tests;

pub use attributes::{Attribute, Attributes};
pub use directory::{Directory, Dirent, Entries, Position};
pub use error::Error;
pub use identity::Identity;
pub use inode::{Data, FileType, Inode, Nid, Time};
pub use path::LastLink;

use fields::Fields;

/// Bytes in a block. Only this size is supported, so that file data can be mapped page by page.
pub const BLOCK_SIZE: u64 = 4096;

const SUPERBLOCK_OFFSET: u64 = 1024;
const SUPERBLOCK_SIZE: u64 = 128;
const MAGIC: u32 = 0xE0F5_E1E2;
/// Features that change only how compressed or chunk-based files and long attribute names are stored. The other bits move inodes or widen
/// block numbers, so an image that has them cannot be walked.
const HARMLESS_FEATURES: u32 = 0x7f;

/// An image with a valid superblock, all of its blocks, and a root that is a directory.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Exactly the blocks that the superblock counts.
    bytes: &'a [u8],
    /// The offset of nid 0 in the image, in bytes.
    inodes: u64,
    root: Nid,
    /// The block in which the shared attributes start.
    shared_attributes: u32,
    /// The time of every compact inode, which has no field for its own.
    built: Time,
    /// Where the table lies that says which files of the host the inodes are, and how many records it has.
    identities: Option<(u64, u64)>,
}

impl<'a> Image<'a> {
    /// Reads the superblock of the image at the start of `bytes`; ignores bytes behind the image.
    ///
    /// # Errors
    /// [`Error::NotErofs`], [`Error::Truncated`] if blocks are missing, an "unsupported" error for features that this reader does not
    /// know, [`Error::Corrupt`] if the root is not a directory.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let superblock = slice(bytes, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE).map(Fields::new).ok_or(Error::NotErofs)?;
        Self::decode(bytes, superblock).unwrap_or(Err(Error::NotErofs))
    }

    /// Decodes the superblock; `None` if a field lies outside it.
    fn decode(bytes: &'a [u8], superblock: Fields<'a>) -> Option<Result<Self, Error>> {
        if superblock.u32(0)? != MAGIC {
            return Some(Err(Error::NotErofs));
        }
        let (block_bits, directory_block_bits) = (superblock.u8(12)?, superblock.u8(90)?);
        if 1u64.checked_shl(block_bits.into()) != Some(BLOCK_SIZE) || directory_block_bits != 0 {
            return Some(Err(Error::BlockSize { bits: block_bits }));
        }
        let unknown = superblock.u32(80)? & !HARMLESS_FEATURES;
        if unknown != 0 {
            return Some(Err(Error::Features { unknown }));
        }
        let size = u64::from(superblock.u32(36)?) * BLOCK_SIZE;
        let Some(blocks) = slice(bytes, 0, size) else {
            return Some(Err(Error::Truncated { expected: size, actual: bytes.len() as u64 }));
        };
        let image = Image {
            bytes: blocks,
            inodes: u64::from(superblock.u32(40)?) * BLOCK_SIZE,
            root: Nid::new(superblock.u16(14)?.into()),
            shared_attributes: superblock.u32(44)?,
            built: Time { seconds: superblock.u64(24)?.cast_signed(), nanoseconds: superblock.u32(32)? },
            identities: identity::find(superblock),
        };
        Some(image.inode(image.root).and_then(|root| match root.kind {
            FileType::Directory => Ok(image),
            _ => Err(Error::Corrupt { nid: image.root, what: "the root is not a directory" }),
        }))
    }

    /// The root directory.
    pub fn root(&self) -> Nid {
        self.root
    }

    /// The image's size in bytes, a multiple of [`BLOCK_SIZE`].
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// `length` bytes of the image from `offset`, if they lie inside it.
    fn slice(&self, offset: u64, length: u64) -> Option<&'a [u8]> {
        slice(self.bytes, offset, length)
    }
}

fn slice(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let end = offset.checked_add(length)?;
    bytes.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
}
