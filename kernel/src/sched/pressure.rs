// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory pressure: who goes when the machine is full.

use crate::cell::CellId;
use pando_machine::PageCount;

/// Chooses the cell to end when a page is needed and none can be had.
pub trait MemoryPolicy: Send {
    /// The victim among the living cells, given what each has.
    fn victim(&mut self, cells: &mut dyn Iterator<Item = (CellId, PageCount)>) -> Option<CellId>;
}

/// Shares are equal, so the cell that has most exceeds its own most.
#[derive(Debug, Default)]
pub struct LargestFirst;

impl MemoryPolicy for LargestFirst {
    fn victim(&mut self, cells: &mut dyn Iterator<Item = (CellId, PageCount)>) -> Option<CellId> {
        cells.max_by_key(|(_, used)| *used).map(|(cell, _)| cell)
    }
}
