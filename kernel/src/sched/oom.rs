// SPDX-License-Identifier: MIT OR Apache-2.0
//! The out-of-memory (OOM) policy: which cell is ended when the machine is out of memory.

use crate::cell::CellId;
use pando_machine::PageCount;

/// Chooses the cell to end when a page is needed and none is free.
pub trait OomPolicy: Send {
    /// Chooses the victim among the living cells, given the memory that each uses.
    fn victim(&mut self, cells: &mut dyn Iterator<Item = (CellId, PageCount)>) -> Option<CellId>;
}

/// Ends the cell that uses most memory.
#[derive(Debug, Default)]
pub struct LargestFirst;

impl OomPolicy for LargestFirst {
    fn victim(&mut self, cells: &mut dyn Iterator<Item = (CellId, PageCount)>) -> Option<CellId> {
        cells.max_by_key(|(_, used)| *used).map(|(cell, _)| cell)
    }
}
