// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages as prefetching names them.

use crate::memory::tree::{TREE_PAGES, span};
use pando_abi::layout::SLOTS;
use pando_abi::limits::MAX_SPACES;
use serde::{Deserialize, Serialize};

/// A page of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(in crate::memory) struct VirtualPage {
    pub(in crate::memory) slot: u32,
    /// Pages from the start of the slot.
    pub(in crate::memory) number: u64,
}

/// A page of one of a cell's address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(in crate::memory) struct CellPage {
    pub(in crate::memory) space: u32,
    pub(in crate::memory) at: VirtualPage,
}

impl CellPage {
    /// Whether a cell can have such a page.
    pub(super) fn is_possible(self) -> bool {
        self.space < MAX_SPACES && (self.at.slot as usize) < SLOTS && self.at.number < TREE_PAGES
    }

    /// The number of the large page that contains it, with its space and slot.
    pub(in crate::memory) fn large(self) -> (u32, u32, u64) {
        (self.space, self.at.slot, self.at.number / span(2))
    }
}

/// A page that a clone has accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PageAccess {
    pub(in crate::memory) page: CellPage,
    /// Whether it was written, not only read.
    pub(in crate::memory) is_written: bool,
}
