// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gatekeeper: decides which started cells are admitted (Denali section 3.2.1).
//!
//! Of many cells that are started at once, few run at a time. An admitted cell *starts* until it has settled: it idles for the first time,
//! has ended, or has had its time for the start. Then the next one is admitted. So the first cells of a batch idle, and can sleep, long
//! before the last one runs.

use crate::cell::CellId;
use crate::limits::ADMISSION_FRAMES;
use pando_machine::PageCount;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Decides which waiting cells are admitted.
pub trait Gatekeeper: Send {
    /// Queues a cell for admission.
    fn enqueue(&mut self, cell: CellId);

    /// Returns the next cell to admit, given the amount of free memory. Called until it returns `None`, so the gatekeeper must
    /// account for the memory that admitted cells will soon need.
    fn admit(&mut self, free: PageCount) -> Option<CellId>;

    /// Whether cells wait for memory, and nothing else: the kernel then frees what it can.
    fn awaits_memory(&self) -> bool;

    /// A request needs a waiting cell now. By default it keeps its place.
    fn expedite(&mut self, _cell: CellId) {}

    /// An admitted cell does not start any more, or a waiting one has ended. By default nothing follows from that.
    fn settle(&mut self, _cell: CellId) {}

    /// Whether a cell that is queued now is admitted at once, given enough memory.
    fn has_room(&self) -> bool {
        true
    }
}

/// First in, first out, as long as a minimum of memory is free and no more than a number of cells start. Cells that a request needs come
/// first, and beyond that number.
#[derive(Debug)]
pub struct Fifo {
    waiting: BTreeMap<Place, CellId>,
    places: HashMap<CellId, Place>,
    /// Number of cells that were queued.
    queued: u64,
    /// Admitted cells that have not settled.
    starting: HashSet<CellId>,
    /// How many of them there may be for another one to be admitted.
    most_starting: usize,
}

/// A place in the queue. The least is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A request needs the cell.
    Expedited(u64),
    InOrder(u64),
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo::with_starts(usize::MAX)
    }
}

impl Fifo {
    /// A queue from which cells are admitted while fewer than `most_starting` start, at least one.
    #[must_use]
    pub fn with_starts(most_starting: usize) -> Fifo {
        Fifo { waiting: BTreeMap::new(), places: HashMap::new(), queued: 0, starting: HashSet::new(), most_starting: most_starting.max(1) }
    }

    /// Whether the first cell may start, given enough memory.
    fn first_may_start(&self) -> bool {
        match self.waiting.first_key_value() {
            Some((Place::Expedited(_), _)) => true,
            Some((Place::InOrder(_), _)) => self.starting.len() < self.most_starting,
            None => false,
        }
    }

    fn insert(&mut self, cell: CellId, place: Place) {
        self.waiting.insert(place, cell);
        self.places.insert(cell, place);
    }
}

impl Gatekeeper for Fifo {
    fn enqueue(&mut self, cell: CellId) {
        self.queued += 1;
        self.insert(cell, Place::InOrder(self.queued));
    }

    fn admit(&mut self, free: PageCount) -> Option<CellId> {
        if free.0 < ADMISSION_FRAMES || !self.first_may_start() {
            return None;
        }
        let (_, cell) = self.waiting.pop_first()?;
        self.places.remove(&cell);
        self.starting.insert(cell);
        Some(cell)
    }

    fn awaits_memory(&self) -> bool {
        self.first_may_start()
    }

    fn expedite(&mut self, cell: CellId) {
        if let Some(Place::InOrder(number)) = self.places.get(&cell).copied() {
            self.waiting.remove(&Place::InOrder(number));
            self.insert(cell, Place::Expedited(number));
        }
    }

    fn settle(&mut self, cell: CellId) {
        self.starting.remove(&cell);
        if let Some(place) = self.places.remove(&cell) {
            self.waiting.remove(&place);
        }
    }

    fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.starting.len() < self.most_starting
    }
}

#[cfg(test)]
mod tests {
    use super::{Fifo, Gatekeeper};
    use crate::cell::CellId;
    use crate::limits::ADMISSION_FRAMES;
    use pando_machine::PageCount;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, VecDeque};

    const ENOUGH: PageCount = PageCount(ADMISSION_FRAMES);

    fn cell(index: u32) -> CellId {
        CellId { index, generation: 0 }
    }

    proptest! {
        /// Against a model with lists: cells are admitted in order, those that are needed first, each once, and none that has ended. No
        /// more start than allowed, except those that are needed. If all settle, all are admitted.
        #[test]
        fn cells_are_admitted_in_order_and_few_at_a_time(most in 1..5_usize, steps in prop::collection::vec((0..4_u8, 0..24_u32), 0..200)) {
            let mut fifo = Fifo::with_starts(most);
            let (mut next, mut waiting, mut needed) = (0, VecDeque::new(), BTreeSet::new());
            let mut starting = BTreeSet::new();
            let settles = (0..400).map(|index| (2, index));
            for (step, index) in steps.into_iter().chain(settles) {
                match step {
                    0 => {
                        fifo.enqueue(cell(next));
                        waiting.push_back(next);
                        next += 1;
                    }
                    1 if waiting.contains(&index) => {
                        fifo.expedite(cell(index));
                        needed.insert(index);
                    }
                    // Not queued: nothing follows.
                    1 => fifo.expedite(cell(index)),
                    2 => {
                        fifo.settle(cell(index));
                        waiting.retain(|other| *other != index);
                        needed.remove(&index);
                        starting.remove(&index);
                    }
                    _ => prop_assert_eq!(fifo.admit(PageCount(ADMISSION_FRAMES - 1)), None),
                }
                loop {
                    let expected = needed.first().copied().or_else(|| waiting.front().copied().filter(|_| starting.len() < most));
                    prop_assert_eq!(fifo.awaits_memory(), expected.is_some());
                    prop_assert_eq!(fifo.admit(ENOUGH), expected.map(cell));
                    let Some(index) = expected else { break };
                    waiting.retain(|other| *other != index);
                    needed.remove(&index);
                    starting.insert(index);
                }
                prop_assert_eq!(fifo.has_room(), waiting.is_empty() && starting.len() < most);
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
