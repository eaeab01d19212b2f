// SPDX-License-Identifier: MIT OR Apache-2.0
//! The superblock: `struct erofs_super_block`.

use crate::{
    Nid,
    fields::{Fields, put},
};

/// Bytes in a block. Only this size is supported, so that file data can be mapped page by page.
pub const BLOCK_SIZE: u64 = 4096;
/// The offset of the superblock in an image, in bytes.
pub const SUPER_OFFSET: usize = 1024;
/// The number at the start of a superblock.
pub const SUPER_MAGIC_V1: u32 = 0xE0F5_E1E2;
/// The feature "the superblock has a checksum", a bit of [`SuperBlock::feature_compat`].
pub const FEATURE_COMPAT_SB_CHKSUM: u32 = 1;
/// The feature "inodes record modification times", a bit of [`SuperBlock::feature_compat`].
pub const FEATURE_COMPAT_MTIME: u32 = 2;

/// The fields of a superblock, as far as images without compression need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperBlock {
    /// CRC-32C, without the final inversion, of the bytes from the superblock to the end of its block, with 0 here. Not checked.
    pub checksum: u32,
    /// Features that readers may ignore.
    pub feature_compat: u32,
    /// The binary logarithm of the block size.
    pub blkszbits: u8,
    /// The root directory.
    pub root_nid: Nid,
    /// The number of inodes.
    pub inos: u64,
    /// The time of compact inodes, in seconds from 1970 on.
    pub epoch: i64,
    /// The nanoseconds of `epoch`.
    pub fixed_nsec: u32,
    /// The number of blocks of the image.
    pub blocks: u32,
    /// The block where the inodes start.
    pub meta_blkaddr: u32,
    /// The block where the shared extended attributes start.
    pub xattr_blkaddr: u32,
    /// The name of the file system.
    pub volume_name: [u8; 16],
    /// Features without which a reader misunderstands the image.
    pub feature_incompat: u32,
    /// The binary logarithm of a directory block's size in blocks.
    pub dirblkbits: u8,
}

impl SuperBlock {
    /// The size in bytes.
    pub const SIZE: usize = 128;

    /// Decodes the superblock of an image that begins with these bytes; `None` if they have none.
    pub fn decode(image: &[u8]) -> Option<Self> {
        let fields = Fields(image.get(SUPER_OFFSET..)?.get(..Self::SIZE)?);
        if fields.u32(0)? != SUPER_MAGIC_V1 {
            return None;
        }
        Some(SuperBlock {
            checksum: fields.u32(4)?,
            feature_compat: fields.u32(8)?,
            blkszbits: fields.u8(12)?,
            root_nid: Nid::new(fields.u16(14)?.into()),
            inos: fields.u64(16)?,
            epoch: fields.u64(24)?.cast_signed(),
            fixed_nsec: fields.u32(32)?,
            blocks: fields.u32(36)?,
            meta_blkaddr: fields.u32(40)?,
            xattr_blkaddr: fields.u32(44)?,
            volume_name: fields.array(64)?,
            feature_incompat: fields.u32(80)?,
            dirblkbits: fields.u8(90)?,
        })
    }

    /// Writes the magic and the fields into the first bytes of an image.
    ///
    /// # Panics
    /// If the bytes end before the superblock does.
    pub fn encode_into(&self, image: &mut [u8]) {
        let bytes = &mut image[SUPER_OFFSET..][..Self::SIZE];
        put(bytes, 0, SUPER_MAGIC_V1.to_le_bytes());
        put(bytes, 4, self.checksum.to_le_bytes());
        put(bytes, 8, self.feature_compat.to_le_bytes());
        put(bytes, 12, [self.blkszbits]);
        // Larger numbers need a feature that is not supported.
        put(bytes, 14, (self.root_nid.number() as u16).to_le_bytes());
        put(bytes, 16, self.inos.to_le_bytes());
        put(bytes, 24, self.epoch.to_le_bytes());
        put(bytes, 32, self.fixed_nsec.to_le_bytes());
        put(bytes, 36, self.blocks.to_le_bytes());
        put(bytes, 40, self.meta_blkaddr.to_le_bytes());
        put(bytes, 44, self.xattr_blkaddr.to_le_bytes());
        put(bytes, 64, self.volume_name);
        put(bytes, 80, self.feature_incompat.to_le_bytes());
        put(bytes, 90, [self.dirblkbits]);
    }

    /// Whether blocks and directory blocks have the size [`BLOCK_SIZE`].
    pub fn has_supported_blocks(&self) -> bool {
        1u64.checked_shl(self.blkszbits.into()) == Some(BLOCK_SIZE) && self.dirblkbits == 0
    }

    /// The image's size in bytes, if its blocks have the size [`BLOCK_SIZE`].
    pub fn size(&self) -> u64 {
        u64::from(self.blocks) * BLOCK_SIZE
    }

    /// The offset of the inodes in the image, in bytes.
    pub fn inodes(&self) -> u64 {
        u64::from(self.meta_blkaddr) * BLOCK_SIZE
    }
}
