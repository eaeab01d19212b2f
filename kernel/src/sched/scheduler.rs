// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler: decides which runnable cell runs next (Denali section 3.2.1).

use crate::cell::CellId;
use crate::limits::OVERTAKING;
use std::collections::VecDeque;

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

/// Orders runnable cells. It may still name a cell that has ended; the core loop skips it.
pub trait Scheduler: Send {
    /// A cell has become runnable.
    fn ready(&mut self, cell: CellId, reason: ReadyReason);

    /// Takes the next cell to run.
    fn next(&mut self) -> Option<CellId>;

    /// Whether no cell is runnable.
    fn is_empty(&self) -> bool;

    /// Whether a waiting cell must run before the running cell's quantum is over. By default none does: events wait for a cell's
    /// next turn and are delivered together (Denali section 3.1.3).
    fn is_urgent(&self) -> bool {
        false
    }
}

/// Round robin. Cells that return from idling are compensated: they go first, but at most [`OVERTAKING`] times in a row.
#[derive(Debug, Default)]
pub struct RoundRobin {
    woken: VecDeque<CellId>,
    others: VecDeque<CellId>,
    overtaken: u32,
}

impl Scheduler for RoundRobin {
    fn ready(&mut self, cell: CellId, reason: ReadyReason) {
        match reason {
            ReadyReason::Turn => self.others.push_back(cell),
            ReadyReason::Interrupted => self.others.push_front(cell),
            ReadyReason::Woken => self.woken.push_back(cell),
        }
    }

    fn next(&mut self) -> Option<CellId> {
        if self.overtaken < OVERTAKING
            && let Some(cell) = self.woken.pop_front()
        {
            if !self.others.is_empty() {
                self.overtaken += 1;
            }
            return Some(cell);
        }
        self.overtaken = 0;
        self.others.pop_front().or_else(|| self.woken.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.woken.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{ReadyReason, RoundRobin, Scheduler};
    use crate::cell::CellId;
    use crate::limits::OVERTAKING;

    const fn cell(index: u32) -> CellId {
        CellId { index, generation: 0 }
    }

    #[test]
    fn idlers_go_first_but_starve_nobody() {
        let mut scheduler = RoundRobin::default();
        scheduler.ready(cell(0), ReadyReason::Turn);
        for _ in 0..OVERTAKING {
            scheduler.ready(cell(1), ReadyReason::Woken);
            assert_eq!(scheduler.next(), Some(cell(1)));
        }
        scheduler.ready(cell(1), ReadyReason::Woken);
        assert_eq!(scheduler.next(), Some(cell(0)));
        assert_eq!(scheduler.next(), Some(cell(1)));
        assert_eq!(scheduler.next(), None);
    }

    #[test]
    fn an_interrupted_cell_is_the_first_of_the_others() {
        let mut scheduler = RoundRobin::default();
        scheduler.ready(cell(0), ReadyReason::Turn);
        scheduler.ready(cell(1), ReadyReason::Interrupted);
        scheduler.ready(cell(2), ReadyReason::Woken);
        let order: Vec<_> = std::iter::from_fn(|| scheduler.next()).collect();
        assert_eq!(order, vec![cell(2), cell(1), cell(0)]);
    }

    #[test]
    fn the_others_take_turns() {
        let mut scheduler = RoundRobin::default();
        for round in 0..3 {
            for index in 0..3 {
                scheduler.ready(cell(index), ReadyReason::Turn);
            }
            let order: Vec<_> = std::iter::from_fn(|| scheduler.next()).collect();
            assert_eq!((round, order), (round, vec![cell(0), cell(1), cell(2)]));
        }
    }
}
