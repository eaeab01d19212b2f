// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registry: which blocks of disks are in memory, and where.
//!
//! It holds one reference to each of its frames and pays for them, from an account of its own. So a frame that is mapped from it is
//! always shared: a write makes a copy, by the same path as any other. Frames that only the registry holds are *idle*. When memory
//! or the account runs short, they are given up, the longest idle first. A frame that was mapped since it entered the queue gets a
//! second chance. A mapped frame is never given up; the kernel takes it out of mappings first ([`crate::memory::spaces::eviction`]).

use super::account::Usage;
use super::block_index::{Residency, Slot};
use super::frame_table::Frames;
use crate::memory::block::{Block, BlockRequest, DiskId};
use pando_machine::{FrameId, PageCount};
use std::ops::Range;

/// Frames that reading blocks leaves free for the tables that map them; otherwise making those would give the blocks up again.
const RESERVE: u64 = 8;

/// Blocks that are being read, without any lock, into frames without other users.
#[derive(Debug)]
#[must_use = "the frames are to be registered or freed"]
pub struct BlockRead {
    /// The requested block.
    wanted: Block,
    /// The first block that is read.
    first: Block,
    /// A frame for each block.
    frames: Vec<FrameId>,
}

impl BlockRead {
    /// The requested block.
    #[must_use]
    pub fn wanted(&self) -> Block {
        self.wanted
    }

    /// The first and the last number of the blocks to read.
    #[must_use]
    pub fn ends(&self) -> (u32, u32) {
        (self.first.number.0, self.first.number.0 + (self.frames.len() as u32 - 1))
    }

    /// The blocks to read, and their frames, in order.
    pub fn targets(&self) -> impl Iterator<Item = (Block, FrameId)> {
        self.frames.iter().zip(0..).map(|(frame, count)| (self.first.further(count), *frame))
    }
}

impl Frames {
    /// Memory use and quota of the registry.
    #[must_use]
    pub fn registry(&self) -> Usage {
        self.usage(self.registry.account)
    }

    /// Number of frames that are free, or would be if the registry gave up its idle frames.
    #[must_use]
    pub fn available(&self) -> PageCount {
        self.free() + PageCount(self.registry.idle)
    }

    /// Whether a block is in memory, and where.
    pub(in crate::memory) fn residency(&self, block: Block) -> Residency {
        match self.registry.places.get(&block) {
            Some(frame) => Residency::Here(*frame),
            None if self.registry.unreadable == Some(block) => Residency::Unreadable,
            None => Residency::Absent,
        }
    }

    /// The block in a frame, if the frame is the registry's.
    pub(in crate::memory) fn block_in(&self, frame: FrameId) -> Option<Block> {
        if self.is_registered(frame) { self.registry.slots.get(&frame).map(|slot| slot.block) } else { None }
    }

    /// Whether any block is mapped.
    #[must_use]
    pub fn blocks_are_mapped(&self) -> bool {
        self.registry.slots.len() as u64 > self.registry.idle
    }

    /// The frame of a block that is in memory, with one more holder.
    pub(in crate::memory) fn hold_block(&mut self, block: Block) -> Option<FrameId> {
        let frame = *self.registry.places.get(&block)?;
        self.registry.slots.get_mut(&frame)?.used = true;
        self.hold(frame);
        Some(frame)
    }

    /// Whether one more block can be brought in.
    pub(in crate::memory) fn has_room(&self) -> bool {
        let Usage { quota, used, .. } = self.registry();
        used.0 - self.registry.idle < quota.0 && self.available().0 > RESERVE
    }

    /// Gives up to `count` idle frames back.
    pub(in crate::memory) fn give_up(&mut self, count: u64) {
        let mut left = count.min(self.registry.idle);
        while left > 0 {
            let Some(frame) = self.registry.queue.pop_front() else { return };
            let idle = self.is_last_holder(frame);
            let slot = self.registry.slots.get_mut(&frame).expect("frames in the queue are the registry's");
            if idle && std::mem::take(&mut slot.used) {
                self.registry.queue.push_back(frame);
                continue;
            }
            slot.queued = false;
            if idle {
                let block = slot.block;
                self.registry.places.remove(&block);
                self.registry.slots.remove(&frame);
                self.registry.uncount(block.disk);
                self.registry.idle -= 1;
                self.release(frame);
                left -= 1;
            }
        }
    }

    /// Gives all idle frames back.
    pub fn give_up_all(&mut self) {
        self.give_up(u64::MAX);
    }

    /// Takes frames to read blocks into: for the requested one, and for as many around it as there is room for. `None`: there is no
    /// room at all.
    pub fn begin_reading(&mut self, wanted: BlockRequest) -> Option<BlockRead> {
        self.registry.unreadable = None;
        let account = self.registry.account;
        let BlockRequest { block, mut after, mut before } = wanted;
        let most = u64::from(before) + 1 + u64::from(after);
        let Usage { quota, used, .. } = self.registry();
        self.give_up((used.0 + most).saturating_sub(quota.0).max((most + RESERVE).saturating_sub(self.free().0)));
        let most = most.min(self.free().0.saturating_sub(RESERVE));
        let frames: Vec<FrameId> = (0..most).map_while(|_| self.take(account, false).ok()).collect();
        // Blocks after the requested one are worth more than those before it.
        let beside = (frames.len() as u32).checked_sub(1)?;
        after = after.min(beside);
        before = before.min(beside - after);
        let first = Block { number: pando_abi::BlockNumber(block.number.0 - before), ..block };
        self.registry.count(block.disk, frames.len() as u64);
        Some(BlockRead { wanted: block, first, frames })
    }

    /// Registers the blocks that were read and are not registered yet, and frees the other frames. If the requested one was not
    /// read, it is marked as unreadable.
    pub fn finish_reading(&mut self, reading: BlockRead, read: Range<u32>) {
        if !read.contains(&reading.wanted.number.0) {
            self.registry.unreadable = Some(reading.wanted);
        }
        for (block, frame) in reading.targets() {
            if read.contains(&block.number.0) && !self.registry.places.contains_key(&block) {
                self.registry.places.insert(block, frame);
                self.registry.slots.insert(frame, Slot { block, used: false, queued: false });
                self.registry.rest(frame);
            } else {
                self.registry.uncount(block.disk);
                self.release(frame);
            }
        }
    }

    /// Whether a block of a disk is in memory, or is being read.
    pub(crate) fn knows_disk(&self, disk: DiskId) -> bool {
        self.registry.frames_of.contains_key(&disk) || self.registry.unreadable.is_some_and(|block| block.disk == disk)
    }

    /// Forgets the unreadable block, after the reader has retried.
    pub fn forget_unreadable(&mut self) {
        self.registry.unreadable = None;
    }
}
