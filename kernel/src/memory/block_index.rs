// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of the [registry](super::registry): the frame of each block, and the frames that only the registry holds.

use super::account::AccountId;
use super::block::{Block, DiskId};
use pando_machine::FrameId;
use std::collections::{HashMap, VecDeque};

/// Whether a block is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residency {
    /// It is in this frame.
    Here(FrameId),
    /// Reading it has just failed.
    Unreadable,
    /// It is not in memory.
    Absent,
}

/// A frame of the registry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) block: Block,
    /// It was mapped since it entered the queue.
    pub(super) used: bool,
    /// It is in the queue.
    pub(super) queued: bool,
}

/// The registry's index; the frames are in [`Frames`](super::frames::Frames).
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) account: AccountId,
    pub(super) places: HashMap<Block, FrameId>,
    pub(super) slots: HashMap<FrameId, Slot>,
    /// Frames that were idle when they entered; those that are mapped now are skipped.
    pub(super) queue: VecDeque<FrameId>,
    /// Number of frames that only the registry holds.
    pub(super) idle: u64,
    /// Number of frames that hold blocks of each disk, or are being filled with them.
    pub(super) frames_of: HashMap<DiskId, u64>,
    /// The block that could not be read, until the reader has retried.
    pub(super) unreadable: Option<Block>,
}

impl Registry {
    pub(super) fn new(account: AccountId) -> Registry {
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
    pub(super) fn count(&mut self, disk: DiskId, frames: u64) {
        *self.frames_of.entry(disk).or_default() += frames;
    }

    /// Uncounts a frame of a disk.
    pub(super) fn uncount(&mut self, disk: DiskId) {
        let frames = self.frames_of.get_mut(&disk).expect("it was counted");
        *frames -= 1;
        if *frames == 0 {
            self.frames_of.remove(&disk);
        }
    }

    /// Counts an idle frame as mapped.
    pub(super) fn wake(&mut self) {
        self.idle -= 1;
    }

    /// Counts a frame as idle, and queues it.
    pub(super) fn rest(&mut self, frame: FrameId) {
        self.idle += 1;
        let slot = self.slots.get_mut(&frame).expect("the registry pays for its own frames only");
        if !std::mem::replace(&mut slot.queued, true) {
            self.queue.push_back(frame);
        }
    }
}
