// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registry: which blocks of disks are in memory, and where.
//!
//! It holds one reference to each of its frames and pays for them, from an account of its own. So a frame that is mapped from it is always shared: a write
//! makes a copy, by the same path as any other. Frames that only the registry holds are *idle* and are given up when memory or the account runs short, the
//! one that has been idle longest first, unless it was mapped since it came into the queue (second chance). A frame that anybody maps is
//! never given up; the kernel takes it out of mappings first ([`super::sweep`]).

use super::account::Usage;
use super::block::{Block, DiskId, Wanted};
use super::books::{Presence, Slot};
use super::frames::Frames;
use pando_machine::{FrameId, PageCount};
use std::ops::Range;

/// Frames that reading blocks leaves free: for the tables to what was read, or making those would give it up again.
const RESERVE: u64 = 8;

/// Blocks that are being read, without any lock, into frames that nobody else knows.
#[derive(Debug)]
#[must_use = "the frames are to be registered or freed"]
pub struct Reading {
    /// The block that somebody waits for.
    wanted: Block,
    /// The first block that is read.
    first: Block,
    /// A frame for each.
    frames: Vec<FrameId>,
}

impl Reading {
    /// The block that somebody waits for.
    #[must_use]
    pub fn wanted(&self) -> Block {
        self.wanted
    }

    /// The first and the last number of the blocks that are to be read.
    #[must_use]
    pub fn ends(&self) -> (u32, u32) {
        (self.first.number.0, self.first.number.0 + (self.frames.len() as u32 - 1))
    }

    /// The blocks that are to be read, and where they go, in order.
    pub fn targets(&self) -> impl Iterator<Item = (Block, FrameId)> {
        self.frames.iter().zip(0..).map(|(frame, count)| (self.first.further(count), *frame))
    }
}

impl Frames {
    /// What the registry has and may have.
    #[must_use]
    pub fn registry(&self) -> Usage {
        self.usage(self.registry.account)
    }

    /// How many frames are free, or would be if the registry gave up what nobody maps.
    #[must_use]
    pub fn available(&self) -> PageCount {
        self.free() + PageCount(self.registry.idle)
    }

    /// Where a block is.
    pub(super) fn presence(&self, block: Block) -> Presence {
        match self.registry.places.get(&block) {
            Some(frame) => Presence::Here(*frame),
            None if self.registry.unreadable == Some(block) => Presence::Unreadable,
            None => Presence::Absent,
        }
    }

    /// The block that a frame holds, if it is the registry's.
    pub(super) fn block_in(&self, frame: FrameId) -> Option<Block> {
        if self.is_registered(frame) { self.registry.slots.get(&frame).map(|slot| slot.block) } else { None }
    }

    /// Whether anybody maps blocks.
    #[must_use]
    pub fn blocks_are_mapped(&self) -> bool {
        self.registry.slots.len() as u64 > self.registry.idle
    }

    /// The frame of a block that is in memory, with one more holder.
    pub(super) fn hold_block(&mut self, block: Block) -> Option<FrameId> {
        let frame = *self.registry.places.get(&block)?;
        self.registry.slots.get_mut(&frame)?.used = true;
        self.hold(frame);
        Some(frame)
    }

    /// Whether one more block can be brought in.
    pub(super) fn has_room(&self) -> bool {
        let Usage { quota, used, .. } = self.registry();
        used.0 - self.registry.idle < quota.0 && self.available().0 > RESERVE
    }

    /// Gives up to `count` idle frames back.
    pub(super) fn give_up(&mut self, count: u64) {
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

    /// Gives every idle frame back.
    pub fn give_up_all(&mut self) {
        self.give_up(u64::MAX);
    }

    /// Takes frames to read blocks into: the wanted one, and as many around it as there is room for. `None`: there is none even for that.
    pub fn begin_reading(&mut self, wanted: Wanted) -> Option<Reading> {
        self.registry.unreadable = None;
        let account = self.registry.account;
        let Wanted { block, mut after, mut before } = wanted;
        let most = u64::from(before) + 1 + u64::from(after);
        let Usage { quota, used, .. } = self.registry();
        self.give_up((used.0 + most).saturating_sub(quota.0).max((most + RESERVE).saturating_sub(self.free().0)));
        let most = most.min(self.free().0.saturating_sub(RESERVE));
        let frames: Vec<FrameId> = (0..most).map_while(|_| self.take(account, false).ok()).collect();
        // What follows is worth more than what came before.
        let beside = (frames.len() as u32).checked_sub(1)?;
        after = after.min(beside);
        before = before.min(beside - after);
        let first = Block { number: pando_abi::BlockNumber(block.number.0 - before), ..block };
        self.registry.count(block.disk, frames.len() as u64);
        Some(Reading { wanted: block, first, frames })
    }

    /// Registers those blocks that were read and are not there yet, and frees the other frames. Is the wanted one not among them, it could not be read.
    pub fn finish_reading(&mut self, reading: Reading, read: Range<u32>) {
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

    /// Whether a block of a disk is in memory, or about to be.
    pub(crate) fn knows_disk(&self, disk: DiskId) -> bool {
        self.registry.frames_of.contains_key(&disk) || self.registry.unreadable.is_some_and(|block| block.disk == disk)
    }

    /// Forgets which block could not be read: whoever wanted it has tried again.
    pub fn forget_unreadable(&mut self) {
        self.registry.unreadable = None;
    }
}
