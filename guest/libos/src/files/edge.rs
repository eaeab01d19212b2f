// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of files, for edge-triggered waiting.
//!
//! Readiness is queried on demand. But only the file itself can record that another event occurred while it was ready.

use super::poll::{READING, WRITING};
use crate::event_time::next_event_time;

/// The times of the last events: the file became readable, became writable, or had an event that ends every wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTimes {
    input: u64,
    output: u64,
    other: u64,
}

impl EventTimes {
    /// Bytes arrived.
    pub fn input(&mut self) {
        self.input = next_event_time();
    }

    /// Space became free.
    pub fn output(&mut self) {
        self.output = next_event_time();
    }

    /// The other end was opened or closed.
    pub fn other(&mut self) {
        self.other = next_event_time();
    }

    /// The times of a read-only object that became readable then.
    #[must_use]
    pub const fn of_input(moment: u64) -> EventTimes {
        EventTimes { input: moment, output: 0, other: 0 }
    }

    /// The events that concern an end with this access.
    #[must_use]
    pub const fn seen_by(self, reads: bool, writes: bool) -> EventTimes {
        EventTimes { input: if reads { self.input } else { 0 }, output: if writes { self.output } else { 0 }, other: self.other }
    }

    /// The time when the other end was last opened or closed, which is reported to all waiters.
    #[must_use]
    pub const fn last_for_all(self) -> u64 {
        self.other
    }

    /// The time of the last event that concerns these `poll` events.
    #[must_use]
    pub fn last(self, wanted: u16) -> u64 {
        let input = if wanted & READING != 0 { self.input } else { 0 };
        let output = if wanted & WRITING != 0 { self.output } else { 0 };
        input.max(output).max(self.other)
    }
}
