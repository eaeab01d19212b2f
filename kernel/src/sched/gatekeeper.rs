// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gatekeeper: which started cells are let in (Denali section 3.2.1).

use crate::cell::CellId;
use crate::limits::ADMISSION_FRAMES;
use pando_machine::PageCount;
use std::collections::VecDeque;

/// Decides which waiting cells may take part.
pub trait Gatekeeper: Send {
    /// A cell asks to be let in.
    fn ask(&mut self, cell: CellId);

    /// The next cell to let in, given how much memory is free. Called until it returns `None`, so memory that a cell will need soon is the gatekeeper's to reckon with.
    fn admit(&mut self, free: PageCount) -> Option<CellId>;

    /// Whether somebody waits: the kernel then frees what it can.
    fn is_waited_for(&self) -> bool;
}

/// In order of asking, as long as a minimum of memory is free.
#[derive(Debug, Default)]
pub struct Fifo {
    waiting: VecDeque<CellId>,
}

impl Gatekeeper for Fifo {
    fn ask(&mut self, cell: CellId) {
        self.waiting.push_back(cell);
    }

    fn admit(&mut self, free: PageCount) -> Option<CellId> {
        if free.0 < ADMISSION_FRAMES {
            return None;
        }
        self.waiting.pop_front()
    }

    fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }
}
