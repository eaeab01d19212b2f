// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader of EROFS images that lie in memory: the cell's root.
//!
//! The image is untrusted. The crate `erofs` decodes each structure into a checked value; [`Image`], [`Inode`], [`Directory`] and [`Data`]
//! add the position in the image. Every offset is compared with the image's length, and every walk is bounded by it. So no
//! content can cause a panic or an endless loop; it is refused with an [`Error`] that names the place.
//!
//! It supports images as `mkfs.erofs` writes them without compression: blocks of 4 KiB, compact and extended inodes. Data lies in whole
//! blocks ("flat plain"), or has its tail beside the inode ("flat inline"). Compressed and chunk-based files are listed but cannot be
//! read. The superblock's checksum is left to `fsck.erofs`: it protects against accidents, and bounds are checked at each use anyway.
//! Nothing is copied or allocated: results borrow from the image.
//!
//! The format: the crate `erofs`, and the kernel's `Documentation/filesystems/erofs.rst`.

mod directory;
mod error;
mod identity;
mod inode;
mod path;
#[cfg(test)]
mod tests;
mod xattr;

pub use directory::{Directory, Entries, ListedName, Position};
pub use error::Error;
pub use inode::{Data, Inode};
pub use pando_erofs::{BLOCK_SIZE, FileType, HostIdentity, Nid, Timestamp as Time, Xattr};
pub use path::LastLink;
pub use xattr::Xattrs;

use pando_erofs::{IdentityTable, SuperBlock};

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
    /// The offset of the shared extended attributes in the image, in bytes.
    shared_xattrs: u64,
    /// The time of every compact inode, which has no field for its own.
    built: Time,
    /// The table that says which files of the host the inodes are.
    identities: Option<IdentityTable>,
}

impl<'a> Image<'a> {
    /// Reads the superblock of the image at the start of `bytes`; ignores bytes behind the image.
    ///
    /// # Errors
    /// [`Error::NotErofs`], [`Error::Truncated`] if blocks are missing, an "unsupported" error for features that this reader does not
    /// know, [`Error::Corrupt`] if the root is not a directory.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let superblock = SuperBlock::decode(bytes).ok_or(Error::NotErofs)?;
        if !superblock.has_supported_blocks() {
            return Err(Error::BlockSize { bits: superblock.blkszbits });
        }
        let unknown = superblock.feature_incompat & !HARMLESS_FEATURES;
        if unknown != 0 {
            return Err(Error::Features { unknown });
        }
        let size = superblock.size();
        let blocks = slice(bytes, 0, size).ok_or(Error::Truncated { expected: size, actual: bytes.len() as u64 })?;
        let image = Image {
            bytes: blocks,
            inodes: superblock.inodes(),
            root: superblock.root_nid,
            shared_xattrs: u64::from(superblock.xattr_blkaddr) * BLOCK_SIZE,
            built: Time { seconds: superblock.epoch, nanoseconds: superblock.fixed_nsec },
            identities: IdentityTable::decode(&superblock.volume_name),
        };
        match image.inode(image.root)?.kind {
            FileType::Directory => Ok(image),
            _ => Err(Error::Corrupt { nid: image.root, what: "the root is not a directory" }),
        }
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

    /// The image from `offset` on; nothing, if that lies outside.
    fn tail(&self, offset: u64) -> &'a [u8] {
        usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or_default()
    }
}

fn slice(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let end = offset.checked_add(length)?;
    bytes.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
}
