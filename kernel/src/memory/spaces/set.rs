// SPDX-License-Identifier: MIT OR Apache-2.0
//! The spaces and segments of one cell: all the memory that it can name.

use super::space::{Space, SpacePart};
use crate::limits::{PIECE_PAGES, PIECE_TABLES};
use crate::memory::block::{Block, DiskId};
use crate::memory::frames::account::AccountId;
use crate::memory::frames::frame_table::{Frames, Shortage};
use crate::memory::paging::copy::{CopyAuthority, CopyError};
use crate::memory::paging::error::MemoryError;
use crate::memory::paging::fault::{Access, Fault};
use crate::memory::prefetch::fork_prefetch::PageLocation;
use crate::memory::prefetch::prefetch_set::PrefetchState;
use crate::memory::prefetch::training_trace::{TrainingTrace, TrainingTraces};
use crate::memory::rules::Rules;
use crate::memory::tree::entry::Entry;
use crate::memory::tree::handle::{Count, Lookup, Tree};
use pando_abi::layout::{SLOT_SIZE, SLOTS, SYSTEM_SLOT, USER_END, USER_START};
use pando_abi::limits::{MAX_DISKS, MAX_MOUNTS, MAX_PAGES, MAX_SEGMENTS, MAX_SPACES};
use pando_abi::{BlockAddress, DiskIndex, MapFlags, PAGE_SIZE, Permissions, Refusal, SegmentIndex, SpaceIndex};
use pando_machine::Root;
use std::ops::Range;

/// A range of pages in one slot of one space, checked: aligned, not empty, within what cells own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSpan {
    /// The space.
    pub space: SpaceIndex,
    /// The slot.
    pub slot: usize,
    /// Pages from the start of the slot.
    pub pages: Range<u64>,
}

/// A disk that is attached to a cell.
#[derive(Clone, Copy, Debug)]
struct Attached {
    disk: DiskId,
    blocks: u64,
}

#[derive(Debug, Default)]
pub(in crate::memory) struct Segment {
    pub(in crate::memory) tree: Tree,
    pub(in crate::memory) mounts: u32,
}

/// All spaces and segments of a cell. Space 0 and the system segment 0 are there from the start.
///
/// A handle; dropping it without [`SpaceSet::release`] leaks its frames.
#[derive(Debug)]
pub struct SpaceSet {
    account: AccountId,
    pub(in crate::memory) spaces: Vec<Option<Space>>,
    pub(in crate::memory) segments: Vec<Option<Segment>>,
    disks: Vec<Attached>,
    /// The disk that backs memory from an import; the cell cannot name it.
    pub(in crate::memory) backing: Option<DiskId>,
    pub(in crate::memory) current: SpaceIndex,
    /// The training trace, while one is recorded.
    pub(in crate::memory) trace: Option<TrainingTrace>,
    /// The training traces of its clones.
    pub(crate) traces: TrainingTraces,
    /// The prefetch state, as a clone.
    pub(crate) prefetch: PrefetchState,
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
            disks: Vec::new(),
            backing: None,
            current: SpaceIndex(0),
            trace: None,
            traces: TrainingTraces::default(),
            prefetch: PrefetchState::default(),
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
    pub fn indices(&self) -> Vec<SpaceIndex> {
        (0..).zip(&self.spaces).filter(|(_, space)| space.is_some()).map(|(index, _)| SpaceIndex(index)).collect()
    }

    pub(in crate::memory) fn space(&mut self, index: SpaceIndex) -> Result<&mut Space, Refusal> {
        self.spaces.get_mut(index.0 as usize).and_then(Option::as_mut).ok_or(Refusal::NoSuchSpace)
    }

    fn segment(&mut self, index: SegmentIndex) -> Result<&mut Segment, Refusal> {
        self.segments.get_mut(index.0 as usize).and_then(Option::as_mut).ok_or(Refusal::NoSuchSegment)
    }

    /// Checks that the cell may mount `more` further parts. O(spaces).
    fn check_room(&self, more: usize) -> Result<(), Refusal> {
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
        space.mount(frames, SYSTEM_SLOT, SpacePart::Segment(SegmentIndex(0)));
        let index = put_into_room(&mut self.spaces, space, MAX_SPACES)?;
        self.segment(SegmentIndex(0))?.mounts += 1;
        Ok(SpaceIndex(index))
    }

    /// Clones a space: private memory copy-on-write, segments shared. Copies pages that either is expected to write (`ForkPrefetch`). O(mounts).
    ///
    /// # Errors
    /// There is no such space, or the cell has too many.
    pub fn clone_space(&mut self, frames: &mut Frames, index: SpaceIndex) -> Result<SpaceIndex, Refusal> {
        let mounts = self.space(index)?.mounts.len();
        self.check_room(mounts)?;
        let copy = SpaceIndex(put_into_room(&mut self.spaces, Space::default(), MAX_SPACES)?);
        let parts = clone_parts(frames, self.space(index)?);
        for (slot, part) in parts {
            if let SpacePart::Segment(segment) = part {
                self.segment(segment)?.mounts += 1;
            }
            self.space(copy)?.mount(frames, slot, part);
        }
        self.space(copy)?.cloned_from = Some(index);
        let [by_parent, by_child] = self.space(index)?.fork_prefetch.prefetch_set();
        self.own_each(frames, copy, &by_child);
        self.own_each(frames, index, &by_parent);
        Ok(copy)
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
        self.let_go(frames, space);
        Ok(())
    }

    fn let_go(&mut self, frames: &mut Frames, mut space: Space) {
        space.forget_root(frames);
        for mount in space.mounts {
            match mount.part {
                SpacePart::Private(tree) => tree.release(frames),
                SpacePart::Segment(index) => {
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
        put_into_room(&mut self.segments, Segment::default(), MAX_SEGMENTS).map(SegmentIndex)
    }

    /// Mounts a segment at the start of a free slot.
    ///
    /// # Errors
    /// One of them does not exist, the address is not that of a slot, or the slot is taken.
    pub fn share(&mut self, frames: &mut Frames, segment: SegmentIndex, index: SpaceIndex, address: u64) -> Result<(), Refusal> {
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
        space.mount(frames, slot, SpacePart::Segment(segment));
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

    /// Checks a range: aligned, not empty, in one slot that cells own.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn check(&mut self, space: SpaceIndex, address: u64, pages: u64) -> Result<PageSpan, Refusal> {
        self.space(space)?;
        if pages == 0 || pages > MAX_PAGES {
            return Err(Refusal::BadArgument);
        }
        let end = address.checked_add(pages * PAGE_SIZE).ok_or(Refusal::BadAddress)?;
        let slot = (address / SLOT_SIZE) as usize;
        if !address.is_multiple_of(PAGE_SIZE)
            || address < USER_START
            || end > USER_END
            || slot >= SLOTS
            || (end - 1) / SLOT_SIZE != slot as u64
        {
            return Err(Refusal::BadAddress);
        }
        let first = address % SLOT_SIZE / PAGE_SIZE;
        Ok(PageSpan { space, slot, pages: first..first + pages })
    }

    /// The tree in a slot of a space.
    pub(in crate::memory) fn tree(&mut self, space: SpaceIndex, slot: usize) -> Option<&mut Tree> {
        let SpaceSet { spaces, segments, .. } = self;
        match spaces.get_mut(space.0 as usize)?.as_mut()?.at(slot)? {
            SpacePart::Private(tree) => Some(tree),
            SpacePart::Segment(index) => Some(&mut segments.get_mut(index.0 as usize)?.as_mut()?.tree),
        }
    }

    /// Attaches a disk with `blocks` blocks.
    ///
    /// # Errors
    /// The cell has too many.
    pub fn attach(&mut self, disk: DiskId, blocks: u64) -> Result<DiskIndex, Refusal> {
        let index = self.disks.len() as u32;
        if index >= MAX_DISKS {
            return Err(Refusal::TooMany);
        }
        self.disks.push(Attached { disk, blocks: blocks.min(u32::MAX.into()) });
        Ok(DiskIndex(index))
    }

    /// The attached disks in the order of the cell's indices, each with its number of blocks.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (DiskId, u64)> {
        self.disks.iter().map(|attached| (attached.disk, attached.blocks))
    }

    /// Whether the cell's memory may contain blocks of this disk.
    pub(crate) fn uses(&self, disk: DiskId) -> bool {
        self.backing == Some(disk) || self.attached().any(|(attached, _)| attached == disk)
    }

    /// Finds `count` blocks of an attached disk.
    ///
    /// # Errors
    /// There is no such disk, or it has too few blocks.
    pub fn blocks(&self, first: BlockAddress, count: u64) -> Result<Block, Refusal> {
        let attached = self.disks.get(first.disk.0 as usize).ok_or(Refusal::NoSuchDisk)?;
        let end = u64::from(first.block.0) + count;
        if end > attached.blocks { Err(Refusal::NoSuchBlock) } else { Ok(Block { disk: attached.disk, number: first.block }) }
    }

    /// All trees: those of segments, then those of spaces.
    pub(in crate::memory) fn trees(&mut self) -> impl Iterator<Item = &mut Tree> {
        let mounts = self.spaces.iter_mut().flatten().flat_map(|space| &mut space.mounts);
        let private = mounts.filter_map(|mount| if let SpacePart::Private(tree) = &mut mount.part { Some(tree) } else { None });
        self.segments.iter_mut().flatten().map(|segment| &mut segment.tree).chain(private)
    }

    /// Maps lazy zero memory, in place of any earlier mapping. Bounded.
    ///
    /// # Errors
    /// Not enough memory for tables; nothing has changed.
    pub fn map(&mut self, frames: &mut Frames, range: &PageSpan, flags: MapFlags) -> Result<(), MemoryError> {
        self.set(frames, range, Entry::lazy(flags.permissions, flags.large))
    }

    /// Maps blocks of a disk from `first` on, in place of any earlier mapping. Bounded.
    ///
    /// # Errors
    /// Not enough memory for tables; nothing has changed.
    pub fn map_blocks(&mut self, frames: &mut Frames, range: &PageSpan, first: Block, permissions: Permissions) -> Result<(), MemoryError> {
        self.set(frames, range, Entry::block(first, permissions))
    }

    /// Unmaps a range. Bounded.
    ///
    /// # Errors
    /// Not enough memory for tables; nothing has changed.
    pub fn unmap(&mut self, frames: &mut Frames, range: &PageSpan) -> Result<(), MemoryError> {
        if self.tree(range.space, range.slot).is_none() {
            return Ok(());
        }
        self.set(frames, range, Entry::EMPTY)
    }

    /// Stores a non-present entry for a range; a free slot becomes private memory of the space.
    fn set(&mut self, frames: &mut Frames, range: &PageSpan, entry: Entry) -> Result<(), MemoryError> {
        let account = self.account;
        if let Some(tree) = self.tree(range.space, range.slot) {
            return Ok(tree.set(frames, account, range.pages.clone(), entry)?);
        }
        self.check_room(1)?;
        let space = self.space(range.space)?;
        let mut tree = Tree::default();
        tree.set(frames, account, range.pages.clone(), entry)?;
        space.mount(frames, range.slot, SpacePart::Private(tree));
        Ok(())
    }

    /// Sets permissions at the front of the range, and removes the finished pages from it. One step.
    ///
    /// # Errors
    /// Not enough memory for tables; nothing has changed.
    pub fn protect_piece(&mut self, frames: &mut Frames, range: &mut PageSpan, permissions: Permissions) -> Result<(), MemoryError> {
        let account = self.account;
        let piece = first_piece(&range.pages);
        if let Some(tree) = self.tree(range.space, range.slot) {
            tree.protect(frames, account, piece.clone(), permissions)?;
        }
        range.pages.start = piece.end;
        Ok(())
    }

    /// Makes mapped pages at the front of the range present, and removes them from it. One step, which ends at a block that must be
    /// read. Blocks that cannot be read are skipped.
    ///
    /// # Errors
    /// Not enough memory, or the very first page is a block that must be read; nothing has changed.
    pub fn touch_piece(&mut self, frames: &mut Frames, range: &mut PageSpan) -> Result<(), MemoryError> {
        let account = self.account;
        let mut piece = first_piece(&range.pages);
        if let Some(tree) = self.tree(range.space, range.slot) {
            let ready = tree.ready(frames, &piece)?;
            piece = ready.pages.clone();
            if ready.blocks {
                tree.reveal(frames, account, ready.pages)?;
            } else {
                tree.touch(frames, account, ready.pages, false)?;
            }
        }
        range.pages.start = piece.end;
        Ok(())
    }

    /// Counts the present pages at the front of a range, and removes the counted pages from it. One step.
    pub fn count_piece(&mut self, frames: &Frames, range: &mut PageSpan, count: &mut Count) {
        let pages = &mut range.pages;
        let Some(tree) = self.tree(range.space, range.slot) else {
            pages.start = pages.end;
            return;
        };
        for _ in 0..PIECE_TABLES {
            if !pages.is_empty() {
                pages.start = tree.count(frames, pages.clone(), count);
            }
        }
    }

    /// The mapping of an address of a space.
    ///
    /// # Errors
    /// There is no such space, or cells do not own the address.
    pub fn inspect(&mut self, frames: &Frames, space: SpaceIndex, address: u64) -> Result<Option<Lookup>, Refusal> {
        let range = self.check(space, address & !(PAGE_SIZE - 1), 1)?;
        Ok(self.tree(space, range.slot).map(|tree| tree.find(frames, range.pages.start)))
    }

    /// Resolves a fault in the running space.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn resolve(&mut self, frames: &mut Frames, address: u64, access: Access) -> Result<Fault, Shortage> {
        let account = self.account;
        let Ok(range) = self.check(self.current, address & !(PAGE_SIZE - 1), 1) else { return Ok(Fault::Refused) };
        let Some(tree) = self.tree(range.space, range.slot) else { return Ok(Fault::Refused) };
        let fault = tree.resolve(frames, account, range.pages.start, access)?;
        if matches!(fault, Fault::Copied { .. }) && self.shows_elsewhere(range.slot) {
            // The retried write makes the vCPU see the copy at only one of its addresses.
            self.restamp(frames);
        }
        if matches!(fault, Fault::Copied { .. }) {
            self.note_written(PageLocation { slot: range.slot, page: range.pages.start });
        }
        if matches!(fault, Fault::Copied { .. } | Fault::Resolved) {
            self.note_touched(frames, &range, access);
        }
        Ok(fault)
    }

    /// Whether the running space mounts the content of a slot in another slot, too.
    fn shows_elsewhere(&mut self, slot: usize) -> bool {
        let Ok(space) = self.space(self.current) else { return false };
        let Some(SpacePart::Segment(index)) = space.at(slot) else { return false };
        let index = *index;
        space.mounts.iter().any(|mount| mount.slot != slot && matches!(mount.part, SpacePart::Segment(other) if other == index))
    }

    /// Moves the path to an address of the running space into fresh tables.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn renew(&mut self, frames: &mut Frames, address: u64) -> Result<(), Shortage> {
        if frames.rules().contains_rule(Rules::WITHOUT_CONFIRMATION) {
            return Ok(());
        }
        let account = self.account;
        let Ok(range) = self.check(self.current, address & !(PAGE_SIZE - 1), 1) else { return Ok(()) };
        match self.tree(range.space, range.slot) {
            Some(tree) => tree.renew(frames, account, range.pages.start),
            None => Ok(()),
        }
    }

    /// Copies bytes out of the running space.
    ///
    /// # Errors
    /// They are not all mapped, or may not be read.
    pub fn read(&mut self, frames: &Frames, address: u64, bytes: &mut [u8], authority: CopyAuthority) -> Result<(), CopyError> {
        let (tree, _, offset) = self.part(address, bytes.len())?;
        tree.read(frames, offset, bytes, authority)
    }

    /// Copies bytes into the running space.
    ///
    /// # Errors
    /// They are not all mapped, or may not be written, or there is no memory for them.
    pub fn write(&mut self, frames: &mut Frames, address: u64, bytes: &[u8], authority: CopyAuthority) -> Result<(), CopyError> {
        let (tree, account, offset) = self.part(address, bytes.len())?;
        tree.write(frames, account, offset, bytes, authority)
    }

    /// The tree that contains `length` bytes of the running space, the account that pays for it, and the bytes' offset in it.
    pub(in crate::memory) fn part(&mut self, address: u64, length: usize) -> Result<(&mut Tree, AccountId, u64), CopyError> {
        let account = self.account;
        let (slot, offset) = in_one_slot(address, length)?;
        let tree = self.tree(self.current, slot).ok_or(CopyError::Refused)?;
        Ok((tree, account, offset))
    }

    /// Copies bytes into mapped pages, from `within` bytes into the first of them on, regardless of their permissions.
    ///
    /// # Errors
    /// They are not all mapped, or there is no memory for copies of them; nothing has been written.
    pub fn write_into(&mut self, frames: &mut Frames, range: &PageSpan, within: u64, bytes: &[u8]) -> Result<(), CopyError> {
        let account = self.account;
        let tree = self.tree(range.space, range.slot).ok_or(CopyError::Refused)?;
        for page in range.pages.clone() {
            tree.make_own(frames, account, page)?;
        }
        tree.write(frames, account, range.pages.start * PAGE_SIZE + within, bytes, CopyAuthority::Operator)
    }

    /// Makes the page at an address of the running space present and the cell's own: no write to it fails until the next clone.
    ///
    /// # Errors
    /// Nothing is mapped there, or there is no memory for it.
    pub fn own(&mut self, frames: &mut Frames, address: u64) -> Result<(), CopyError> {
        let (tree, account, offset) = self.part(address, 1)?;
        tree.make_own(frames, account, offset / PAGE_SIZE)
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

    /// Clones everything for another cell, copy-on-write on both sides; `account` pays for its writes. O(mounts + segments).
    #[must_use]
    pub fn clone_set(&mut self, frames: &mut Frames, account: AccountId) -> SpaceSet {
        let segments = self
            .segments
            .iter_mut()
            .map(|segment| segment.as_mut().map(|segment| Segment { tree: segment.tree.clone_tree(frames), mounts: segment.mounts }))
            .collect();
        let mut copies = Vec::with_capacity(self.spaces.len());
        for space in &mut self.spaces {
            copies.push(space.as_mut().map(|space| {
                let mut copy = Space::default();
                for (slot, part) in clone_parts(frames, space) {
                    copy.mount(frames, slot, part);
                }
                copy
            }));
        }
        SpaceSet {
            account,
            spaces: copies,
            segments,
            disks: self.disks.clone(),
            backing: self.backing,
            current: self.current,
            trace: None,
            traces: TrainingTraces::default(),
            prefetch: PrefetchState::new(self.traces.prefetch_set().clone()),
        }
    }

    /// Releases all memory, in steps that [`Frames::reap`] works through.
    pub fn release(mut self, frames: &mut Frames) {
        for space in std::mem::take(&mut self.spaces).into_iter().flatten() {
            self.let_go(frames, space);
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

/// The mounts of a clone of a space.
fn clone_parts(frames: &mut Frames, space: &mut Space) -> Vec<(usize, SpacePart)> {
    let clone = |part: &mut SpacePart, frames: &mut Frames| match part {
        SpacePart::Private(tree) => SpacePart::Private(tree.clone_tree(frames)),
        SpacePart::Segment(index) => SpacePart::Segment(*index),
    };
    space.mounts.iter_mut().map(|mount| (mount.slot, clone(&mut mount.part, frames))).collect()
}

/// The first pages of a range, up to the end of the large page that they lie in.
fn first_piece(pages: &Range<u64>) -> Range<u64> {
    let end = (pages.start / PIECE_PAGES + 1) * PIECE_PAGES;
    pages.start..end.min(pages.end)
}

fn in_one_slot(address: u64, length: usize) -> Result<(usize, u64), CopyError> {
    let end = address.checked_add(length as u64).ok_or(CopyError::Refused)?;
    let slot = address / SLOT_SIZE;
    if end > USER_END || (length > 0 && (end - 1) / SLOT_SIZE != slot) {
        return Err(CopyError::Refused);
    }
    Ok((slot as usize, address % SLOT_SIZE))
}

/// Puts a value into the first free slot.
fn put_into_room<T>(room: &mut Vec<Option<T>>, value: T, limit: u32) -> Result<u32, Refusal> {
    let index = room.iter().position(Option::is_none).unwrap_or(room.len());
    if index >= limit as usize {
        return Err(Refusal::TooMany);
    }
    if index == room.len() {
        room.push(None);
    }
    room[index] = Some(value);
    Ok(index as u32)
}
