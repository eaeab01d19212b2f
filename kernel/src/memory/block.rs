// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of disks, as entries name them.
//!
//! A disk never changes, so a disk and a number say what a block holds, for ever and for everybody. Blocks that were read are kept in the
//! [registry](super::registry) and mapped from there, shared; so nobody ever writes one in place.

use pando_abi::BlockNumber;

/// Name of a disk in this kernel. Cells name theirs by an index of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskId(u16);

impl DiskId {
    /// How many disks entries can tell apart.
    pub const LIMIT: usize = 1 << 11;

    /// The disk of this index. `None`: entries cannot name so many.
    #[must_use]
    pub fn new(index: usize) -> Option<DiskId> {
        u16::try_from(index).ok().filter(|_| index < DiskId::LIMIT).map(DiskId)
    }

    /// The index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A block of a disk, for whoever it may concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Which disk.
    pub disk: DiskId,
    /// Which block of it.
    pub number: BlockNumber,
}

impl Block {
    /// The block `count` further on.
    #[must_use]
    pub const fn further(self, count: u64) -> Block {
        Block { number: self.number.further(count), ..self }
    }
}

/// A block that somebody needs and that must be read first, with those around it that are worth reading along: mapped beside it, and not in memory either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The block itself.
    pub block: Block,
    /// How many follow it.
    pub after: u32,
    /// How many come before it.
    pub before: u32,
}
