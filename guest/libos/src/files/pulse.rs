// SPDX-License-Identifier: MIT OR Apache-2.0
//! When something last happened to a file that may have made it ready: what edge-triggered waiting is about.
//!
//! Whether a file is ready is asked when somebody wants to know; that it became so once more, although it was ready all the time, only the file itself can remember.
//! It remembers moments of one order for the whole cell, so that they can be compared and sorted.

use core::sync::atomic::{AtomicU64, Ordering};

use super::poll::{READING, WRITING};

/// The last moment at which something happened. It does not begin with zero, so that it lies with the other data that every clone writes, and costs none a page.
static LAST: AtomicU64 = AtomicU64::new(1);

/// A moment of its own, after all others.
#[must_use]
pub fn moment() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The moments at which a file last became readable, writable, or something else that ends every wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    input: u64,
    output: u64,
    other: u64,
}

impl Pulse {
    /// There is more to read.
    pub fn input(&mut self) {
        self.input = moment();
    }

    /// There is more room.
    pub fn output(&mut self) {
        self.output = moment();
    }

    /// The other end came or went.
    pub fn other(&mut self) {
        self.other = moment();
    }

    /// Of something that is only read, and became readable then.
    #[must_use]
    pub const fn of_input(moment: u64) -> Pulse {
        Pulse { input: moment, output: 0, other: 0 }
    }

    /// What of it an end sees that reads, or writes.
    #[must_use]
    pub const fn seen_by(self, reads: bool, writes: bool) -> Pulse {
        Pulse { input: if reads { self.input } else { 0 }, output: if writes { self.output } else { 0 }, other: self.other }
    }

    /// The last moment at which the other end came or went, which all are told.
    #[must_use]
    pub const fn last_for_all(self) -> u64 {
        self.other
    }

    /// The last moment that matters to who wants these events.
    #[must_use]
    pub fn last(self, wanted: u16) -> u64 {
        let input = if wanted & READING != 0 { self.input } else { 0 };
        let output = if wanted & WRITING != 0 { self.output } else { 0 };
        input.max(output).max(self.other)
    }
}
