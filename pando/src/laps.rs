// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the parts of a run took.

use std::time::{Duration, Instant};

/// A stopwatch whose laps have names.
#[derive(Debug)]
pub(crate) struct Laps {
    since: Instant,
    laps: Vec<(&'static str, Duration)>,
}

impl Laps {
    /// Starts the first lap.
    pub(crate) fn start() -> Laps {
        Laps { since: Instant::now(), laps: Vec::new() }
    }

    /// Ends a lap and starts the next.
    pub(crate) fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.laps.push((name, now - self.since));
        self.since = now;
    }

    /// The laps that have ended, in order.
    pub(crate) fn ended(&self) -> &[(&'static str, Duration)] {
        &self.laps
    }
}
