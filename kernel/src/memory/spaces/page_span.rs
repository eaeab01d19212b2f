// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of pages, checked.

use super::set::SpaceSet;
use crate::memory::prefetch::{CellPage, VirtualPage};
use pando_abi::layout::{SLOT_SIZE, SLOTS, USER_END, USER_START};
use pando_abi::limits::MAX_PAGES;
use pando_abi::{PAGE_SIZE, Refusal, SpaceIndex};
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

impl PageSpan {
    /// The first page.
    pub(super) fn first(&self) -> CellPage {
        CellPage { space: self.space.0, at: VirtualPage { slot: self.slot as u32, number: self.pages.start } }
    }
}

impl SpaceSet {
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
}
