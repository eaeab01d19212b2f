// SPDX-License-Identifier: MIT OR Apache-2.0
//! The on-disk structures, encoded: `fs/erofs/erofs_fs.h` of the kernel, as far as these images need it.

use crc::{CRC_32_ISCSI, Crc};

use crate::{Attributes, Error};

/// Bytes in a block.
pub const BLOCK_SIZE: u64 = 4096;
pub(crate) const BLOCK: usize = BLOCK_SIZE as usize;

const BLOCK_BITS: u8 = BLOCK_SIZE.trailing_zeros() as u8;
const SUPERBLOCK_OFFSET: usize = 1024;
const MAGIC: u32 = 0xE0F5_E1E2;
/// The superblock has a checksum (bit 0), times are those of modification (bit 1).
const COMPATIBLE_FEATURES: u32 = 0b11;

pub(crate) const INODE_SIZE: usize = 64;
/// Inodes are named by their distance from the image's start in units of this many bytes.
const SLOT_SIZE: usize = 32;
/// An extended inode (bit 0) whose data is in whole blocks (bits 1 to 3 are 0).
const INODE_FORMAT: u16 = 1;
/// The first block of what has no blocks.
const NO_BLOCK: u32 = u32::MAX;

const ENTRY_SIZE: usize = 12;

/// What an inode is; the values are those in directory entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileType {
    Regular = 1,
    Directory = 2,
    Symlink = 7,
}

impl FileType {
    fn mode(self) -> u16 {
        match self {
            FileType::Regular => 0o100_000,
            FileType::Directory => 0o040_000,
            FileType::Symlink => 0o120_000,
        }
    }
}

/// The place of an inode among all inodes, which follow the superblock's block in one array.
#[derive(Clone, Copy)]
pub(crate) struct InodeIndex(pub(crate) usize);

impl InodeIndex {
    pub(crate) fn offset(self) -> usize {
        BLOCK + self.0 * INODE_SIZE
    }

    /// The number by which directories name the inode.
    fn nid(self) -> u64 {
        (self.offset() / SLOT_SIZE) as u64
    }
}

/// A block of the image, by number. Never [`NO_BLOCK`].
#[derive(Clone, Copy)]
pub(crate) struct BlockNumber(u32);

impl BlockNumber {
    /// The block with this number.
    pub(crate) fn new(number: u64) -> Result<Self, Error> {
        match u32::try_from(number) {
            Ok(number) if number != NO_BLOCK => Ok(BlockNumber(number)),
            _ => Err(Error::TooLarge { blocks: number }),
        }
    }

    pub(crate) fn offset(self) -> u64 {
        u64::from(self.0) * BLOCK_SIZE
    }
}

/// Everything that an inode says.
pub(crate) struct Inode {
    pub(crate) kind: FileType,
    pub(crate) attributes: Attributes,
    pub(crate) links: u32,
    pub(crate) size: u64,
    /// Where the data begins, if there is any.
    pub(crate) first_block: Option<BlockNumber>,
}

impl Inode {
    pub(crate) fn encode(&self, index: InodeIndex) -> [u8; INODE_SIZE] {
        let Attributes { permissions, uid, gid, modified } = self.attributes;
        let mut bytes = [0; INODE_SIZE];
        put(&mut bytes, 0, INODE_FORMAT.to_le_bytes());
        put(&mut bytes, 4, (self.kind.mode() | permissions & 0o7777).to_le_bytes());
        put(&mut bytes, 8, self.size.to_le_bytes());
        put(&mut bytes, 16, self.first_block.map_or(NO_BLOCK, |block| block.0).to_le_bytes());
        // A number for 32-bit stat only; it need not be exact.
        put(&mut bytes, 20, (index.0 as u32).wrapping_add(1).to_le_bytes());
        put(&mut bytes, 24, uid.to_le_bytes());
        put(&mut bytes, 28, gid.to_le_bytes());
        put(&mut bytes, 32, modified.seconds.to_le_bytes());
        put(&mut bytes, 40, modified.nanoseconds.to_le_bytes());
        put(&mut bytes, 44, self.links.to_le_bytes());
        bytes
    }
}

/// One name in a directory.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) inode: InodeIndex,
    pub(crate) kind: FileType,
}

/// Encodes a directory: as many entries to a block as fit, the last block as long as it needs to be.
///
/// Entries must be sorted by name, as bytes, with `.` and `..` among them.
pub(crate) fn encode_directory(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut blocks = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let mut used = 0;
        let fitting = rest.iter().take_while(|entry| {
            used += ENTRY_SIZE + entry.name.len();
            used <= BLOCK
        });
        let (block, behind) = rest.split_at(fitting.count());
        blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
        let mut name_offset = block.len() * ENTRY_SIZE;
        for entry in block {
            blocks.extend(entry.inode.nid().to_le_bytes());
            // Less than a block, so it fits.
            blocks.extend((name_offset as u16).to_le_bytes());
            blocks.extend([entry.kind as u8, 0]);
            name_offset += entry.name.len();
        }
        block.iter().for_each(|entry| blocks.extend(entry.name));
        rest = behind;
    }
    blocks
}

/// Writes the superblock into the image's first block. The first inode is the root's.
pub(crate) fn write_superblock(block: &mut [u8; BLOCK], inodes: u64, blocks: BlockNumber) {
    let superblock = &mut block[SUPERBLOCK_OFFSET..];
    put(superblock, 0, MAGIC.to_le_bytes());
    put(superblock, 8, COMPATIBLE_FEATURES.to_le_bytes());
    put(superblock, 12, [BLOCK_BITS]);
    put(superblock, 14, (InodeIndex(0).nid() as u16).to_le_bytes());
    put(superblock, 16, inodes.to_le_bytes());
    put(superblock, 36, blocks.0.to_le_bytes());
    // EROFS leaves out the final inversion of CRC-32C, and counts from the superblock to the end of its block.
    let checksum = !Crc::<u32>::new(&CRC_32_ISCSI).checksum(superblock);
    put(superblock, 4, checksum.to_le_bytes());
}

fn put<const N: usize>(bytes: &mut [u8], offset: usize, field: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&field);
}
