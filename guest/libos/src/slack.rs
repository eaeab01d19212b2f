// SPDX-License-Identifier: MIT OR Apache-2.0
//! How late a thread's waiting may end (`PR_SET_TIMERSLACK`): whoever waits for microseconds gives others a turn meanwhile.

/// Nanoseconds by which waiting may end late if nobody says otherwise.
const USUAL: u64 = 50_000;

/// Nanoseconds by which a thread's waiting may end late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slack {
    now: u64,
    /// Those that it began with.
    first: u64,
}

impl Slack {
    /// By how much now.
    #[must_use]
    pub fn nanoseconds(self) -> u64 {
        self.now
    }

    /// Sets it; 0: what it was at first.
    pub fn set(&mut self, nanoseconds: u64) {
        self.now = if nanoseconds == 0 { self.first } else { nanoseconds };
    }

    /// What a new thread has that this one makes.
    #[must_use]
    pub fn inherited(self) -> Slack {
        Slack { now: self.now, first: self.now }
    }
}

impl Default for Slack {
    fn default() -> Slack {
        Slack { now: USUAL, first: USUAL }
    }
}
