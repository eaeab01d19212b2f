// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moments at which something is over, in their order.

use std::collections::BTreeSet;

/// Moments of things that are known by numbers.
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.moments.len()
    }

    /// The next moment.
    pub(crate) fn next(&self) -> Option<u64> {
        self.moments.first().map(|(at, _)| *at)
    }

    /// Takes the first, whenever it is.
    pub(crate) fn first(&mut self) -> Option<usize> {
        self.moments.pop_first().map(|(_, index)| index)
    }

    /// Takes one whose moment has come.
    pub(crate) fn due(&mut self, now: u64) -> Option<usize> {
        self.next().filter(|at| *at <= now).and_then(|_| self.first())
    }
}
