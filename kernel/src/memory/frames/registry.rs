// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registry: the blocks of disks that are in memory, one copy of each, for all cells. Linux calls this the page cache.
//!
//! It holds one reference to each of its frames and pays for them, from an account of its own. So a frame that is mapped from it is
//! always shared: a write makes a copy, by the same path as any other. Frames that only the registry holds are *idle*. When memory
//! or the account runs short, they are reclaimed, the longest idle first ([`Frames::ensure`]). A frame that was mapped since it entered
//! the queue gets a second chance. A mapped frame is never reclaimed; the kernel evicts it from mappings first.

use super::account::Usage;
use super::frame_table::Frames;
use crate::limits::RECLAIM_BLOCKS;
use crate::memory::block::{Block, DiskId};
use pando_machine::{FrameId, PageCount};
use std::collections::HashSet;

impl Frames {
    /// Memory use and quota of the registry.
    #[must_use]
    pub fn registry(&self) -> Usage {
        self.usage(self.registry.account)
    }

    /// Number of frames that are free, or would be if the registry gave up its idle frames.
    #[must_use]
    pub fn available(&self) -> PageCount {
        let free = self.allocator.free_with_withheld().saturating_add(self.registry.idle());
        PageCount(free.saturating_sub(self.allocator.withheld()))
    }

    /// Number of frames that are in use, without blocks that no cell maps.
    pub(crate) fn used_by_cells(&self) -> PageCount {
        PageCount(self.used().0.saturating_sub(self.registry.idle()))
    }

    /// Number of frames that the registry could take if it reclaimed its idle ones.
    pub(in crate::memory) fn registry_room(&self) -> PageCount {
        let Usage { quota, used, .. } = self.registry();
        PageCount(quota.0.saturating_sub(used.0 - self.registry.idle()))
    }

    /// The frame of a block that is in memory.
    pub(in crate::memory) fn frame_of(&self, block: Block) -> Option<FrameId> {
        self.registry.frame_of(block)
    }

    /// The block in a frame, if the frame is the registry's.
    pub(in crate::memory) fn block_in(&self, frame: FrameId) -> Option<Block> {
        if self.is_registered(frame) { self.registry.block_in(frame) } else { None }
    }

    /// Whether any block is mapped.
    #[must_use]
    pub fn has_mapped_blocks(&self) -> bool {
        self.registry.has_mapped_frames()
    }

    /// The frame of a block that is in memory, with one more holder.
    pub(in crate::memory) fn hold_block(&mut self, block: Block) -> Option<FrameId> {
        let frame = self.registry.frame_of(block)?;
        self.registry.mark_used(frame);
        self.hold(frame);
        Some(frame)
    }

    /// Takes up to `count` frames for blocks of a disk, on the registry's account.
    pub(in crate::memory) fn allocate_for_blocks(&mut self, disk: DiskId, count: u64) -> Vec<FrameId> {
        let account = self.registry.account;
        let frames: Vec<FrameId> = (0..count).map_while(|_| self.allocate(account, false).ok()).collect();
        if !frames.is_empty() {
            self.registry.count(disk, frames.len() as u64);
        }
        frames
    }

    /// Registers a block that was read into a frame from [`Frames::allocate_for_blocks`], or frees the frame if the block was registered
    /// meanwhile.
    pub(in crate::memory) fn register(&mut self, block: Block, frame: FrameId) {
        if self.registry.frame_of(block).is_some() {
            return self.free_for_block(block.disk, frame);
        }
        self.registry.insert(block, frame);
    }

    /// Frees a frame from [`Frames::allocate_for_blocks`] whose block was not read.
    pub(in crate::memory) fn free_for_block(&mut self, disk: DiskId, frame: FrameId) {
        self.registry.uncount(disk);
        self.release(frame);
    }

    /// Whether reading a block has just failed.
    pub(in crate::memory) fn is_unreadable(&self, block: Block) -> bool {
        self.registry.unreadable == Some(block)
    }

    /// Records that a block cannot be read, until [`Frames::forget_unreadable`].
    pub(in crate::memory) fn mark_unreadable(&mut self, block: Block) {
        self.registry.unreadable = Some(block);
    }

    /// Forgets the unreadable block, after the reader has retried.
    pub fn forget_unreadable(&mut self) {
        self.registry.unreadable = None;
    }

    /// Whether a block of a disk is in memory, is being read, or is unreadable.
    pub(crate) fn has_blocks_of(&self, disk: DiskId) -> bool {
        self.registry.has_frames_of(disk) || self.registry.unreadable.is_some_and(|block| block.disk == disk)
    }

    /// Records the blocks that are accessed from now on: entries of blocks come without the accessed bit.
    pub(crate) fn begin_access_tracking(&mut self) {
        self.registry.accessed = Some(HashSet::new());
    }

    /// Whether accesses are tracked.
    pub(in crate::memory) fn tracks_accesses(&self) -> bool {
        self.registry.accessed.is_some()
    }

    /// Records the block in a frame as accessed, if the frame is the registry's. `true`: it is.
    pub(in crate::memory) fn note_accessed_frame(&mut self, frame: FrameId) -> bool {
        if self.registry.accessed.is_none() {
            return false;
        }
        let block = self.block_in(frame);
        self.registry.accessed.iter_mut().for_each(|accessed| accessed.extend(block));
        block.is_some()
    }

    /// Ends the tracking, and returns the accessed blocks.
    pub(in crate::memory) fn end_access_tracking(&mut self) -> HashSet<Block> {
        self.registry.accessed.take().unwrap_or_default()
    }

    /// Whether one of `count` blocks from `first` on is in memory; of many blocks, whether one near them is.
    pub(crate) fn has_some_blocks(&self, first: Block, count: u64) -> bool {
        self.registry.has_any(first, count)
    }

    /// Frees some of the idle frames; `true` if that were all.
    pub(crate) fn decommit_step(&mut self) -> bool {
        self.reclaim(RECLAIM_BLOCKS);
        self.registry.idle() == 0
    }

    /// Frees all idle frames.
    pub fn reclaim_all(&mut self) {
        self.reclaim(u64::MAX);
    }
}
