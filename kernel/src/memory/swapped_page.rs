// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that a cell's parent has taken: their swap numbers, and the accesses that must wait for them.
//!
//! The entry of a taken page keeps a number that the parent has chosen, as swap entries of Linux do. The kernel attaches no meaning to it.
//! Copies of the entry have the same number, so a cloned space needs the same content.

use pando_abi::layout::SLOT_SIZE;
use pando_abi::{PAGE_SIZE, SpaceIndex};

/// The number by which a parent finds the content of a page that it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SwapNumber(pub u32);

impl SwapNumber {
    /// The number of the page `pages` pages later in the same run.
    #[must_use]
    pub const fn offset(self, pages: u64) -> SwapNumber {
        SwapNumber(self.0.wrapping_add(pages as u32))
    }
}

/// A taken page that an access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenPage {
    /// The space.
    pub space: SpaceIndex,
    /// The address of the page.
    pub address: u64,
    /// Its swap number.
    pub number: SwapNumber,
}

impl TakenPage {
    /// A page of a tree, which does not know where it is mounted: [`TakenPage::in_slot`] adds that.
    pub(in crate::memory) const fn of_tree(page: u64, number: SwapNumber) -> TakenPage {
        TakenPage { space: SpaceIndex(0), address: page * PAGE_SIZE, number }
    }

    /// The same page of the tree, in this slot of a space.
    #[must_use]
    pub(in crate::memory) const fn in_slot(self, space: SpaceIndex, slot: usize) -> TakenPage {
        TakenPage { space, address: self.address % SLOT_SIZE + slot as u64 * SLOT_SIZE, number: self.number }
    }
}
