// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signal actions: `sigaction` and its flags.

use super::{Signal, SignalSet};
use crate::uapi::{
    SA_EXPOSE_TAGBITS, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER, SA_SIGINFO, SIG_DFL,
    SIG_IGN,
};

/// Words of `struct sigaction` as the system call knows it: handler, flags, restorer, mask.
pub const ACTION_WORDS: usize = 4;

/// All known flags (`UAPI_SA_FLAGS` of `include/linux/signal_types.h`, with `SA_RESTORER`).
const KNOWN_FLAGS: u64 =
    SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_EXPOSE_TAGBITS | SA_RESTORER | SA_ONSTACK | SA_RESTART | SA_NODEFER | SA_RESETHAND;

/// The action for a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// The handler's address, or `SIG_DFL` or `SIG_IGN`.
    pub handler: u64,
    /// Flags such as [`SA_RESTART`].
    pub flags: u64,
    /// The address that the handler returns to.
    pub restorer: u64,
    /// Signals that are blocked while the handler runs.
    pub mask: SignalSet,
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
        Action { handler, flags: flags & KNOWN_FLAGS, restorer, mask: SignalSet(mask) }
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
