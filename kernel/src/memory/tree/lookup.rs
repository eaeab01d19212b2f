// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups in a tree: the entry of a page, and counts of present pages.

use super::block_entries::maps_blocks;
use super::entry::{DecodedEntry, Entry};
use super::handle::Tree;
use super::level::{TOP, TREE_PAGES, index, span};
use crate::memory::frames::Frames;
use pando_abi::Permissions;
use pando_machine::FrameId;
use std::ops::Range;

/// The result of looking up a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The entry; for blocks, that of the requested page.
    pub decoded: DecodedEntry,
    /// The level of the table that contains it: 1 for a 4 KiB page, 2 for a large one; lazy memory and blocks at any.
    pub level: u8,
    /// Whether every link on the way, and the tree itself, is owned.
    pub is_owned: bool,
}

impl Lookup {
    /// The program's permissions there; `None`: nothing is mapped.
    #[must_use]
    pub fn permissions(&self) -> Option<Permissions> {
        match self.decoded {
            DecodedEntry::Lazy { permissions, .. }
            | DecodedEntry::Block { permissions, .. }
            | DecodedEntry::Taken { permissions, .. }
            | DecodedEntry::Page { permissions, .. } => Some(permissions),
            DecodedEntry::Empty | DecodedEntry::Table { .. } => None,
        }
    }

    /// The 4 KiB frame of `page`, if it is present.
    #[must_use]
    pub fn frame(&self, page: u64) -> Option<FrameId> {
        match self.decoded {
            DecodedEntry::Page { frame, .. } => Some(frame.offset((page % span(self.level)) as u32)),
            _ => None,
        }
    }
}

/// Numbers of present pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresentPages {
    /// All present pages.
    pub resident: u64,
    /// Those without another holder.
    pub exclusive: u64,
}

impl Tree {
    /// Looks `page` up. O(levels), changes nothing.
    #[must_use]
    pub fn find(&self, frames: &Frames, page: u64) -> Lookup {
        let mut is_owned = !self.is_sealed;
        let Some(mut table) = self.top else { return Lookup { decoded: DecodedEntry::Empty, level: TOP, is_owned } };
        let mut level = TOP;
        loop {
            let decoded = Entry(frames.arena().load(table, index(page, level))).decode(level);
            match decoded {
                DecodedEntry::Table { table: next, is_owned: link } => {
                    is_owned &= link;
                    table = next;
                    level -= 1;
                }
                DecodedEntry::Block { block, permissions } => {
                    let block = block.offset(page % span(level));
                    return Lookup { decoded: DecodedEntry::Block { block, permissions }, level, is_owned };
                }
                _ => return Lookup { decoded, level, is_owned },
            }
        }
    }

    /// Counts the present pages at the front of `pages`: to the end of the first one's table, or of an entry above. Returns the
    /// page behind them. O(pages of a table), changes nothing.
    #[must_use]
    pub fn count(&self, frames: &Frames, pages: Range<u64>, count: &mut PresentPages) -> u64 {
        let Some(mut table) = self.top else { return pages.end };
        let decoded = |table, page, level| Entry(frames.arena().load(table, index(page, level))).decode(level);
        let (mut level, mut is_alone) = (TOP, frames.is_last_holder(table));
        while let DecodedEntry::Table { table: below, .. } = decoded(table, pages.start, level) {
            (table, level) = (below, level - 1);
            is_alone &= frames.is_last_holder(table);
        }
        let (size, covered) = (span(level), span(level.max(2)));
        let end = ((pages.start / covered + 1) * covered).min(pages.end);
        for page in (pages.start..end).step_by(size as usize) {
            if let DecodedEntry::Page { frame, .. } = decoded(table, page, level) {
                let here = size.min(end - page);
                let is_own = if level == 1 { frames.is_exclusive(frame) } else { frames.is_exclusive_large(frame.huge_frame()) };
                count.resident += here;
                count.exclusive += if is_alone && is_own { here } else { 0 };
            }
        }
        end
    }

    /// Advances `page` to the first table that maps blocks. `false`: there is none, or `budget`, a number of tables to examine, is used
    /// up.
    pub(in crate::memory) fn find_blocks(&self, frames: &Frames, page: &mut u64, budget: &mut u64) -> bool {
        while *page < TREE_PAGES && *budget > 0 {
            let Some(top) = self.top else { break };
            let (mut table, mut level) = (top, TOP);
            let skip = loop {
                let DecodedEntry::Table { table: below, .. } = Entry(frames.arena().load(table, index(*page, level))).decode(level) else {
                    break level;
                };
                (table, level) = (below, level - 1);
                if level == 1 {
                    *budget -= 1;
                    if maps_blocks(frames, table) {
                        return true;
                    }
                    break 2;
                }
            };
            *page = (*page / span(skip) + 1) * span(skip);
        }
        if *budget > 0 {
            *page = TREE_PAGES;
        }
        false
    }
}
