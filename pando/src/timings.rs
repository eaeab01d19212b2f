// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timings of the phases of a run.

use std::time::{Duration, Instant};

/// A stopwatch with named phases.
#[derive(Debug)]
pub(crate) struct Timings {
    since: Instant,
    timings: Vec<(&'static str, Duration)>,
}

impl Timings {
    /// Starts the first phase.
    pub(crate) fn start() -> Timings {
        Timings { since: Instant::now(), timings: Vec::new() }
    }

    /// Ends a phase and starts the next.
    pub(crate) fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.timings.push((name, now - self.since));
        self.since = now;
    }

    /// The ended phases, in order.
    pub(crate) fn ended(&self) -> &[(&'static str, Duration)] {
        &self.timings
    }
}
