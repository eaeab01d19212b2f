// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory pressure: which cell is ended when the machine is out of memory.

use crate::cell::CellId;
use pando_machine::PageCount;

/// Chooses the cell to end when a page is needed and none is free.
pub trait MemoryPolicy: Send {
    /// Chooses the victim among the living cells, given the memory that each uses.
    fn victim(&mut self, cells: &mut dyn Iterator<Item = (CellId, PageCount)>) -> Option<CellId>;
}

/// Ends the cell that uses most memory: shares are equal, so it exceeds its own most.
#[derive(Debug, Default)]
pub struct LargestFirst;

impl MemoryPolicy for LargestFirst {
    fn victim(&mut self, cells: &mut dyn Iterator<Item = (CellId, PageCount)>) -> Option<CellId> {
        cells.max_by_key(|(_, used)| *used).map(|(cell, _)| cell)
    }
}
