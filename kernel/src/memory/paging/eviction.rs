// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eviction of blocks from the mappings of a tree.
//!
//! The entries of evicted blocks name the block again, and the next access maps it again. The frames stay with the registry, which
//! reclaims them once nothing maps them.

use crate::limits::EVICTION_TABLES;
use crate::memory::frames::{AccountId, Frames};
use crate::memory::tree::{TOP, TREE_PAGES, Tree, span};

/// Pages that one last-level table covers.
const TABLE_PAGES: u64 = span(2);

impl Tree {
    /// Evicts blocks from some tables from `page` on, and moves `page` past them. `false`: there are none, the account has no
    /// memory for it, or `budget`, a number of tables to examine, is used up.
    pub(in crate::memory) fn evict_from(&mut self, frames: &mut Frames, account: AccountId, page: &mut u64, budget: &mut u64) -> bool {
        if !self.find_blocks(frames, page, budget) {
            return false;
        }
        let end = (*page + EVICTION_TABLES * TABLE_PAGES).min((*page / span(TOP) + 1) * span(TOP));
        let is_evicted = self.evict(frames, account, *page..end).is_ok();
        *page = if is_evicted { end } else { TREE_PAGES };
        is_evicted
    }
}
