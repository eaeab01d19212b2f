// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of idle cells, in the order in which they fall asleep.
//!
//! A search for a cell that can sleep, because memory is short, takes cells out of turn. Those that cannot sleep leave the queue for some
//! time. So each step of a search makes the queue shorter, and a search ends, also one of many steps by several threads.

use crate::cell::CellId;
use pando_machine::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A class of idle cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleClass {
    /// Cells by the time at which they fall asleep if no event comes.
    Waiting,
    /// Cells that could not sleep when memory was short, by the time at which they are tried again.
    Deferred,
    /// Cells that can sleep, but have just woken up, by the time until which they are spared.
    JustWoken,
}

/// The position of a cell in the queue. An entry of the queue is valid if it agrees with the place that its cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdlePosition {
    pub(super) class: IdleClass,
    pub(super) at: Nanos,
}

/// The queue of idle cells. It may have entries that are not valid.
#[derive(Debug, Default)]
pub(super) struct IdleQueue {
    waiting: BinaryHeap<Reverse<(Nanos, CellId)>>,
    deferred: BinaryHeap<Reverse<(Nanos, CellId)>>,
    just_woken: BinaryHeap<Reverse<(Nanos, CellId)>>,
}

impl IdleQueue {
    /// Adds an entry. O(log n).
    pub(super) fn push(&mut self, id: CellId, place: IdlePosition) {
        self.class(place.class).push(Reverse((place.at, id)));
    }

    /// Takes the first entry whose time has come. O(log n).
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<(CellId, IdlePosition)> {
        [IdleClass::Deferred, IdleClass::JustWoken, IdleClass::Waiting].into_iter().find_map(|class| self.pop_class(class, now))
    }

    /// Takes the first entry for a search for memory, which does not wait for the times of `Waiting`, nor for those of `JustWoken` if there
    /// is no other and it `includes_woken`. O(log n).
    pub(super) fn pop_first(&mut self, now: Nanos, includes_woken: bool) -> Option<(CellId, IdlePosition)> {
        let woken_until = if includes_woken { Nanos::NEVER } else { now };
        self.pop_class(IdleClass::Deferred, now)
            .or_else(|| self.pop_class(IdleClass::JustWoken, now))
            .or_else(|| self.pop_class(IdleClass::Waiting, Nanos::NEVER))
            .or_else(|| self.pop_class(IdleClass::JustWoken, woken_until))
    }

    /// When the time of the next entry comes.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        [&self.waiting, &self.deferred, &self.just_woken].into_iter().filter_map(|class| class.peek()).map(|Reverse((at, _))| *at).min()
    }

    /// Whether a search for memory, which may take cells that have just woken up, has cells to look at.
    pub(super) fn has_candidates(&self) -> bool {
        !self.waiting.is_empty() || !self.just_woken.is_empty()
    }

    /// When the first of the deferred cells is tried again.
    pub(super) fn next_deferred(&self) -> Option<Nanos> {
        self.deferred.peek().map(|Reverse((at, _))| *at)
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.deferred.len() + self.just_woken.len()
    }

    /// Removes the entries that are not valid. O(n).
    pub(super) fn retain(&mut self, mut is_valid: impl FnMut(CellId, IdlePosition) -> bool) {
        for class in [IdleClass::Waiting, IdleClass::Deferred, IdleClass::JustWoken] {
            self.class(class).retain(|Reverse((at, id))| is_valid(*id, IdlePosition { class, at: *at }));
        }
    }

    fn class(&mut self, class: IdleClass) -> &mut BinaryHeap<Reverse<(Nanos, CellId)>> {
        match class {
            IdleClass::Waiting => &mut self.waiting,
            IdleClass::Deferred => &mut self.deferred,
            IdleClass::JustWoken => &mut self.just_woken,
        }
    }

    fn pop_class(&mut self, class: IdleClass, until: Nanos) -> Option<(CellId, IdlePosition)> {
        let entries = self.class(class);
        entries.peek().filter(|Reverse((at, _))| *at <= until)?;
        entries.pop().map(|Reverse((at, id))| (id, IdlePosition { class, at }))
    }
}
