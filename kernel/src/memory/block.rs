// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of disks, as table entries name them.
//!
//! The kernel treats a disk as unchanging: a disk and a block number identify a block's content while it is cached. Blocks that were
//! read are kept in the registry (`frames/registry.rs`) and mapped from there, shared, so none is ever written in place.

use pando_abi::BlockNumber;

/// Kernel-wide identifier of a disk. Cells name their disks by an index of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskId(u16);

impl DiskId {
    /// Number of disks that entries can distinguish.
    pub const LIMIT: usize = 1 << 11;

    /// The disk of this index. `None`: the index is too large for an entry.
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

/// A block of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The disk.
    pub disk: DiskId,
    /// The block's number on the disk.
    pub number: BlockNumber,
}

impl Block {
    /// The block `count` blocks later.
    #[must_use]
    pub const fn offset(self, count: u64) -> Block {
        Block { number: self.number.further(count), ..self }
    }
}
