// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of the [registry](super::registry): the frame of each block, and the queue of frames that only the registry holds.

use super::account::AccountId;
use crate::memory::block::{Block, DiskId};
use pando_machine::FrameId;
use std::collections::{HashMap, HashSet, VecDeque};

/// A frame of the registry.
#[derive(Clone, Copy, Debug)]
struct RegistryFrame {
    block: Block,
    /// It was mapped since it entered the queue.
    is_used: bool,
    is_queued: bool,
}

/// The registry's index. The frames and their holders are in the [frame table](super::frame_table).
#[derive(Debug)]
pub(super) struct BlockIndex {
    /// The account that pays for the frames.
    pub(super) account: AccountId,
    by_block: HashMap<Block, FrameId>,
    by_frame: HashMap<FrameId, RegistryFrame>,
    /// Frames that were idle when they entered; those that are mapped now are skipped.
    queue: VecDeque<FrameId>,
    /// Number of frames that only the registry holds.
    idle: u64,
    /// Number of frames that hold blocks of each disk, or are being filled with them.
    frames_of_disk: HashMap<DiskId, u64>,
    /// Number of blocks in memory of each aligned group of 512 on a disk.
    groups: HashMap<(DiskId, u32), u32>,
    /// The block that could not be read, until the reader has retried.
    pub(super) unreadable: Option<Block>,
    /// The blocks that were accessed, while accesses are tracked.
    pub(super) accessed: Option<HashSet<Block>>,
}

/// Blocks of a group.
const GROUP: u32 = 512;
/// Groups whose blocks are looked up one by one.
const FEW_GROUPS: u32 = 2;

impl BlockIndex {
    /// An empty index, whose frames `account` pays for.
    pub(super) fn new(account: AccountId) -> BlockIndex {
        BlockIndex {
            account,
            by_block: HashMap::new(),
            by_frame: HashMap::new(),
            queue: VecDeque::new(),
            idle: 0,
            frames_of_disk: HashMap::new(),
            groups: HashMap::new(),
            unreadable: None,
            accessed: None,
        }
    }

    /// Number of frames that only the registry holds.
    pub(super) fn idle(&self) -> u64 {
        self.idle
    }

    /// Whether a frame is mapped anywhere.
    pub(super) fn has_mapped_frames(&self) -> bool {
        self.by_frame.len() as u64 > self.idle
    }

    /// Whether any frame holds a block of a disk, or is being filled with one.
    pub(super) fn has_frames_of(&self, disk: DiskId) -> bool {
        self.frames_of_disk.contains_key(&disk)
    }

    /// The frame of a block.
    pub(super) fn frame_of(&self, block: Block) -> Option<FrameId> {
        self.by_block.get(&block).copied()
    }

    /// The block in a frame.
    pub(super) fn block_in(&self, frame: FrameId) -> Option<Block> {
        self.by_frame.get(&frame).map(|slot| slot.block)
    }

    /// Whether one of `count` blocks from `first` on is in memory, or, of many blocks, one of their groups. O(groups).
    pub(super) fn has_any(&self, first: Block, count: u64) -> bool {
        let last = u64::from(first.number.0) + count.saturating_sub(1);
        let mut groups = first.number.0 / GROUP..=(last / u64::from(GROUP)) as u32;
        let is_near = groups.any(|group| self.groups.contains_key(&(first.disk, group)));
        is_near && (count > u64::from(FEW_GROUPS * GROUP) || (0..count).any(|offset| self.by_block.contains_key(&first.offset(offset))))
    }

    /// Adds a block in an idle frame that was counted before.
    pub(super) fn insert(&mut self, block: Block, frame: FrameId) {
        self.by_block.insert(block, frame);
        *self.groups.entry((block.disk, block.number.0 / GROUP)).or_default() += 1;
        self.by_frame.insert(frame, RegistryFrame { block, is_used: false, is_queued: false });
        self.mark_idle(frame);
    }

    /// Counts further frames for blocks of a disk.
    pub(super) fn count(&mut self, disk: DiskId, frames: u64) {
        *self.frames_of_disk.entry(disk).or_default() += frames;
    }

    /// Uncounts a frame of a disk.
    pub(super) fn uncount(&mut self, disk: DiskId) {
        let frames = self.frames_of_disk.get_mut(&disk).expect("it was counted");
        *frames -= 1;
        if *frames == 0 {
            self.frames_of_disk.remove(&disk);
        }
    }

    fn uncount_in_group(&mut self, block: Block) {
        let group = (block.disk, block.number.0 / GROUP);
        if let Some(count) = self.groups.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.groups.remove(&group);
            }
        }
    }

    /// Gives a frame its second chance when it next comes up for reclaim.
    pub(super) fn mark_used(&mut self, frame: FrameId) {
        if let Some(slot) = self.by_frame.get_mut(&frame) {
            slot.is_used = true;
        }
    }

    /// Counts an idle frame as mapped.
    pub(super) fn mark_mapped(&mut self) {
        self.idle -= 1;
    }

    /// Counts a frame as idle, and queues it.
    pub(super) fn mark_idle(&mut self, frame: FrameId) {
        self.idle += 1;
        let slot = self.by_frame.get_mut(&frame).expect("the registry pays for its own frames only");
        if !std::mem::replace(&mut slot.is_queued, true) {
            self.queue.push_back(frame);
        }
    }

    /// Removes the frame that has been idle longest, except those with a second chance. `None`: no frame is idle.
    pub(super) fn remove_idle(&mut self, is_idle: impl Fn(FrameId) -> bool) -> Option<FrameId> {
        loop {
            let frame = self.queue.pop_front()?;
            let slot = self.by_frame.get_mut(&frame).expect("frames in the queue are the registry's");
            if !is_idle(frame) {
                slot.is_queued = false;
            } else if std::mem::take(&mut slot.is_used) {
                self.queue.push_back(frame);
            } else {
                let block = slot.block;
                self.by_block.remove(&block);
                self.uncount_in_group(block);
                self.by_frame.remove(&frame);
                self.uncount(block.disk);
                self.idle -= 1;
                return Some(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BlockIndex;
    use crate::memory::block::{Block, DiskId};
    use crate::memory::frames::account::Accounts;
    use pando_abi::BlockNumber;
    use pando_machine::{FrameId, PageCount};

    #[test]
    fn a_used_frame_gets_a_second_chance_and_a_mapped_frame_stays() {
        let disk = DiskId::new(7).expect("a disk");
        let mut index = BlockIndex::new(Accounts::default().open(PageCount(3), None));
        index.count(disk, 3);
        let [used, mapped, idle] = [512, 513, 514].map(FrameId);
        for frame in [used, mapped, idle] {
            index.insert(Block { disk, number: BlockNumber(frame.0) }, frame);
        }
        index.mark_used(used);
        index.mark_mapped();
        assert_eq!(index.remove_idle(|frame| frame != mapped), Some(idle));
        assert_eq!(index.remove_idle(|frame| frame != mapped), Some(used), "it had its second chance");
        assert_eq!(index.remove_idle(|frame| frame != mapped), None);
        assert_eq!((index.idle(), index.has_mapped_frames()), (0, true));
        index.mark_idle(mapped);
        assert_eq!(index.remove_idle(|_| true), Some(mapped));
        assert!(!index.has_mapped_frames() && !index.has_frames_of(disk));
    }
}
