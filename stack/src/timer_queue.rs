// SPDX-License-Identifier: MIT OR Apache-2.0
//! A timer queue: at most one deadline per key, in an ordered set, so that finding the next and moving one are O(log n).

use alloc::collections::{BTreeMap, BTreeSet};

/// Deadlines, at most one for each key.
#[derive(Debug)]
pub(crate) struct TimerQueue<K> {
    deadlines: BTreeMap<K, u64>,
    order: BTreeSet<(u64, K)>,
}

impl<K: Ord + Copy> TimerQueue<K> {
    pub(crate) const fn new() -> Self {
        Self { deadlines: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Sets or moves the deadline of a key; `None` removes it.
    pub(crate) fn set(&mut self, key: K, moment: Option<u64>) {
        let before = match moment {
            Some(moment) => self.deadlines.insert(key, moment),
            None => self.deadlines.remove(&key),
        };
        if before == moment {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, key));
        }
        if let Some(moment) = moment {
            self.order.insert((moment, key));
        }
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        self.order.first().map(|(moment, _)| *moment)
    }

    /// Removes and returns a key whose deadline has passed.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<K> {
        let (_, key) = *self.order.first().filter(|(moment, _)| *moment <= now)?;
        self.set(key, None);
        Some(key)
    }
}
