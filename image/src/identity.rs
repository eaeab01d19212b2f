// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's `st_dev`, `st_ino`, `st_ctime` and `st_nlink` of an image's files: a table that only Pando's libOS reads.
//!
//! EROFS has no room for them. The table lies behind the rest of the metadata; the superblock's volume name gives its position.
//! A record's index is half of its inode's number, because an inode takes at least two units of 32 bytes. The first record has
//! the volume's own device. As in Linux, two different files never have the same device and number. A file with names outside
//! the image may be in another image too, so its record has no device. Numbers from 2^47 on are reserved for files that cells make.

use rustix::fs::Stat;

use crate::{
    format::{BLOCK_SIZE, SUPERBLOCK_OFFSET, put},
    tables::ChangeTime,
};

/// Bytes of a record: device, inode number, seconds and nanoseconds of the change time, names.
pub(crate) const SIZE: usize = 32;
/// The prefix of a volume name that gives the table's position.
const LABEL: &[u8; 8] = b"pando-id";
/// Where the volume name lies in the first block.
pub(crate) const LABEL_OFFSET: usize = SUPERBLOCK_OFFSET + 64;
/// Inode numbers from here on are not shown.
const INODE_END: u64 = 1 << 47;

/// The identity of a host file, and its state for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) changed: ChangeTime,
    pub(crate) links: u32,
}

impl HostIdentity {
    /// The identity from a file's status. `None`: its number is not shown.
    pub(crate) fn of(stat: &Stat) -> Option<Self> {
        let changed = ChangeTime { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 };
        let links = u32::try_from(stat.st_nlink).unwrap_or(u32::MAX);
        (stat.st_ino < INODE_END).then_some(HostIdentity { device: stat.st_dev, inode: stat.st_ino, changed, links })
    }

    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        put(&mut bytes, 0, self.device.to_le_bytes());
        put(&mut bytes, 8, self.inode.to_le_bytes());
        put(&mut bytes, 16, self.changed.seconds.to_le_bytes());
        put(&mut bytes, 24, self.changed.nanoseconds.to_le_bytes());
        put(&mut bytes, 28, self.links.to_le_bytes());
        bytes
    }
}

/// The position of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPlace {
    pub(crate) first_block: u32,
    pub(crate) records: u32,
}

impl DataPlace {
    /// The number of blocks of the table.
    pub(crate) fn blocks(self) -> u64 {
        (u64::from(self.records) * SIZE as u64).div_ceil(BLOCK_SIZE)
    }

    /// Writes it into the first block.
    pub(crate) fn write(self, block: &mut [u8]) {
        put(block, LABEL_OFFSET, *LABEL);
        put(block, LABEL_OFFSET + 8, self.first_block.to_le_bytes());
        put(block, LABEL_OFFSET + 12, self.records.to_le_bytes());
    }

    /// Reads it from a volume name.
    pub(crate) fn read(label: &[u8; 16]) -> Option<Self> {
        let (first, records) = label.strip_prefix(LABEL)?.split_first_chunk()?;
        Some(DataPlace { first_block: u32::from_le_bytes(*first), records: u32::from_le_bytes(records.try_into().ok()?) })
    }
}
