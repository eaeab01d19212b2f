// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eviction of blocks from mappings, for a registry that is full of mapped frames.
//!
//! The entries of such frames become block entries again; the next access maps the block again. A clock hand goes round all trees,
//! so that all cells give up blocks in turn.

use super::set::SpaceSet;
use crate::limits::EVICTION_TABLES;
use crate::memory::frames::account::AccountId;
use crate::memory::frames::frame_table::Frames;
use crate::memory::tree::entry::{Entry, View};
use crate::memory::tree::handle::{TOP, TREE_PAGES, Tree, index, span};
use pando_machine::{EntryIndex, FrameId};

/// Position of the clock hand in a cell's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockHand {
    /// Index of the tree.
    tree: usize,
    /// Page in the tree.
    page: u64,
}

/// Pages that one last-level table covers.
const TABLE_PAGES: u64 = span(2);

impl Frames {
    /// Whether a last-level table maps a block.
    pub(in crate::memory) fn maps_blocks(&self, table: FrameId) -> bool {
        let entries = self.arena().load_table(table);
        entries.iter().any(|entry| matches!(Entry(*entry).view(1), View::Page { frame, .. } if self.is_registered(frame)))
    }

    /// The entry that is equivalent to a whole last-level table after its blocks are evicted. `None`: no single entry is.
    pub(in crate::memory) fn folded_entry(&self, table: FrameId) -> Option<Entry> {
        let forgotten = |position: usize| self.forgotten(Entry(self.arena().load(table, EntryIndex::new(position))));
        let first = forgotten(0)?;
        (1..TABLE_PAGES).all(|position| forgotten(position as usize) == Some(first.further(position))).then_some(first)
    }

    /// The entry that replaces a last-level entry when its block is evicted. `None`: it is no block.
    pub(in crate::memory) fn forgotten(&self, entry: Entry) -> Option<Entry> {
        match entry.view(1) {
            View::Block { .. } => Some(entry),
            View::Page { frame, permissions, .. } => self.block_in(frame).map(|block| Entry::block(block, permissions)),
            _ => None,
        }
    }
}

impl Tree {
    /// Evicts blocks from some tables from `page` on, and moves `page` past them. `false`: there are none, the account has no
    /// memory for it, or `budget`, a number of tables to examine, is used up.
    fn evict(&mut self, frames: &mut Frames, account: AccountId, page: &mut u64, budget: &mut u64) -> bool {
        if !self.find_blocks(frames, page, budget) {
            return false;
        }
        let end = (*page + EVICTION_TABLES * TABLE_PAGES).min((*page / span(TOP) + 1) * span(TOP));
        let swept = self.forget(frames, account, *page..end).is_ok();
        *page = if swept { end } else { TREE_PAGES };
        swept
    }

    /// Advances `page` to the first table that maps blocks.
    fn find_blocks(&self, frames: &Frames, page: &mut u64, budget: &mut u64) -> bool {
        while *page < TREE_PAGES && *budget > 0 {
            let Some(top) = self.top else { break };
            let (mut table, mut level) = (top, TOP);
            let skip = loop {
                let View::Table { table: below, .. } = Entry(frames.arena().load(table, index(*page, level))).view(level) else {
                    break level;
                };
                (table, level) = (below, level - 1);
                if level == 1 {
                    *budget -= 1;
                    if frames.maps_blocks(table) {
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

impl SpaceSet {
    /// Evicts some blocks from the cell's mappings, from the hand on; the cell must not be running. `false`: there are none behind
    /// the hand, which then starts again, or `budget` is used up, and the hand stays.
    pub fn evict(&mut self, frames: &mut Frames, hand: &mut ClockHand, budget: &mut u64) -> bool {
        let account = self.account();
        for tree in self.trees().skip(hand.tree) {
            if tree.evict(frames, account, &mut hand.page, budget) {
                return true;
            }
            if *budget == 0 {
                return false;
            }
            *hand = ClockHand { tree: hand.tree + 1, page: 0 };
        }
        *hand = ClockHand::default();
        false
    }
}
