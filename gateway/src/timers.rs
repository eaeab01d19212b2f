// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue of timers.

use std::collections::BTreeSet;

/// Expiry times of numbered objects.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    moments: BTreeSet<(u64, usize)>,
}

impl Timers {
    pub(crate) fn add(&mut self, at: u64, index: usize) {
        self.moments.insert((at, index));
    }

    pub(crate) fn remove(&mut self, at: u64, index: usize) {
        self.moments.remove(&(at, index));
    }

    /// The number of timers.
    pub(crate) fn len(&self) -> usize {
        self.moments.len()
    }

    /// The next expiry time.
    pub(crate) fn next(&self) -> Option<u64> {
        self.moments.first().map(|(at, _)| *at)
    }

    /// Removes the first timer, expired or not.
    pub(crate) fn pop_first(&mut self) -> Option<usize> {
        self.moments.pop_first().map(|(_, index)| index)
    }

    /// Removes an expired timer.
    pub(crate) fn pop_expired(&mut self, now: u64) -> Option<usize> {
        self.next().filter(|at| *at <= now).and_then(|_| self.pop_first())
    }
}
