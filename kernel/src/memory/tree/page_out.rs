// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches for pages that can be taken, and for taken ones.

use super::entry::{DecodedEntry, Entry};
use super::handle::Tree;
use super::level::{TOP, TREE_PAGES, index, span};
use crate::memory::frames::{AccountId, Frames};
use crate::memory::swapped_page::SwapNumber;
use pando_machine::FrameId;
use std::ops::Range;

/// Lookups that the examination of a last-level table costs as much as.
const TABLE_COST: u64 = 16;

impl Tree {
    /// Finds the first present pages at or after `page` for which this account pays, as far as they are consecutive and in one last-level
    /// table or large page, at most `max`: those that a parent may take. Costs no more than `budget` lookups. An empty range: none was
    /// found up to there.
    #[must_use]
    pub(in crate::memory) fn find_page_out_candidates(
        &self,
        frames: &Frames,
        account: AccountId,
        mut page: u64,
        max: u64,
        mut budget: u64,
    ) -> Range<u64> {
        let Some(top) = self.top else { return TREE_PAGES..TREE_PAGES };
        while page < TREE_PAGES && budget > 0 {
            let (mut table, mut level) = (top, TOP);
            let decoded = loop {
                match Entry(frames.arena().load(table, index(page, level))).decode(level) {
                    DecodedEntry::Table { table: below, .. } => (table, level) = (below, level - 1),
                    decoded => break decoded,
                }
            };
            let size = span(level.max(2));
            let end = (page / size + 1) * size;
            let is_takeable = |page: &u64| match Entry(frames.arena().load(table, index(*page, 1))).decode(1) {
                DecodedEntry::Page { frame, .. } => frames.is_paid_by(frame, account),
                _ => false,
            };
            match decoded {
                DecodedEntry::Page { frame, .. } if level > 1 && frames.is_paid_by(frame, account) => return page..end.min(page + max),
                _ if level > 1 => {}
                _ => {
                    if let Some(first) = (page..end).find(is_takeable) {
                        return first..first + (first..end.min(first + max)).take_while(is_takeable).count() as u64;
                    }
                    budget = budget.saturating_sub(TABLE_COST);
                }
            }
            page = end;
            budget = budget.saturating_sub(1);
        }
        page..page
    }

    /// Whether some of the pages from `start` on are these frames.
    #[must_use]
    pub(in crate::memory) fn maps_some(&self, frames: &Frames, start: u64, wanted: &[FrameId]) -> bool {
        wanted.iter().zip(start..).any(|(frame, page)| self.find(frames, page).frame(page) == Some(*frame))
    }

    /// The number of consecutive pages at the front of `pages` that were taken with the numbers from `first` on, within one last-level
    /// table.
    #[must_use]
    pub(in crate::memory) fn count_taken(&self, frames: &Frames, pages: &Range<u64>, first: SwapNumber) -> u64 {
        let end = pages.end.min((pages.start / span(2) + 1) * span(2));
        let is_next = |page: &u64| {
            let wanted = first.offset(page - pages.start);
            matches!(self.find(frames, *page).decoded, DecodedEntry::Taken { number, .. } if number == wanted)
        };
        (pages.start..end).take_while(is_next).count() as u64
    }

    /// Passes the numbers of taken pages to `note`, from `page` on, and moves `page` on. `true`: all were passed; `false`: `budget`, a
    /// number of lookups, is used up.
    pub(in crate::memory) fn list_taken(
        &self,
        frames: &Frames,
        page: &mut u64,
        budget: &mut u64,
        note: &mut dyn FnMut(SwapNumber),
    ) -> bool {
        let Some(top) = self.top else { return true };
        while *page < TREE_PAGES {
            if *budget == 0 {
                return false;
            }
            let (mut table, mut level) = (top, TOP);
            while let DecodedEntry::Table { table: below, .. } = Entry(frames.arena().load(table, index(*page, level))).decode(level) {
                (table, level) = (below, level - 1);
            }
            if level == 1 {
                for entry in frames.arena().load_table(table) {
                    if let DecodedEntry::Taken { number, .. } = Entry(entry).decode(1) {
                        note(number);
                    }
                }
                *budget = budget.saturating_sub(TABLE_COST);
            }
            *budget = budget.saturating_sub(1);
            let size = span(level.max(2));
            *page = (*page / size + 1) * size;
        }
        true
    }
}
