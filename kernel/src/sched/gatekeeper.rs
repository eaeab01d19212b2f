// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gatekeeper: decides which started cells are admitted (Denali section 3.2.1).
//!
//! Of many cells that are started at once, few run at a time. The *start phase* of an admitted cell ends when it idles for the first time,
//! has ended, or has used its time for the start. Then the next one is admitted. So the first cells of a batch idle, and can sleep, long
//! before the last one runs.

use crate::cell::CellId;
use crate::limits::ADMISSION_FRAMES;
use pando_machine::PageCount;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Decides which waiting cells are admitted.
pub trait Gatekeeper: Send {
    /// Queues a cell for admission.
    fn enqueue(&mut self, cell: CellId);

    /// Queues a cell whose parent decides when it runs. By default it is a cell like others.
    fn enqueue_nested(&mut self, cell: CellId) {
        self.enqueue(cell);
    }

    /// Returns the next cell to admit, given the amount of free memory. Called until it returns `None`, so the gatekeeper must
    /// account for the memory that admitted cells will soon need.
    fn admit(&mut self, free: PageCount) -> Option<CellId>;

    /// Whether cells wait for memory, and nothing else: the kernel then frees what it can.
    fn awaits_memory(&self) -> bool;

    /// A request needs a waiting cell now. By default it keeps its place.
    fn expedite(&mut self, _cell: CellId) {}

    /// The start of an admitted cell is over, or a waiting one has ended. By default nothing follows from that.
    fn end_start_phase(&mut self, _cell: CellId) {}

    /// Whether a cell that is queued now is admitted at once, given enough memory.
    fn has_room(&self) -> bool {
        true
    }
}

/// First in, first out, as long as a minimum of memory is free and no more than a number of cells start. Cells that a request needs come
/// first. They and nested cells are not counted: neither keeps the others waiting.
#[derive(Debug)]
pub struct Fifo {
    /// The queues of the classes, each by the order of arrival.
    waiting: [BTreeMap<u64, CellId>; CLASSES],
    places: HashMap<CellId, QueuePosition>,
    /// Number of cells that were queued.
    queued: u64,
    /// Admitted cells of the class [`Class::Ordinary`] in their start phase.
    starting: HashSet<CellId>,
    /// How many of them there may be for another one to be admitted.
    max_starting: usize,
}

/// A class of waiting cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// A request needs the cell.
    Expedited,
    Ordinary,
    Nested,
}

/// The number of classes.
const CLASSES: usize = 3;

/// A place in the queue of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueuePosition {
    class: Class,
    number: u64,
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo::with_starts(usize::MAX)
    }
}

impl Fifo {
    /// A queue from which cells are admitted while fewer than `max_starting` start, at least one.
    #[must_use]
    pub fn with_starts(max_starting: usize) -> Fifo {
        Fifo { waiting: Default::default(), places: HashMap::new(), queued: 0, starting: HashSet::new(), max_starting: max_starting.max(1) }
    }

    /// The place of the next cell, given enough memory.
    fn next(&self) -> Option<QueuePosition> {
        let first = |class: Class| {
            let (number, _) = self.waiting[class as usize].first_key_value()?;
            Some(QueuePosition { class, number: *number })
        };
        let ordinary = first(Class::Ordinary).filter(|_| self.starting.len() < self.max_starting);
        let in_order = || ordinary.into_iter().chain(first(Class::Nested)).min_by_key(|place| place.number);
        first(Class::Expedited).or_else(in_order)
    }

    fn insert(&mut self, cell: CellId, place: QueuePosition) {
        self.waiting[place.class as usize].insert(place.number, cell);
        self.places.insert(cell, place);
    }

    fn remove(&mut self, cell: CellId) -> Option<QueuePosition> {
        let place = self.places.remove(&cell)?;
        self.waiting[place.class as usize].remove(&place.number);
        Some(place)
    }

    fn append(&mut self, cell: CellId, class: Class) {
        self.queued += 1;
        self.insert(cell, QueuePosition { class, number: self.queued });
    }
}

impl Gatekeeper for Fifo {
    fn enqueue(&mut self, cell: CellId) {
        self.append(cell, Class::Ordinary);
    }

    fn enqueue_nested(&mut self, cell: CellId) {
        self.append(cell, Class::Nested);
    }

    fn admit(&mut self, free: PageCount) -> Option<CellId> {
        if free.0 < ADMISSION_FRAMES {
            return None;
        }
        let place = self.next()?;
        let cell = self.waiting[place.class as usize].remove(&place.number)?;
        self.places.remove(&cell);
        if place.class == Class::Ordinary {
            self.starting.insert(cell);
        }
        Some(cell)
    }

    fn awaits_memory(&self) -> bool {
        self.next().is_some()
    }

    fn expedite(&mut self, cell: CellId) {
        if let Some(place) = self.remove(cell) {
            self.insert(cell, QueuePosition { class: Class::Expedited, ..place });
        }
    }

    fn end_start_phase(&mut self, cell: CellId) {
        self.starting.remove(&cell);
        self.remove(cell);
    }

    fn has_room(&self) -> bool {
        self.places.is_empty() && self.starting.len() < self.max_starting
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
        /// more start than allowed; those that are needed and nested ones do not count. If all start phases end, all are admitted.
        #[test]
        fn cells_are_admitted_in_order_and_few_at_a_time(most in 1..5_usize, steps in prop::collection::vec((0..5_u8, 0..24_u32), 0..200)) {
            let mut fifo = Fifo::with_starts(most);
            let (mut next, mut waiting, mut needed, mut nested) = (0, VecDeque::new(), BTreeSet::new(), BTreeSet::new());
            let mut starting = BTreeSet::new();
            let settles = (0..400).map(|index| (2, index));
            for (step, index) in steps.into_iter().chain(settles) {
                match step {
                    0 | 1 => {
                        if step == 0 {
                            fifo.enqueue(cell(next));
                        } else {
                            fifo.enqueue_nested(cell(next));
                            nested.insert(next);
                        }
                        waiting.push_back(next);
                        next += 1;
                    }
                    2 => {
                        fifo.end_start_phase(cell(index));
                        waiting.retain(|other| *other != index);
                        needed.remove(&index);
                        starting.remove(&index);
                    }
                    3 => {
                        // If it is not queued, nothing follows.
                        fifo.expedite(cell(index));
                        needed.extend(waiting.contains(&index).then_some(index));
                    }
                    _ => prop_assert_eq!(fifo.admit(PageCount(ADMISSION_FRAMES - 1)), None),
                }
                loop {
                    let may_start = |index: &u32| nested.contains(index) || starting.len() < most;
                    let expected = needed.first().copied().or_else(|| waiting.iter().copied().find(may_start));
                    prop_assert_eq!(fifo.awaits_memory(), expected.is_some());
                    prop_assert_eq!(fifo.admit(ENOUGH), expected.map(cell));
                    let Some(index) = expected else { break };
                    waiting.retain(|other| *other != index);
                    if !needed.remove(&index) && !nested.contains(&index) {
                        starting.insert(index);
                    }
                }
                prop_assert_eq!(fifo.has_room(), waiting.is_empty() && starting.len() < most);
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
