// SPDX-License-Identifier: MIT OR Apache-2.0
//! The superblock and the inodes of images that are written here. The crate `erofs` has the format.

use pando_erofs::{
    BLOCK_SIZE, DataLayout, DiskInode, FEATURE_COMPAT_MTIME, FEATURE_COMPAT_SB_CHKSUM, FileType, ISLOT_SIZE, InodeVersion, NULL_ADDR, Nid,
    SUPER_OFFSET, SuperBlock,
};

use crate::{
    Attributes,
    block::{BLOCK, BlockNumber},
};

/// The size of the inodes that are written here.
pub(crate) const INODE_SIZE: usize = InodeVersion::Extended.size();

/// The location of an inode's data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DataLocation {
    /// No data.
    Absent,
    /// No data, but the number of a device.
    Device(u32),
    /// In whole blocks, starting with this one.
    Blocks(BlockNumber),
    /// In whole blocks, if there are any, and the rest directly after the inode.
    Inline(Option<BlockNumber>),
}

/// An inode of the extended form without extended attributes; `serial` is a number for 32-bit stat only.
pub(crate) fn inode(
    file_type: FileType,
    attributes: Attributes,
    links: u32,
    size: u64,
    data: DataLocation,
    serial: u32,
) -> [u8; INODE_SIZE] {
    inode_with_xattrs(file_type, attributes, links, size, data, serial, 0)
}

/// The same with extended attributes that take this many units (`xattr_icount`).
pub(crate) fn inode_with_xattrs(
    file_type: FileType,
    attributes: Attributes,
    links: u32,
    size: u64,
    data: DataLocation,
    serial: u32,
    xattr_icount: u16,
) -> [u8; INODE_SIZE] {
    let (layout, startblk_or_rdev) = match data {
        DataLocation::Absent => (DataLayout::FlatPlain, NULL_ADDR),
        DataLocation::Device(number) => (DataLayout::FlatPlain, number),
        DataLocation::Blocks(first) => (DataLayout::FlatPlain, first.number()),
        DataLocation::Inline(first) => (DataLayout::FlatInline, first.map_or(NULL_ADDR, BlockNumber::number)),
    };
    let mut bytes = [0; INODE_SIZE];
    let inode = DiskInode {
        version: InodeVersion::Extended,
        layout,
        xattr_icount,
        file_type,
        permissions: attributes.permissions,
        nlink: links,
        size,
        startblk_or_rdev,
        ino: serial,
        uid: attributes.uid,
        gid: attributes.gid,
        mtime: Some(attributes.modified),
    };
    inode.encode_into(&mut bytes);
    bytes
}

/// Writes the superblock into the image's first block. The root's inode lies at the start of the second.
pub(crate) fn write_superblock(block: &mut [u8], inos: u64, blocks: BlockNumber, volume_name: [u8; 16]) {
    let mut superblock = SuperBlock {
        checksum: 0,
        feature_compat: FEATURE_COMPAT_SB_CHKSUM | FEATURE_COMPAT_MTIME,
        blkszbits: BLOCK_SIZE.trailing_zeros() as u8,
        root_nid: Nid::new(BLOCK_SIZE / ISLOT_SIZE),
        inos,
        epoch: 0,
        fixed_nsec: 0,
        blocks: blocks.number(),
        meta_blkaddr: 0,
        xattr_blkaddr: 0,
        volume_name,
        feature_incompat: 0,
        dirblkbits: 0,
    };
    write_checksummed(block, &mut superblock);
}

/// Writes a superblock into the image's first block, with its checksum if it has one.
pub(crate) fn write_checksummed(block: &mut [u8], superblock: &mut SuperBlock) {
    if superblock.feature_compat & FEATURE_COMPAT_SB_CHKSUM != 0 {
        superblock.checksum = 0;
        superblock.encode_into(block);
        // EROFS leaves out the final inversion of CRC-32C, and counts from the superblock to the end of its block.
        superblock.checksum = !crc32c::crc32c(&block[SUPER_OFFSET..BLOCK]);
    }
    superblock.encode_into(block);
}
