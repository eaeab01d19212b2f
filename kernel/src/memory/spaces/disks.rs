// SPDX-License-Identifier: MIT OR Apache-2.0
//! The disks of a cell: those that it can name, and the one that backs memory from an import.

use crate::memory::block::{Block, DiskId};
use pando_abi::limits::MAX_DISKS;
use pando_abi::{BlockAddress, DiskIndex, Refusal};

/// A disk that is attached to a cell.
#[derive(Clone, Copy, Debug)]
struct AttachedDisk {
    disk: DiskId,
    blocks: u64,
}

/// The disks of a cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Disks {
    /// In the order of the cell's indices.
    attached: Vec<AttachedDisk>,
    /// The disk that backs memory from an import. The cell cannot name it.
    pub(super) backing: Option<DiskId>,
}

impl Disks {
    /// Attaches a disk with `blocks` blocks.
    ///
    /// # Errors
    /// The cell has too many.
    pub(super) fn attach(&mut self, disk: DiskId, blocks: u64) -> Result<DiskIndex, Refusal> {
        let index = self.attached.len() as u32;
        if index >= MAX_DISKS {
            return Err(Refusal::TooMany);
        }
        self.attached.push(AttachedDisk { disk, blocks: blocks.min(u32::MAX.into()) });
        Ok(DiskIndex(index))
    }

    /// The attached disks, each with its number of blocks.
    pub(super) fn attached(&self) -> impl Iterator<Item = (DiskId, u64)> {
        self.attached.iter().map(|attached| (attached.disk, attached.blocks))
    }

    /// Whether a disk is attached, or backs memory from an import.
    pub(super) fn contains(&self, disk: DiskId) -> bool {
        self.backing == Some(disk) || self.attached().any(|(attached, _)| attached == disk)
    }

    /// Finds `count` blocks of an attached disk.
    ///
    /// # Errors
    /// There is no such disk, or it has too few blocks.
    pub(super) fn blocks(&self, first: BlockAddress, count: u64) -> Result<Block, Refusal> {
        let attached = self.attached.get(first.disk.0 as usize).ok_or(Refusal::NoSuchDisk)?;
        let end = u64::from(first.block.0) + count;
        if end > attached.blocks { Err(Refusal::NoSuchBlock) } else { Ok(Block { disk: attached.disk, number: first.block }) }
    }
}
