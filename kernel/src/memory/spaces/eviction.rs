// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eviction of blocks from the mappings of a cell, for a registry that is full of mapped frames: the clock algorithm.
//!
//! The clock hand goes round all trees of all cells, so that all cells give up blocks in turn.

use super::set::SpaceSet;
use crate::memory::frames::Frames;

/// Position of the clock hand in a cell's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockHand {
    /// Index of the tree.
    tree: usize,
    /// Page in the tree.
    page: u64,
}

impl SpaceSet {
    /// Evicts some blocks from the cell's mappings, from the hand on; the cell must not be running. `false`: there are none behind
    /// the hand, which then starts again, or `budget` is used up, and the hand stays.
    pub fn evict(&mut self, frames: &mut Frames, hand: &mut ClockHand, budget: &mut u64) -> bool {
        let account = self.account();
        for tree in self.trees_mut().skip(hand.tree) {
            if tree.evict_from(frames, account, &mut hand.page, budget) {
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
