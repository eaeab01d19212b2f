// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking blocks out of mappings: what the kernel does when the registry is full of frames that somebody maps.
//!
//! Entries of such frames say again which block they stand for; the next touch brings it back. A hand goes round all trees, as a clock's, so that everybody gives in turn.

use super::account::AccountId;
use super::entry::{Entry, View};
use super::frames::Frames;
use super::spaces::SpaceSet;
use super::tree::{TOP, TREE_PAGES, Tree, index, span};
use crate::limits::SWEEP_TABLES;
use pando_machine::{EntryIndex, FrameId};

/// Where the hand stands in a cell's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    /// Which of its trees.
    tree: usize,
    /// Which page of that.
    page: u64,
}

/// Pages that one table of the last level covers.
const TABLE_PAGES: u64 = span(2);

impl Frames {
    /// Whether a table of the last level maps a block.
    pub(super) fn maps_blocks(&self, table: FrameId) -> bool {
        let entries = self.arena().load_table(table);
        entries.iter().any(|entry| matches!(Entry(*entry).view(1), View::Page { frame, .. } if self.is_registered(frame)))
    }

    /// The entry that says the same as a whole table of the last level once the frames of its blocks are forgotten. `None`: no single entry does.
    pub(super) fn folded(&self, table: FrameId) -> Option<Entry> {
        let forgotten = |position: usize| self.forgotten(Entry(self.arena().load(table, EntryIndex::new(position))));
        let first = forgotten(0)?;
        (1..TABLE_PAGES).all(|position| forgotten(position as usize) == Some(first.further(position))).then_some(first)
    }

    /// What an entry of the last level becomes when its block's frame is forgotten: the block. `None`: it is no block.
    pub(super) fn forgotten(&self, entry: Entry) -> Option<Entry> {
        match entry.view(1) {
            View::Block { .. } => Some(entry),
            View::Page { frame, permissions, .. } => self.block_in(frame).map(|block| Entry::block(block, permissions)),
            _ => None,
        }
    }
}

impl Tree {
    /// Takes blocks out of some tables from `page` on, which goes past them. `false`: there are none, or the account has no memory for it, or `budget`, a number of tables to look
    /// at, is used up.
    fn sweep(&mut self, frames: &mut Frames, account: AccountId, page: &mut u64, budget: &mut u64) -> bool {
        if !self.find_blocks(frames, page, budget) {
            return false;
        }
        let end = (*page + SWEEP_TABLES * TABLE_PAGES).min((*page / span(TOP) + 1) * span(TOP));
        let swept = self.forget(frames, account, *page..end).is_ok();
        *page = if swept { end } else { TREE_PAGES };
        swept
    }

    /// Moves `page` on to the first table that maps blocks.
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
    /// Takes some blocks out of what the cell maps, from the hand on; the cell must not be running. `false`: there are none behind the hand, which then starts again, or `budget`
    /// is used up, and the hand stays.
    pub fn sweep(&mut self, frames: &mut Frames, hand: &mut Hand, budget: &mut u64) -> bool {
        let account = self.account();
        for tree in self.trees().skip(hand.tree) {
            if tree.sweep(frames, account, &mut hand.page, budget) {
                return true;
            }
            if *budget == 0 {
                return false;
            }
            *hand = Hand { tree: hand.tree + 1, page: 0 };
        }
        *hand = Hand::default();
        false
    }
}
