// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks: where blocks come from.

use pando_abi::BlockNumber;

/// Blocks that cannot be read: the host failed, or what they came from is not what it was. Whoever serves the disk says more, to whom it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a block of a disk cannot be read")]
pub struct DiskError;

/// Something that reads blocks of 4 KiB. It never changes: what a block holds is kept, and shown to every cell that maps it. Another version is another disk.
///
/// Called from vCPU threads, without any lock of the kernel; a slow disk delays whoever waits for its blocks, and the vCPU that reads them.
pub trait Disk: Send + Sync {
    /// How many blocks there are; never changes. Only as many as a block's number can count are of use.
    fn blocks(&self) -> u64;

    /// How many blocks from `first` on belong together, so that reading one it is wise to read them all: not those of something else, which may be slow or lost.
    /// At least one.
    fn run(&self, first: BlockNumber) -> u64 {
        self.blocks().saturating_sub(first.0.into()).max(1)
    }

    /// Reads whole blocks from `first` on; they lie within the disk.
    ///
    /// # Errors
    /// Not all of them can be read; the buffer then holds anything.
    fn read(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError>;

    /// Gives back what it keeps of the host only to be faster: nobody reads it for now.
    fn rest(&self) {}
}
