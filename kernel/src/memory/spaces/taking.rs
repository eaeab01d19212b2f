// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that a parent takes from a cell, and gives back.

use super::page_span::PageSpan;
use super::set::SpaceSet;
use super::space::MountSource;
use crate::limits::{TAKE_LOOKUPS, TAKE_SEARCH};
use crate::memory::frames::{Frames, Shortage};
use crate::memory::paging::{CopyAuthority, MemoryError};
use crate::memory::swapped_page::SwapNumber;
use crate::memory::tree::{PATH_TABLES, Tree};
use pando_abi::layout::{SLOT_SIZE, SYSTEM_SLOT};
use pando_abi::{PAGE_SIZE, Refusal, SpaceIndex};
use pando_machine::{FRAME_SIZE, FrameId};
use std::ops::Range;

/// A position in the list of a cell's trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeCursor {
    tree: usize,
    page: u64,
}

impl SpaceSet {
    /// Checks a range whose pages a parent may take or give: any but the libOS's.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn check_page_out(&mut self, space: SpaceIndex, address: u64, pages: u64) -> Result<PageSpan, Refusal> {
        let range = self.check(space, address, pages)?;
        if range.slot == SYSTEM_SLOT { Err(Refusal::BadAddress) } else { Ok(range) }
    }

    /// The first pages from the start of `range` on, in its slot, for which the cell pays: consecutive ones, at most `max`. An empty
    /// range: none was found up to there.
    pub fn find_page_out_candidates(&mut self, frames: &Frames, range: &PageSpan, max: u64) -> Range<u64> {
        let (account, end) = (self.account, SLOT_SIZE / PAGE_SIZE);
        // Each page is looked up in each space.
        let max = max.min(TAKE_LOOKUPS / self.spaces.len() as u64).max(1);
        let tree = self.tree(range.space, range.slot);
        tree.map_or(end..end, |tree| tree.find_page_out_candidates(frames, account, range.pages.start, max, TAKE_SEARCH))
    }

    /// The frames of pages that are present, to copy them. `None`: not all are.
    pub fn present_frames(&mut self, frames: &Frames, range: &PageSpan) -> Option<Vec<FrameId>> {
        let tree = self.tree(range.space, range.slot)?;
        range.pages.clone().map(|page| tree.find(frames, page).frame(page)).collect()
    }

    /// Copies whole frames to pages at an address of the running space.
    ///
    /// # Errors
    /// They are not all mapped or may not be written, or there is no memory for them.
    pub(crate) fn fill_pages(&mut self, frames: &mut Frames, address: u64, sources: &[FrameId]) -> Result<(), MemoryError> {
        let range = self.check(self.current, address, sources.len() as u64)?;
        let targets = self.writable_pages(frames, &range, CopyAuthority::Cell)?;
        let sources: Vec<Option<FrameId>> = sources.iter().copied().map(Some).collect();
        copy_pages(frames, &sources, &targets);
        Ok(())
    }

    /// Replaces pages that were found to be takeable, and are these frames, by entries with the numbers from `first` on: in all spaces that
    /// have them at the same address, as clones of spaces have. The account may be full: taking pages is how its cell gets memory. `false`:
    /// nothing has changed, because the tables that would be copied need as much memory as the pages have.
    ///
    /// # Errors
    /// The machine has not enough memory for the tables, or copies of shared tables have exceeded the quota before; nothing has changed.
    pub fn take(&mut self, frames: &mut Frames, range: &PageSpan, taken: &[FrameId], first: SwapNumber) -> Result<bool, Shortage> {
        let (account, start) = (self.account, range.pages.start);
        let mut trees = self.trees_at(range);
        trees.retain(|tree| tree.maps_some(frames, start, taken));
        // A space's own tables are replaced. Of those that are shared, the last space's are replaced too, and the others' are copies.
        let shared = trees.iter().filter(|tree| !tree.find(frames, start).is_owned).count() as u64;
        let copied = shared.saturating_sub(1) * PATH_TABLES;
        if taken.len() as u64 <= copied {
            return Ok(false);
        }
        let reserved = trees.len() as u64 * PATH_TABLES;
        frames.charge_beyond_quota(account, reserved, |frames| {
            trees.into_iter().for_each(|tree| tree.take(frames, account, start, taken, first))
        })?;
        self.had_pages_taken = true;
        Ok(true)
    }

    /// The tree of a range, and the trees of other spaces in the same slot. A segment has one tree.
    fn trees_at(&mut self, range: &PageSpan) -> Vec<&mut Tree> {
        let segment = match self.space(range.space).ok().and_then(|space| space.at(range.slot)) {
            Some(MountSource::Segment(index)) => Some(*index),
            _ => None,
        };
        if segment.is_some() {
            return self.tree(range.space, range.slot).into_iter().collect();
        }
        let mounts = self.spaces.iter_mut().flatten().filter_map(|space| space.at(range.slot));
        mounts.filter_map(|source| if let MountSource::Private(tree) = source { Some(tree) } else { None }).collect()
    }

    /// Notes that a parent has pages of this memory: they were taken, or never given.
    pub(in crate::memory) fn note_taken(&mut self) {
        self.had_pages_taken = true;
    }

    /// Whether a parent has ever taken pages.
    pub(crate) fn had_pages_taken(&self) -> bool {
        self.had_pages_taken
    }

    /// The pages at the front of a range that were taken with the numbers from `first` on. Makes sure that there is memory for them.
    ///
    /// # Errors
    /// There is not; nothing has changed.
    pub fn find_returnable(&mut self, frames: &mut Frames, range: &PageSpan, first: SwapNumber) -> Result<Range<u64>, Shortage> {
        let account = self.account;
        let start = range.pages.start;
        let Some(tree) = self.tree(range.space, range.slot) else { return Ok(start..start) };
        let count = tree.count_taken(frames, &range.pages, first);
        frames.ensure(account, PATH_TABLES + count)?;
        Ok(start..start + count)
    }

    /// The frames of pages, to copy them; `None`: zeros.
    ///
    /// # Errors
    /// They are not all mapped, or may not be read.
    pub(crate) fn readable_pages(
        &mut self,
        frames: &Frames,
        range: &PageSpan,
        authority: CopyAuthority,
    ) -> Result<Vec<Option<FrameId>>, MemoryError> {
        let Some(tree) = self.tree(range.space, range.slot) else { return Err(Refusal::BadAddress.into()) };
        let found = range.pages.clone().map(|page| tree.readable_frame(frames, page, authority));
        found.collect::<Result<_, _>>().map_err(|error| error.in_slot(range.space, range.slot).into())
    }

    /// The frames of pages, exclusive to the cell from now on.
    ///
    /// # Errors
    /// They are not all mapped or may not be written, or there is no memory for them.
    pub(crate) fn writable_pages(
        &mut self,
        frames: &mut Frames,
        range: &PageSpan,
        authority: CopyAuthority,
    ) -> Result<Vec<FrameId>, MemoryError> {
        let account = self.account;
        let Some(tree) = self.tree(range.space, range.slot) else { return Err(Refusal::BadAddress.into()) };
        let found = range.pages.clone().map(|page| tree.writable_frame(frames, account, page, authority));
        found.collect::<Result<_, _>>().map_err(|error| error.in_slot(range.space, range.slot).into())
    }

    /// Makes taken pages present, with copies of these frames.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn give(&mut self, frames: &mut Frames, range: &PageSpan, sources: &[Option<FrameId>]) -> Result<(), Shortage> {
        let account = self.account;
        match self.tree(range.space, range.slot) {
            Some(tree) => tree.give(frames, account, range.pages.clone(), sources),
            None => Ok(()),
        }
    }

    /// The slots that spaces have mounted, but for the system segment's: each space with the address.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = (SpaceIndex, u64)> {
        let spaces = (0..).map(SpaceIndex).zip(&self.spaces);
        let mounts =
            spaces.flat_map(|(index, space)| space.iter().flat_map(move |space| space.mounts.iter().map(move |mount| (index, mount.slot))));
        mounts.filter(|(_, slot)| *slot != SYSTEM_SLOT).map(|(index, slot)| (index, slot as u64 * SLOT_SIZE))
    }

    /// Passes the numbers of all taken pages to `note`, some at a time. `true`: all were passed.
    pub(crate) fn list_taken(&mut self, frames: &Frames, cursor: &mut TreeCursor, note: &mut dyn FnMut(SwapNumber)) -> bool {
        let mut budget = TAKE_SEARCH;
        for tree in self.trees_mut().map(|tree| &*tree).skip(cursor.tree).collect::<Vec<&Tree>>() {
            if budget == 0 || !tree.list_taken(frames, &mut cursor.page, &mut budget, note) {
                return false;
            }
            *cursor = TreeCursor { tree: cursor.tree + 1, page: 0 };
        }
        true
    }
}

/// Copies the content of frames to other frames; `None`: zeros.
pub(crate) fn copy_pages(frames: &Frames, sources: &[Option<FrameId>], targets: &[FrameId]) {
    for (source, target) in sources.iter().zip(targets) {
        match source {
            Some(source) => frames.arena().copy(*source, *target),
            None => frames.arena().write(*target, 0, &[0; FRAME_SIZE]),
        }
    }
}
