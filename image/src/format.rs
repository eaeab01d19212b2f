// SPDX-License-Identifier: MIT OR Apache-2.0
//! The on-disk structures, encoded: `fs/erofs/erofs_fs.h` of the kernel, as far as these images need it.

use crc::{CRC_32_ISCSI, Crc};

use crate::{Attributes, Error};

/// Bytes in a block.
pub const BLOCK_SIZE: u64 = 4096;
pub(crate) const BLOCK: usize = BLOCK_SIZE as usize;

const BLOCK_BITS: u8 = BLOCK_SIZE.trailing_zeros() as u8;
pub(crate) const SUPERBLOCK_OFFSET: usize = 1024;
pub(crate) const MAGIC: u32 = 0xE0F5_E1E2;
/// The superblock has a checksum.
const HAS_CHECKSUM: u32 = 1;
/// Inode times are modification times.
const MODIFICATION_TIMES: u32 = 2;

pub(crate) const INODE_SIZE: usize = 64;
/// The unit of an inode's number: its distance from the image's start in slots of this many bytes.
pub(crate) const SLOT_SIZE: usize = 32;
/// An inode of the extended form.
pub(crate) const EXTENDED: u16 = 1;
/// The bits of the format field that give the data layout, and their values.
pub(crate) const LAYOUT_SHIFT: u16 = 1;
/// All data in whole blocks.
pub(crate) const PLAIN: u16 = 0;
/// The last part of the data directly after the inode.
pub(crate) const INLINE: u16 = 2;
/// The first block of what has no blocks.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

pub(crate) const ENTRY_SIZE: usize = 12;

/// An inode's type; the values are those in directory entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileType {
    Regular = 1,
    Directory = 2,
    CharacterDevice = 3,
    BlockDevice = 4,
    Fifo = 5,
    Socket = 6,
    Symlink = 7,
}

impl FileType {
    fn mode(self) -> u16 {
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

    /// From the upper four bits of a mode.
    pub(crate) fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
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
}

/// An inode's number: its position in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nid(pub(crate) u64);

impl Nid {
    /// The inode at this offset, a multiple of [`SLOT_SIZE`].
    pub(crate) fn at(offset: u64) -> Self {
        Nid(offset / SLOT_SIZE as u64)
    }
}

/// A block of the image, by number. Never [`NO_BLOCK`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockNumber(u32);

impl BlockNumber {
    /// The block with this number.
    pub(crate) fn new(number: u64) -> Result<Self, Error> {
        match u32::try_from(number) {
            Ok(number) if number != NO_BLOCK => Ok(BlockNumber(number)),
            _ => Err(Error::TooLarge { blocks: number }),
        }
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// The location of an inode's data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DataPlace {
    /// No data. Or it is a device, with this number.
    Nowhere(u32),
    /// In whole blocks, starting with this one.
    Blocks(BlockNumber),
    /// In whole blocks, if there are any, and the rest directly after the inode.
    Inline(Option<BlockNumber>),
}

/// An inode's fields.
pub(crate) struct Inode {
    pub(crate) kind: FileType,
    pub(crate) attributes: Attributes,
    pub(crate) links: u32,
    pub(crate) size: u64,
    pub(crate) place: DataPlace,
}

impl Inode {
    /// The inode's bytes; `serial` is a number for 32-bit stat only.
    pub(crate) fn encode(&self, serial: u32) -> [u8; INODE_SIZE] {
        let Attributes { permissions, uid, gid, modified } = self.attributes;
        let (layout, place) = match self.place {
            DataPlace::Nowhere(0) => (PLAIN, NO_BLOCK),
            DataPlace::Nowhere(device) => (PLAIN, device),
            DataPlace::Blocks(first) => (PLAIN, first.0),
            DataPlace::Inline(first) => (INLINE, first.map_or(NO_BLOCK, |first| first.0)),
        };
        let mut bytes = [0; INODE_SIZE];
        put(&mut bytes, 0, (EXTENDED | layout << LAYOUT_SHIFT).to_le_bytes());
        put(&mut bytes, 4, (self.kind.mode() | permissions & 0o7777).to_le_bytes());
        put(&mut bytes, 8, self.size.to_le_bytes());
        put(&mut bytes, 16, place.to_le_bytes());
        put(&mut bytes, 20, serial.to_le_bytes());
        put(&mut bytes, 24, uid.to_le_bytes());
        put(&mut bytes, 28, gid.to_le_bytes());
        put(&mut bytes, 32, modified.seconds.to_le_bytes());
        put(&mut bytes, 40, modified.nanoseconds.to_le_bytes());
        put(&mut bytes, 44, self.links.to_le_bytes());
        bytes
    }
}

/// One name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirent<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) nid: Nid,
    pub(crate) kind: u8,
}

/// How many of these names, from the first on, fit into one directory block.
fn fitting<'a>(names: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut used = 0;
    names
        .take_while(|name| {
            used += ENTRY_SIZE + name.len();
            used <= BLOCK
        })
        .count()
}

/// The bytes that [`encode_directory`] will need for these names.
pub(crate) fn directory_size<'a>(mut names: impl Iterator<Item = &'a [u8]> + Clone) -> usize {
    let mut size: usize = 0;
    loop {
        let count = fitting(names.clone());
        if count == 0 {
            return size;
        }
        let used: usize = names.by_ref().take(count).map(|name| ENTRY_SIZE + name.len()).sum();
        size = size.next_multiple_of(BLOCK) + used;
    }
}

/// Encodes a directory: as many entries to a block as fit, the last block as long as it needs to be.
///
/// Entries must be sorted by name, as bytes, with `.` and `..` among them.
pub(crate) fn encode_directory(entries: &[Dirent<'_>]) -> Vec<u8> {
    let mut blocks = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let (block, behind) = rest.split_at(fitting(rest.iter().map(|entry| entry.name)));
        blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
        let mut name_offset = block.len() * ENTRY_SIZE;
        for entry in block {
            blocks.extend(entry.nid.0.to_le_bytes());
            // It is less than a block, so it fits.
            blocks.extend((name_offset as u16).to_le_bytes());
            blocks.extend([entry.kind, 0]);
            name_offset += entry.name.len();
        }
        block.iter().for_each(|entry| blocks.extend(entry.name));
        rest = behind;
    }
    blocks
}

/// Writes the superblock into the image's first block. The root's inode lies at the start of the second.
pub(crate) fn write_superblock(block: &mut [u8], inodes: u64, blocks: BlockNumber) {
    let superblock = &mut block[SUPERBLOCK_OFFSET..BLOCK];
    put(superblock, 0, MAGIC.to_le_bytes());
    put(superblock, 8, (HAS_CHECKSUM | MODIFICATION_TIMES).to_le_bytes());
    put(superblock, 12, [BLOCK_BITS]);
    put(superblock, 14, ((BLOCK / SLOT_SIZE) as u16).to_le_bytes());
    put(superblock, 16, inodes.to_le_bytes());
    resize(block, blocks);
}

/// Changes the number of blocks that a superblock counts, and its checksum if it has one.
pub(crate) fn resize(block: &mut [u8], blocks: BlockNumber) {
    let superblock = &mut block[SUPERBLOCK_OFFSET..BLOCK];
    put(superblock, 36, blocks.0.to_le_bytes());
    if superblock[8] & HAS_CHECKSUM as u8 != 0 {
        put(superblock, 4, [0; 4]);
        // EROFS leaves out the final inversion of CRC-32C, and counts from the superblock to the end of its block.
        let checksum = !Crc::<u32>::new(&CRC_32_ISCSI).checksum(superblock);
        put(superblock, 4, checksum.to_le_bytes());
    }
}

pub(crate) fn put<const N: usize>(bytes: &mut [u8], offset: usize, field: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&field);
}
