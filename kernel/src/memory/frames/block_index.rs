// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of the [registry](super::registry): the frame of each block, and the frames that only the registry holds.

use super::account::AccountId;
use crate::memory::block::{Block, DiskId};
use pando_machine::FrameId;
use std::collections::{HashMap, VecDeque};

/// Whether a block is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) enum Residency {
    /// It is in this frame.
    Here(FrameId),
    /// Reading it has just failed.
    Unreadable,
    /// It is not in memory.
    Absent,
}

/// A frame of the registry.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) struct Slot {
    pub(in crate::memory) block: Block,
    /// It was mapped since it entered the queue.
    pub(in crate::memory) used: bool,
    /// It is in the queue.
    pub(in crate::memory) queued: bool,
}

/// The registry's index; the frames are in [`Frames`](super::frame_table::Frames).
#[derive(Debug)]
pub(in crate::memory) struct Registry {
    pub(in crate::memory) account: AccountId,
    pub(in crate::memory) places: HashMap<Block, FrameId>,
    pub(in crate::memory) slots: HashMap<FrameId, Slot>,
    /// Frames that were idle when they entered; those that are mapped now are skipped.
    pub(in crate::memory) queue: VecDeque<FrameId>,
    /// Number of frames that only the registry holds.
    pub(in crate::memory) idle: u64,
    /// Number of frames that hold blocks of each disk, or are being filled with them.
    pub(in crate::memory) frames_of: HashMap<DiskId, u64>,
    /// The block that could not be read, until the reader has retried.
    pub(in crate::memory) unreadable: Option<Block>,
}

impl Registry {
    pub(in crate::memory) fn new(account: AccountId) -> Registry {
        Registry {
            account,
            places: HashMap::new(),
            slots: HashMap::new(),
            queue: VecDeque::new(),
            idle: 0,
            frames_of: HashMap::new(),
            unreadable: None,
        }
    }

    /// Counts further frames for blocks of a disk.
    pub(in crate::memory) fn count(&mut self, disk: DiskId, frames: u64) {
        *self.frames_of.entry(disk).or_default() += frames;
    }

    /// Uncounts a frame of a disk.
    pub(in crate::memory) fn uncount(&mut self, disk: DiskId) {
        let frames = self.frames_of.get_mut(&disk).expect("it was counted");
        *frames -= 1;
        if *frames == 0 {
            self.frames_of.remove(&disk);
        }
    }

    /// Counts an idle frame as mapped.
    pub(in crate::memory) fn wake(&mut self) {
        self.idle -= 1;
    }

    /// Counts a frame as idle, and queues it.
    pub(in crate::memory) fn rest(&mut self, frame: FrameId) {
        self.idle += 1;
        let slot = self.slots.get_mut(&frame).expect("the registry pays for its own frames only");
        if !std::mem::replace(&mut slot.queued, true) {
            self.queue.push_back(frame);
        }
    }
}
