// SPDX-License-Identifier: MIT OR Apache-2.0
//! The spaces and segments of one cell: all the memory that it can name.

use super::disks::Disks;
use super::space::{MountSource, Space};
use crate::memory::block::{Block, DiskId};
use crate::memory::frames::{AccountId, Frames, Shortage};
use crate::memory::prefetch::{CopyClusters, PrefetchState, StartTrace, TrainingTrace, TrainingTraces};
use crate::memory::tree::Tree;
use pando_abi::layout::{SLOT_SIZE, SYSTEM_SLOT, USER_END, USER_START};
use pando_abi::limits::{MAX_MOUNTS, MAX_SEGMENTS, MAX_SPACES};
use pando_abi::{BlockAddress, DiskIndex, Refusal, SegmentIndex, SpaceIndex};
use pando_machine::Root;

/// A tree that several spaces of a cell mount.
#[derive(Debug, Default)]
pub(in crate::memory) struct Segment {
    pub(in crate::memory) tree: Tree,
    /// Number of mounts of it, in all spaces of the cell.
    pub(in crate::memory) mounts: u32,
}

/// All spaces and segments of a cell. Space 0 and the system segment 0 are there from the start.
///
/// A handle; dropping it without [`SpaceSet::release`] leaks its frames.
#[derive(Debug)]
pub struct SpaceSet {
    pub(super) account: AccountId,
    pub(in crate::memory) spaces: Vec<Option<Space>>,
    pub(in crate::memory) segments: Vec<Option<Segment>>,
    pub(super) disks: Disks,
    pub(in crate::memory) current: SpaceIndex,
    /// The training trace, while one is recorded.
    pub(super) training_trace: Option<Box<TrainingTrace>>,
    /// The start trace, while one is recorded.
    pub(super) start_trace: Option<Box<StartTrace>>,
    /// Whether that start is not over yet.
    pub(super) is_starting: bool,
    /// The training traces of its clones, if there are any.
    pub(crate) clone_traces: Option<Box<TrainingTraces>>,
    /// The prefetch state, as a clone.
    pub(crate) prefetch: PrefetchState,
    /// Where shared pages were written recently.
    pub(super) clusters: CopyClusters,
    /// Whether a parent has ever taken pages: it keeps their content, so no other cell can have this memory.
    pub(super) had_pages_taken: bool,
}

impl SpaceSet {
    /// A set with one space that holds only an empty system segment.
    #[must_use]
    pub fn new(frames: &mut Frames, account: AccountId) -> SpaceSet {
        let segments = vec![Some(Segment::default())];
        let mut set = SpaceSet {
            account,
            spaces: Vec::new(),
            segments,
            disks: Disks::default(),
            current: SpaceIndex(0),
            training_trace: None,
            start_trace: None,
            is_starting: false,
            clone_traces: None,
            prefetch: PrefetchState::default(),
            clusters: CopyClusters::default(),
            had_pages_taken: false,
        };
        set.create_space(frames).expect("the first space is within every limit");
        set
    }

    /// The account that pays.
    #[must_use]
    pub fn account(&self) -> AccountId {
        self.account
    }

    /// The running space.
    #[must_use]
    pub fn current(&self) -> SpaceIndex {
        self.current
    }

    /// All spaces.
    #[must_use]
    pub fn space_indices(&self) -> Vec<SpaceIndex> {
        (0..).zip(&self.spaces).filter(|(_, space)| space.is_some()).map(|(index, _)| SpaceIndex(index)).collect()
    }

    pub(super) fn space(&mut self, index: SpaceIndex) -> Result<&mut Space, Refusal> {
        self.spaces.get_mut(index.0 as usize).and_then(Option::as_mut).ok_or(Refusal::NoSuchSpace)
    }

    pub(super) fn segment(&mut self, index: SegmentIndex) -> Result<&mut Segment, Refusal> {
        self.segments.get_mut(index.0 as usize).and_then(Option::as_mut).ok_or(Refusal::NoSuchSegment)
    }

    /// Checks that the cell may have `more` mounts. O(spaces).
    pub(super) fn check_room(&self, more: usize) -> Result<(), Refusal> {
        let mounted: usize = self.spaces.iter().flatten().map(|space| space.mounts.len()).sum();
        if mounted + more > MAX_MOUNTS as usize { Err(Refusal::TooMany) } else { Ok(()) }
    }

    /// Creates a space with the system segment.
    ///
    /// # Errors
    /// The cell has too many.
    pub fn create_space(&mut self, frames: &mut Frames) -> Result<SpaceIndex, Refusal> {
        self.check_room(1)?;
        let mut space = Space::default();
        space.mount(frames, SYSTEM_SLOT, MountSource::Segment(SegmentIndex(0)));
        let index = insert_at_free_index(&mut self.spaces, space, MAX_SPACES)?;
        self.segment(SegmentIndex(0))?.mounts += 1;
        Ok(SpaceIndex(index))
    }

    /// Continues in another space.
    ///
    /// # Errors
    /// There is no such space.
    pub fn switch(&mut self, index: SpaceIndex) -> Result<(), Refusal> {
        self.space(index)?;
        self.current = index;
        Ok(())
    }

    /// Destroys a space that is not the running one.
    ///
    /// # Errors
    /// There is no such space, or it runs.
    pub fn destroy_space(&mut self, frames: &mut Frames, index: SpaceIndex) -> Result<(), Refusal> {
        self.space(index)?;
        if index == self.current {
            return Err(Refusal::Busy);
        }
        let space = self.spaces[index.0 as usize].take().ok_or(Refusal::NoSuchSpace)?;
        self.clusters.forget(index);
        self.release_space(frames, space);
        Ok(())
    }

    /// Releases the content of a space.
    fn release_space(&mut self, frames: &mut Frames, mut space: Space) {
        space.forget_root(frames);
        for mount in space.mounts {
            match mount.source {
                MountSource::Private(tree) => tree.release(frames),
                MountSource::Segment(index) => {
                    if let Ok(segment) = self.segment(index) {
                        segment.mounts -= 1;
                    }
                }
            }
        }
    }

    /// Creates an empty segment.
    ///
    /// # Errors
    /// The cell has too many.
    pub fn create_segment(&mut self) -> Result<SegmentIndex, Refusal> {
        insert_at_free_index(&mut self.segments, Segment::default(), MAX_SEGMENTS).map(SegmentIndex)
    }

    /// Mounts a segment at the start of a free slot.
    ///
    /// # Errors
    /// One of them does not exist, the address is not that of a slot, or the slot is taken.
    pub fn mount_segment(&mut self, frames: &mut Frames, segment: SegmentIndex, index: SpaceIndex, address: u64) -> Result<(), Refusal> {
        self.segment(segment)?;
        let space = self.space(index)?;
        let slot = (address / SLOT_SIZE) as usize;
        if !address.is_multiple_of(SLOT_SIZE) || !can_hold_segment(slot) {
            return Err(Refusal::BadAddress);
        }
        if space.at(slot).is_some() {
            return Err(Refusal::SlotTaken);
        }
        self.check_room(1)?;
        let space = self.space(index)?;
        space.mount(frames, slot, MountSource::Segment(segment));
        self.segment(segment)?.mounts += 1;
        Ok(())
    }

    /// Destroys a segment that is mounted nowhere.
    ///
    /// # Errors
    /// There is no such segment, or it is mounted.
    pub fn destroy_segment(&mut self, frames: &mut Frames, index: SegmentIndex) -> Result<(), Refusal> {
        if self.segment(index)?.mounts > 0 {
            return Err(Refusal::Busy);
        }
        let segment = self.segments[index.0 as usize].take().ok_or(Refusal::NoSuchSegment)?;
        segment.tree.release(frames);
        Ok(())
    }

    /// The tree in a slot of a space.
    pub(in crate::memory) fn tree(&mut self, space: SpaceIndex, slot: usize) -> Option<&mut Tree> {
        let SpaceSet { spaces, segments, .. } = self;
        match spaces.get_mut(space.0 as usize)?.as_mut()?.at(slot)? {
            MountSource::Private(tree) => Some(tree),
            MountSource::Segment(index) => Some(&mut segments.get_mut(index.0 as usize)?.as_mut()?.tree),
        }
    }

    /// All trees: those of segments, then those of spaces.
    pub(in crate::memory) fn trees_mut(&mut self) -> impl Iterator<Item = &mut Tree> {
        let mounts = self.spaces.iter_mut().flatten().flat_map(|space| &mut space.mounts);
        let private = mounts.filter_map(|mount| if let MountSource::Private(tree) = &mut mount.source { Some(tree) } else { None });
        self.segments.iter_mut().flatten().map(|segment| &mut segment.tree).chain(private)
    }

    /// All trees, by shared reference, in the order of [`SpaceSet::trees_mut`].
    pub(in crate::memory) fn trees(&self) -> impl Iterator<Item = &Tree> {
        let mounts = self.spaces.iter().flatten().flat_map(|space| &space.mounts);
        let private = mounts.filter_map(|mount| if let MountSource::Private(tree) = &mount.source { Some(tree) } else { None });
        self.segments.iter().flatten().map(|segment| &segment.tree).chain(private)
    }

    /// The trees of the segments that the running space mounts, with their slots.
    pub(super) fn current_segments(&self) -> impl Iterator<Item = (usize, &Tree)> {
        let mounts = self.spaces.get(self.current.0 as usize).and_then(Option::as_ref).into_iter().flat_map(|space| &space.mounts);
        mounts.filter_map(|mount| match mount.source {
            MountSource::Segment(index) => Some((mount.slot, &self.segments.get(index.0 as usize)?.as_ref()?.tree)),
            MountSource::Private(_) => None,
        })
    }

    /// The root of the running space, built if necessary.
    ///
    /// # Errors
    /// No memory for the table.
    pub fn root(&mut self, frames: &mut Frames) -> Result<Root, Shortage> {
        let SpaceSet { account, spaces, segments, current, .. } = self;
        let space = spaces[current.0 as usize].as_mut().expect("the running space exists");
        space.root(frames, *account, |index| &segments[index.0 as usize].as_ref().expect("a mounted segment exists").tree)
    }

    /// Gives the running space's root another stamp, because the cell moves to another vCPU.
    pub fn restamp(&mut self, frames: &mut Frames) {
        if let Ok(space) = self.space(self.current) {
            space.restamp(frames);
        }
    }

    /// Attaches a disk with `blocks` blocks.
    ///
    /// # Errors
    /// The cell has too many.
    pub fn attach(&mut self, disk: DiskId, blocks: u64) -> Result<DiskIndex, Refusal> {
        self.disks.attach(disk, blocks)
    }

    /// The attached disks in the order of the cell's indices, each with its number of blocks.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (DiskId, u64)> {
        self.disks.attached()
    }

    /// The disk that backs memory from an import.
    pub(in crate::memory) fn backing(&self) -> Option<DiskId> {
        self.disks.backing
    }

    /// Backs memory from an import by a disk that the cell cannot name.
    pub(in crate::memory) fn set_backing(&mut self, disk: DiskId) {
        self.disks.backing = Some(disk);
    }

    /// Whether the cell's memory may contain blocks of this disk.
    pub(crate) fn uses_disk(&self, disk: DiskId) -> bool {
        self.disks.contains(disk)
    }

    /// The address by which the cell names a block of an attached disk. `None`: no such disk is attached.
    pub(in crate::memory) fn address_of(&self, block: Block) -> Option<BlockAddress> {
        let index = self.attached().position(|(disk, _)| disk == block.disk)?;
        Some(BlockAddress { disk: DiskIndex(index as u32), block: block.number })
    }

    /// Finds `count` blocks of an attached disk.
    ///
    /// # Errors
    /// There is no such disk, or it has too few blocks.
    pub fn blocks(&self, first: BlockAddress, count: u64) -> Result<Block, Refusal> {
        self.disks.blocks(first, count)
    }

    /// Releases all memory, in steps that [`Frames::reap`] works through.
    pub fn release(mut self, frames: &mut Frames) {
        for space in std::mem::take(&mut self.spaces).into_iter().flatten() {
            self.release_space(frames, space);
        }
        for segment in self.segments.into_iter().flatten() {
            segment.tree.release(frames);
        }
    }
}

/// Whether a segment may be mounted in a slot: cells must own all of the slot, because the segment may have memory anywhere.
pub(in crate::memory) fn can_hold_segment(slot: usize) -> bool {
    let start = slot as u64 * SLOT_SIZE;
    start >= USER_START && start + SLOT_SIZE <= USER_END
}

/// Inserts a value at the first free index of a list.
pub(super) fn insert_at_free_index<T>(list: &mut Vec<Option<T>>, value: T, limit: u32) -> Result<u32, Refusal> {
    let index = list.iter().position(Option::is_none).unwrap_or(list.len());
    if index >= limit as usize {
        return Err(Refusal::TooMany);
    }
    if index == list.len() {
        list.push(None);
    }
    list[index] = Some(value);
    Ok(index as u32)
}
