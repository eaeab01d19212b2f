// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler: decides which runnable cell runs next (Denali section 3.2.1).

use crate::cell::CellId;
use crate::cell::cpu_limit::Weight;
use std::time::Duration;

/// Why a cell became runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyReason {
    /// It used up its quantum, or was just admitted.
    Turn,
    /// It was interrupted in the middle of its quantum and keeps the rest.
    Interrupted,
    /// It returns from idling.
    Woken,
}

/// Orders runnable cells. It may still name a cell that has ended; the core loop skips it. A policy that does not know families need not
/// implement the calls about them.
pub trait Scheduler: Send {
    /// A cell has become runnable.
    fn ready(&mut self, cell: CellId, reason: ReadyReason);

    /// Takes the next cell to run.
    fn next(&mut self) -> Option<CellId>;

    /// Takes a certain cell, out of turn. Returns whether it was runnable, and may overtake others; by default no cell is taken.
    fn take(&mut self, _cell: CellId) -> bool {
        false
    }

    /// Whether no cell is runnable.
    fn is_empty(&self) -> bool;

    /// Whether a waiting cell must run before the running cell's quantum is over. By default none does: events wait for a cell's
    /// next turn and are delivered together (Denali section 3.1.3).
    fn is_urgent(&self) -> bool {
        false
    }

    /// A cell was created by the operator, or by its parent. It is not runnable yet.
    fn add(&mut self, _cell: CellId, _parent: Option<CellId>) {}

    /// A cell has ended. Its children will end as well, and need not run any more.
    fn remove(&mut self, _cell: CellId) {}

    /// Sets the weight of a cell with its descendants, among its siblings.
    fn set_weight(&mut self, _cell: CellId, _weight: Weight) {}

    /// The weight of a cell among its siblings.
    fn weight(&self, _cell: CellId) -> Weight {
        Weight::DEFAULT
    }

    /// Charges a cell for time on a vCPU, and the places of `members` among their siblings: the cell itself and some of its ancestors,
    /// each the parent of the one before. Those that have ended are skipped.
    fn charge(&mut self, _cell: CellId, _members: &[CellId], _time: Duration) {}

    /// Takes the next cell to run of a family: a cell with its descendants. By default there is none.
    fn next_of_family(&mut self, _cell: CellId) -> Option<CellId> {
        None
    }
}
