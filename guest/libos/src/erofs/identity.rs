// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's `st_dev`, `st_ino`, `st_ctime` and `st_nlink` of an image's files, if the image has them.
//!
//! They lie in a table of 32 bytes for each inode, at half of its number. The superblock's volume name gives the table's position;
//! the first record has the volume's own device.

use super::{BLOCK_SIZE, Image, Nid, Time, fields::Fields, slice};

/// Bytes of a record.
const SIZE: u64 = 32;
/// The offset of the volume name in the superblock.
const LABEL: u64 = 64;
/// The start of the volume name, if there is a table: `pando-id`.
const MAGIC: u64 = u64::from_le_bytes(*b"pando-id");

/// Which file of the host an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device as `st_dev` has it; `None`: the file may be in another image, too.
    pub device: Option<u64>,
    /// Its number there.
    pub number: u64,
    /// When anything about it last changed.
    pub changed: Time,
    /// How many names it has.
    pub links: u32,
}

/// Where the table lies: the offset in bytes, and how many records it has.
pub(super) fn find(superblock: Fields<'_>) -> Option<(u64, u64)> {
    let [magic, place] = [superblock.u64(LABEL as usize)?, superblock.u64(LABEL as usize + 8)?];
    (magic == MAGIC).then_some(((place & 0xffff_ffff) * BLOCK_SIZE, place >> 32))
}

impl Image<'_> {
    /// Which file of the host an inode is; `None`: the image does not say.
    #[must_use]
    pub fn identity(&self, nid: Nid) -> Option<Identity> {
        let record = self.record(nid.number() / 2).filter(|_| nid.number() > 1)?;
        let number = record.u64(8).filter(|number| *number != 0)?;
        Some(Identity {
            device: record.u64(0).filter(|device| *device != 0),
            number,
            changed: Time { seconds: record.u64(16)?.cast_signed(), nanoseconds: record.u32(24)? },
            links: record.u32(28)?,
        })
    }

    /// The device of what the image shows; `None`: it does not say.
    #[must_use]
    pub fn device(&self) -> Option<u64> {
        self.record(0)?.u64(0).filter(|device| *device != 0)
    }

    fn record(&self, index: u64) -> Option<Fields<'_>> {
        let (start, records) = self.identities?;
        let offset = start.checked_add(index.checked_mul(SIZE)?)?;
        if index < records { slice(self.bytes, offset, SIZE).map(Fields::new) } else { None }
    }
}
