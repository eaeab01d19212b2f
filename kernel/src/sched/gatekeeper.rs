// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gatekeeper: decides which started cells are admitted (Denali section 3.2.1).

use crate::cell::CellId;
use crate::limits::ADMISSION_FRAMES;
use pando_machine::PageCount;
use std::collections::VecDeque;

/// Decides which waiting cells are admitted.
pub trait Gatekeeper: Send {
    /// Queues a cell for admission.
    fn enqueue(&mut self, cell: CellId);

    /// Returns the next cell to admit, given the amount of free memory. Called until it returns `None`, so the gatekeeper must
    /// account for the memory that admitted cells will soon need.
    fn admit(&mut self, free: PageCount) -> Option<CellId>;

    /// Whether cells wait for admission: the kernel then frees what it can.
    fn has_waiting(&self) -> bool;
}

/// First in, first out, as long as a minimum of memory is free.
#[derive(Debug, Default)]
pub struct Fifo {
    waiting: VecDeque<CellId>,
}

impl Gatekeeper for Fifo {
    fn enqueue(&mut self, cell: CellId) {
        self.waiting.push_back(cell);
    }

    fn admit(&mut self, free: PageCount) -> Option<CellId> {
        if free.0 < ADMISSION_FRAMES {
            return None;
        }
        self.waiting.pop_front()
    }

    fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
