// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timings of the phases of a run.

use std::time::{Duration, Instant};

/// A stopwatch with named phases.
#[derive(Debug)]
pub struct Timings {
    since: Instant,
    timings: Vec<(&'static str, Duration)>,
}

impl Timings {
    /// Starts the first phase.
    pub fn start() -> Timings {
        Timings { since: Instant::now(), timings: Vec::new() }
    }

    /// Ends a phase and starts the next.
    pub fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.timings.push((name, now - self.since));
        self.since = now;
    }

    /// The ended phases, in order.
    pub fn ended(&self) -> &[(&'static str, Duration)] {
        &self.timings
    }
}
