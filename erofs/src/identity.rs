// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity table: the host's `st_dev`, `st_ino`, `st_ctime` and `st_nlink` of an image's files. Only Pando's libOS reads it.
//!
//! EROFS has no room for them. The superblock's volume name gives the table's position. A record's index is half of its inode's number,
//! because an inode takes at least two units of 32 bytes. The first record has the volume's own device. As in Linux, two different
//! files never have the same device and number. A file with names outside the image may be in another image too, so its record has no
//! device.

use crate::{
    BLOCK_SIZE, Nid, Timestamp,
    fields::{Fields, put},
};

/// The start of a volume name that gives the table's position.
const LABEL: &[u8; 8] = b"pando-id";

/// The identity of a file on the host, and its state for comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostIdentity {
    /// Its device (`st_dev`); `None`: the file may be in another image, too.
    pub device: Option<u64>,
    /// Its number there (`st_ino`), not 0.
    pub inode: u64,
    /// When its content, names or attributes last changed (`st_ctime`).
    pub changed: Timestamp,
    /// The number of its names (`st_nlink`).
    pub links: u32,
}

impl HostIdentity {
    /// The size of a record in bytes.
    pub const SIZE: usize = 32;

    /// Decodes a record; `None` if the bytes are too few.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let fields = Fields(bytes);
        Some(HostIdentity {
            device: Some(fields.u64(0)?).filter(|device| *device != 0),
            inode: fields.u64(8)?,
            changed: Timestamp { seconds: fields.u64(16)?.cast_signed(), nanoseconds: fields.u32(24)? },
            links: fields.u32(28)?,
        })
    }

    /// The record.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        put(&mut bytes, 0, self.device.unwrap_or(0).to_le_bytes());
        put(&mut bytes, 8, self.inode.to_le_bytes());
        put(&mut bytes, 16, self.changed.seconds.to_le_bytes());
        put(&mut bytes, 24, self.changed.nanoseconds.to_le_bytes());
        put(&mut bytes, 28, self.links.to_le_bytes());
        bytes
    }
}

/// The position of the table in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityTable {
    /// Its first block.
    pub first_block: u32,
    /// The number of records.
    pub records: u32,
}

impl IdentityTable {
    /// Decodes the position from the superblock's volume name; `None` if the image has no table.
    pub fn decode(volume_name: &[u8; 16]) -> Option<Self> {
        let fields = Fields(volume_name.strip_prefix(LABEL)?);
        Some(IdentityTable { first_block: fields.u32(0)?, records: fields.u32(4)? })
    }

    /// The volume name that gives the position.
    pub fn encode(self) -> [u8; 16] {
        let mut name = [0; 16];
        put(&mut name, 0, *LABEL);
        put(&mut name, 8, self.first_block.to_le_bytes());
        put(&mut name, 12, self.records.to_le_bytes());
        name
    }

    /// The number of blocks of the table.
    pub fn blocks(self) -> u64 {
        (u64::from(self.records) * HostIdentity::SIZE as u64).div_ceil(BLOCK_SIZE)
    }

    /// The index of an inode's record.
    pub fn index(nid: Nid) -> u64 {
        nid.number() / 2
    }

    /// The offset of the record with this index in the image, in bytes; `None` if there is none.
    pub fn offset(self, index: u64) -> Option<u64> {
        (index < self.records.into()).then(|| u64::from(self.first_block) * BLOCK_SIZE + index * HostIdentity::SIZE as u64)
    }
}
