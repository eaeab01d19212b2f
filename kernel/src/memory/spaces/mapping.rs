// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapping, protecting and populating ranges of a cell's spaces.

use super::page_span::PageSpan;
use super::set::SpaceSet;
use super::space::MountSource;
use crate::limits::{STEP_PAGES, STEP_TABLES};
use crate::memory::block::Block;
use crate::memory::frames::Frames;
use crate::memory::paging::MemoryError;
use crate::memory::tree::{Entry, Lookup, PresentPages, Tree};
use pando_abi::{MapFlags, PAGE_SIZE, Permissions, Refusal, SpaceIndex};
use std::ops::Range;

impl SpaceSet {
    /// Maps lazy zero memory, in place of any earlier mapping. Bounded.
    ///
    /// # Errors
    /// Not enough memory for tables; nothing has changed.
    pub fn map(&mut self, frames: &mut Frames, range: &PageSpan, flags: MapFlags) -> Result<(), MemoryError> {
        self.replace(frames, range, Entry::lazy(flags.permissions, flags.large))
    }

    /// Maps blocks of a disk from `first` on, in place of any earlier mapping. Bounded.
    ///
    /// # Errors
    /// Not enough memory for tables; nothing has changed.
    pub fn map_blocks(&mut self, frames: &mut Frames, range: &PageSpan, first: Block, permissions: Permissions) -> Result<(), MemoryError> {
        self.replace(frames, range, Entry::block(first, permissions))
    }

    /// Unmaps a range. Bounded.
    ///
    /// # Errors
    /// Not enough memory for tables; nothing has changed.
    pub fn unmap(&mut self, frames: &mut Frames, range: &PageSpan) -> Result<(), MemoryError> {
        if self.tree(range.space, range.slot).is_none() {
            return Ok(());
        }
        self.replace(frames, range, Entry::EMPTY)
    }

    /// Replaces the content of a range by a non-present entry. A free slot becomes private memory of the space.
    fn replace(&mut self, frames: &mut Frames, range: &PageSpan, entry: Entry) -> Result<(), MemoryError> {
        let account = self.account;
        if let Some(tree) = self.tree(range.space, range.slot) {
            return Ok(tree.replace(frames, account, range.pages.clone(), entry)?);
        }
        self.check_room(1)?;
        let space = self.space(range.space)?;
        let mut tree = Tree::default();
        tree.replace(frames, account, range.pages.clone(), entry)?;
        space.mount(frames, range.slot, MountSource::Private(tree));
        Ok(())
    }

    /// Sets permissions at the front of the range, and removes the finished pages from it. One step.
    ///
    /// # Errors
    /// Not enough memory for tables; nothing has changed.
    pub fn protect_step(&mut self, frames: &mut Frames, range: &mut PageSpan, permissions: Permissions) -> Result<(), MemoryError> {
        let account = self.account;
        let piece = first_step(&range.pages);
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
    pub fn populate_step(&mut self, frames: &mut Frames, range: &mut PageSpan) -> Result<(), MemoryError> {
        let account = self.account;
        let mut piece = first_step(&range.pages);
        if let Some(tree) = self.tree(range.space, range.slot) {
            let ready = tree.ready(frames, &piece).map_err(|error| error.in_slot(range.space, range.slot))?;
            piece = ready.pages.clone();
            if ready.blocks {
                tree.map_resident(frames, account, ready.pages)?;
            } else {
                tree.populate(frames, account, ready.pages, false)?;
            }
        }
        range.pages.start = piece.end;
        Ok(())
    }

    /// Counts the present pages at the front of a range, and removes the counted pages from it. One step.
    pub fn count_step(&mut self, frames: &Frames, range: &mut PageSpan, count: &mut PresentPages) {
        let pages = &mut range.pages;
        let Some(tree) = self.tree(range.space, range.slot) else {
            pages.start = pages.end;
            return;
        };
        for _ in 0..STEP_TABLES {
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
}

/// The first pages of a range, up to the end of the large page that they lie in.
fn first_step(pages: &Range<u64>) -> Range<u64> {
    let end = (pages.start / STEP_PAGES + 1) * STEP_PAGES;
    pages.start..end.min(pages.end)
}
