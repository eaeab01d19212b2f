// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks: the sources of blocks.

use pando_abi::BlockNumber;

/// Blocks cannot be read: the host failed, or their source has changed. The disk's own implementation reports the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a block of a disk cannot be read")]
pub struct DiskError;

/// A source of 4 KiB blocks. It never changes: a block's content is cached, and shown to every cell that maps it. Another version
/// is another disk.
///
/// Called from vCPU threads, without any lock of the kernel. A slow disk delays the cells that wait for its blocks, and the vCPU
/// that reads them.
pub trait Disk: Send + Sync {
    /// Number of blocks; never changes. Blocks beyond the range of a block number are unusable.
    fn blocks(&self) -> u64;

    /// How many blocks from `first` on should be read together. The run does not extend into another source, which may be slow or
    /// lost. At least one.
    fn contiguous_blocks(&self, first: BlockNumber) -> u64 {
        self.blocks().saturating_sub(first.0.into()).max(1)
    }

    /// Reads whole blocks from `first` on; they lie within the disk.
    ///
    /// # Errors
    /// Not all of them can be read; the buffer's content is then unspecified.
    fn read(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError>;

    /// Reads blocks that may never be needed: as [`Disk::read`], but it reports no error to anybody else.
    ///
    /// # Errors
    /// The same.
    fn prefetch(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.read(first, buffer)
    }

    /// Releases caches of the host: the kernel will not read the disk soon.
    fn release_idle(&self) {}
}
