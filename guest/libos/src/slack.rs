// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timer slack of a thread (`PR_SET_TIMERSLACK`): a thread that waits for microseconds gives others a turn meanwhile.

/// Default slack in nanoseconds.
const USUAL: u64 = 50_000;

/// The nanoseconds by which a thread's waiting may end late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slack {
    now: u64,
    /// The value that it began with.
    first: u64,
}

impl Slack {
    /// The present slack.
    #[must_use]
    pub fn nanoseconds(self) -> u64 {
        self.now
    }

    /// Sets the slack; 0: back to the first value.
    pub fn set(&mut self, nanoseconds: u64) {
        self.now = if nanoseconds == 0 { self.first } else { nanoseconds };
    }

    /// The slack of a new thread that this one creates.
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
