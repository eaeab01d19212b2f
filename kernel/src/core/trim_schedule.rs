// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schedule of [trims](super::trim).
//!
//! A trim is due once no cell has run for [`IDLE_BEFORE_TRIM`], at most every [`TRIM_INTERVAL`], and once after each time that a cell ran.
//! So a busy kernel never trims, and a kernel that has nothing to trim sets no timer.

use crate::limits::{IDLE_BEFORE_TRIM, TRIM_INTERVAL};
use pando_machine::Nanos;

/// The time of the next trim.
#[derive(Debug)]
pub(super) struct TrimSchedule {
    is_enabled: bool,
    /// When it is due if no cell runs before. [`Nanos::NEVER`]: nothing has run since the last one.
    due: Nanos,
    /// The earliest time that it may be due.
    earliest: Nanos,
    /// Number of trims that have begun.
    count: u64,
}

impl TrimSchedule {
    /// Nothing is due yet.
    pub(super) fn new(is_enabled: bool) -> TrimSchedule {
        TrimSchedule { is_enabled, due: Nanos::NEVER, earliest: Nanos(0), count: 0 }
    }

    /// Records that a cell has run until `now`.
    pub(super) fn note_run(&mut self, now: Nanos) {
        if self.is_enabled {
            self.due = (now + IDLE_BEFORE_TRIM).max(self.earliest);
        }
    }

    /// When one is due if no cell runs before.
    pub(super) fn due(&self) -> Nanos {
        self.due
    }

    /// Number of trims that have begun.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Records that a trim begins.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.due = Nanos::NEVER;
        self.earliest = now + TRIM_INTERVAL;
        self.count += 1;
    }
}
