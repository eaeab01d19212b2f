// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signal actions: `sigaction` and its flags.

use super::{Set, Signal};

/// Words of `struct sigaction` as the system call knows it: handler, flags, restorer, mask.
pub const ACTION_WORDS: usize = 4;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;

/// Flags of an action.
pub mod flag {
    /// `SA_NOCLDWAIT`: children that end leave no zombies.
    pub const NO_CHILD_WAIT: u64 = 2;
    /// `SA_NOCLDSTOP`: no notification when children stop.
    pub const NO_CHILD_STOP: u64 = 1;
    /// `SA_SIGINFO`: the handler gets the siginfo and the context.
    pub const SIGINFO: u64 = 4;
    /// `SA_RESTORER`: the restorer is set.
    pub const RESTORER: u64 = 0x0400_0000;
    /// `SA_ONSTACK`: run on the alternate stack.
    pub const ON_STACK: u64 = 0x0800_0000;
    /// `SA_RESTART`: restart interrupted calls.
    pub const RESTART: u64 = 0x1000_0000;
    /// `SA_NODEFER`: do not block the signal while its handler runs.
    pub const NO_DEFER: u64 = 0x4000_0000;
    /// `SA_RESETHAND`: back to the default action after the first signal.
    pub const RESET: u64 = 0x8000_0000;
    /// All known flags, with those for children and tagged addresses.
    pub const ALL: u64 = 3 | 0x800 | SIGINFO | RESTORER | ON_STACK | RESTART | NO_DEFER | RESET;
}

/// The action for a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// The handler's address, or `SIG_DFL` or `SIG_IGN`.
    pub handler: u64,
    /// Bits of [`flag`].
    pub flags: u64,
    /// The address that the handler returns to.
    pub restorer: u64,
    /// Signals that are blocked while the handler runs.
    pub mask: Set,
}

/// The effect of a signal.
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
    /// The action of a `struct sigaction`. Unknown flags are dropped, so that programs can probe for them.
    #[must_use]
    pub fn from_words([handler, flags, restorer, mask]: [u64; ACTION_WORDS]) -> Action {
        Action { handler, flags: flags & flag::ALL, restorer, mask: Set(mask) }
    }

    /// The words of the `struct sigaction`.
    #[must_use]
    pub fn to_words(self) -> [u64; ACTION_WORDS] {
        [self.handler, self.flags, self.restorer, self.mask.0]
    }

    /// The action that ignores a signal.
    #[must_use]
    pub fn ignoring() -> Action {
        Action { handler: SIG_IGN, ..Action::default() }
    }

    /// Whether it is the default action.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.handler == SIG_DFL
    }

    /// Whether it explicitly ignores the signal.
    #[must_use]
    pub fn is_ignoring(&self) -> bool {
        self.handler == SIG_IGN
    }

    /// The effect of a signal with this action.
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
