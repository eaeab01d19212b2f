// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program wants done when a signal comes.

use super::{Set, Signal};

/// Words of `struct sigaction` as the system call knows it: handler, flags, restorer, mask.
pub const ACTION_WORDS: usize = 4;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;

/// Flags of an action.
pub mod flag {
    /// Children that end are forgotten.
    pub const NO_CHILD_WAIT: u64 = 2;
    /// Children that stop are not told of.
    pub const NO_CHILD_STOP: u64 = 1;
    /// The handler is told more than the number.
    pub const SIGINFO: u64 = 4;
    /// The restorer is given.
    pub const RESTORER: u64 = 0x0400_0000;
    /// Run on the alternate stack.
    pub const ON_STACK: u64 = 0x0800_0000;
    /// Make interrupted calls again.
    pub const RESTART: u64 = 0x1000_0000;
    /// Do not block the signal while its handler runs.
    pub const NO_DEFER: u64 = 0x4000_0000;
    /// The next time do what is the default.
    pub const RESET: u64 = 0x8000_0000;
    /// All that have a meaning, with those about children and tagged addresses.
    pub const ALL: u64 = 3 | 0x800 | SIGINFO | RESTORER | ON_STACK | RESTART | NO_DEFER | RESET;
}

/// What to do when a signal comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// Where the handler is, or one of two special values.
    pub handler: u64,
    /// Bits of [`flag`].
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// What is blocked while it runs.
    pub mask: Set,
}

/// What that comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Nothing.
    Ignore,
    /// The program ends.
    End,
    /// The process stops.
    Stop,
    /// The handler runs.
    Handle,
}

impl Action {
    /// The action that the words of a `struct sigaction` stand for; flags without a meaning are dropped, so that programs can ask for them.
    #[must_use]
    pub fn from_words([handler, flags, restorer, mask]: [u64; ACTION_WORDS]) -> Action {
        Action { handler, flags: flags & flag::ALL, restorer, mask: Set(mask) }
    }

    /// The words.
    #[must_use]
    pub fn to_words(self) -> [u64; ACTION_WORDS] {
        [self.handler, self.flags, self.restorer, self.mask.0]
    }

    /// What ignores a signal.
    #[must_use]
    pub fn ignoring() -> Action {
        Action { handler: SIG_IGN, ..Action::default() }
    }

    /// Whether nothing was asked for.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.handler == SIG_DFL
    }

    /// Whether it was asked to ignore the signal.
    #[must_use]
    pub fn is_ignoring(&self) -> bool {
        self.handler == SIG_IGN
    }

    /// What it comes to for a signal.
    #[must_use]
    pub fn disposition(&self, signal: Signal) -> Disposition {
        match self.handler {
            SIG_IGN => Disposition::Ignore,
            SIG_DFL if signal.ignored_by_default() => Disposition::Ignore,
            SIG_DFL if signal.stops() => Disposition::Stop,
            SIG_DFL => Disposition::End,
            _ => Disposition::Handle,
        }
    }
}
