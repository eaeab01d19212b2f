// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of blocks from disks into frames of the registry. The reader works without any lock, between begin and finish.

use crate::memory::block::Block;
use crate::memory::frames::{Frames, Usage};
use pando_abi::BlockNumber;
use pando_machine::FrameId;
use std::ops::Range;

/// Frames that reading blocks leaves free for the tables that map them; otherwise making those would reclaim the blocks again.
const RESERVE: u64 = 8;

/// A block that must be read, with its readahead: blocks that are mapped beside it and are not in memory either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// The block itself.
    pub block: Block,
    /// Number of blocks to read after it.
    pub after: u32,
    /// Number of blocks to read before it.
    pub before: u32,
}

/// Blocks that are being read into frames without other users.
#[derive(Debug)]
#[must_use = "the frames are to be registered or freed"]
pub struct BlockRead {
    /// The requested block.
    requested: Block,
    /// The first block that is read.
    first: Block,
    /// A frame for each block.
    frames: Vec<FrameId>,
}

impl BlockRead {
    /// The requested block.
    #[must_use]
    pub fn requested(&self) -> Block {
        self.requested
    }

    /// The first and the last number of the blocks to read.
    #[must_use]
    pub fn ends(&self) -> (u32, u32) {
        (self.first.number.0, self.first.number.0 + (self.frames.len() as u32 - 1))
    }

    /// The blocks to read, and their frames, in order.
    pub fn targets(&self) -> impl Iterator<Item = (Block, FrameId)> {
        self.frames.iter().zip(0..).map(|(frame, count)| (self.first.offset(count), *frame))
    }
}

impl Frames {
    /// Whether there is room for one more block.
    pub(super) fn has_room_for_block(&self) -> bool {
        self.registry_room().0 > 0 && self.available().0 > RESERVE
    }

    /// Whether there is room for more blocks without any that are in memory being given up.
    pub(crate) fn has_room_for_blocks(&self, count: u64) -> bool {
        let Usage { quota, used, .. } = self.registry();
        used.0 + count <= quota.0 && count + RESERVE <= self.free().0
    }

    /// Takes frames to read blocks into: for the requested one, and for as many around it as there is room for. `None`: there is no
    /// room at all.
    pub fn begin_reading(&mut self, requested: BlockRequest) -> Option<BlockRead> {
        self.forget_unreadable();
        let BlockRequest { block, mut after, mut before } = requested;
        let most = u64::from(before) + 1 + u64::from(after);
        let Usage { quota, used, .. } = self.registry();
        self.reclaim((used.0 + most).saturating_sub(quota.0).max((most + RESERVE).saturating_sub(self.free().0)));
        let most = most.min(self.free().0.saturating_sub(RESERVE));
        let frames = self.allocate_for_blocks(block.disk, most);
        // Blocks after the requested one are worth more than those before it.
        let beside = (frames.len() as u32).checked_sub(1)?;
        after = after.min(beside);
        before = before.min(beside - after);
        let first = Block { number: BlockNumber(block.number.0 - before), ..block };
        Some(BlockRead { requested: block, first, frames })
    }

    /// Registers the blocks that were read and are not registered yet, and frees the other frames. If the requested one was not
    /// read, it is marked as unreadable.
    pub fn finish_reading(&mut self, reading: BlockRead, read: Range<u32>) {
        if !read.contains(&reading.requested.number.0) {
            self.mark_unreadable(reading.requested);
        }
        for (block, frame) in reading.targets() {
            if read.contains(&block.number.0) {
                self.register(block, frame);
            } else {
                self.free_for_block(block.disk, frame);
            }
        }
    }
}
