// SPDX-License-Identifier: MIT OR Apache-2.0
//! The books of the [registry](super::registry): which block lies in which frame, and which frames nobody else holds.

use super::account::AccountId;
use super::block::{Block, DiskId};
use pando_machine::FrameId;
use std::collections::{HashMap, VecDeque};

/// Whether a block is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is in this frame.
    Here(FrameId),
    /// It was tried just now, and cannot be read.
    Unreadable,
    /// It is not.
    Absent,
}

/// A frame of the registry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) block: Block,
    /// It was mapped since it came into the queue.
    pub(super) used: bool,
    /// The queue names it.
    pub(super) queued: bool,
}

/// The registry's books; the frames are in [`Frames`](super::frames::Frames).
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) account: AccountId,
    pub(super) places: HashMap<Block, FrameId>,
    pub(super) slots: HashMap<FrameId, Slot>,
    /// Frames that were idle when they came in; those that are mapped now are skipped.
    pub(super) queue: VecDeque<FrameId>,
    /// How many only the registry holds.
    pub(super) idle: u64,
    /// How many frames hold blocks of each disk, or are being filled with them.
    pub(super) frames_of: HashMap<DiskId, u64>,
    /// The block that could not be read, until whoever wanted it has been told.
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

    /// So many more frames are for blocks of a disk.
    pub(super) fn count(&mut self, disk: DiskId, frames: u64) {
        *self.frames_of.entry(disk).or_default() += frames;
    }

    /// A frame is no more for a block of a disk.
    pub(super) fn uncount(&mut self, disk: DiskId) {
        let frames = self.frames_of.get_mut(&disk).expect("it was counted");
        *frames -= 1;
        if *frames == 0 {
            self.frames_of.remove(&disk);
        }
    }

    /// Somebody maps an idle frame.
    pub(super) fn wake(&mut self) {
        self.idle -= 1;
    }

    /// Nobody but the registry holds a frame any more.
    pub(super) fn rest(&mut self, frame: FrameId) {
        self.idle += 1;
        let slot = self.slots.get_mut(&frame).expect("the registry pays for its own frames only");
        if !std::mem::replace(&mut slot.queued, true) {
            self.queue.push_back(frame);
        }
    }
}
