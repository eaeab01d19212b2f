// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: what a program asked for is recorded. Handlers do not run yet.

use crate::errno::Errno;

/// How many signals there are, numbered from 1.
const SIGNALS: usize = 64;
/// Words of `struct sigaction` as the system call knows it: handler, flags, restorer, mask.
pub const ACTION_WORDS: usize = 4;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SS_ONSTACK: u64 = 1;
const SS_DISABLE: u64 = 2;
const SS_AUTODISARM: u64 = 1 << 31;
/// Bytes that a signal stack must have.
const STACK_LEAST: u64 = 2048;

/// A signal's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub u8);

#[expect(missing_docs, reason = "the standard names")]
impl Signal {
    pub const INT: Signal = Signal(2);
    pub const ILL: Signal = Signal(4);
    pub const TRAP: Signal = Signal(5);
    pub const BUS: Signal = Signal(7);
    pub const FPE: Signal = Signal(8);
    pub const KILL: Signal = Signal(9);
    pub const SEGV: Signal = Signal(11);
    pub const TERM: Signal = Signal(15);
    pub const STOP: Signal = Signal(19);
}

impl Signal {
    /// The signal with this number.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub fn from_number(number: u64) -> Result<Signal, Errno> {
        if (1..=SIGNALS as u64).contains(&number) { Ok(Signal(number as u8)) } else { Err(Errno::EINVAL) }
    }

    /// Its bit in a set.
    const fn bit(self) -> u64 {
        1 << (self.0 - 1)
    }

    /// Whether the default is to go on: `CHLD`, `CONT`, `URG`, `WINCH`; and the stopping ones, for nobody could continue the cell's only process.
    fn ignored_by_default(self) -> bool {
        matches!(self.0, 17..=23 | 28)
    }
}

/// What the program asked for.
#[derive(Debug)]
pub struct Signals {
    actions: [[u64; ACTION_WORDS]; SIGNALS],
    /// The signals that are blocked, signal n being bit n - 1.
    mask: u64,
    /// Those that came while they were blocked, and wait.
    pending: u64,
    /// `stack_t`: pointer, flags, size.
    pub stack: [u64; 3],
}

impl Default for Signals {
    fn default() -> Signals {
        Signals { actions: [[SIG_DFL; ACTION_WORDS]; SIGNALS], mask: 0, pending: 0, stack: [0, SS_DISABLE, 0] }
    }
}

/// Checks a `stack_t` that the program gave. Returns what is recorded of it.
///
/// # Errors
/// `EINVAL`: its flags mean nothing. `ENOMEM`: it is too small.
pub fn alternate_stack([pointer, flags, size]: [u64; 3]) -> Result<[u64; 3], Errno> {
    // The field has 32 bits; what follows it is padding.
    let flags = u64::from(flags as u32);
    match flags & !SS_AUTODISARM {
        SS_DISABLE => Ok([0, flags, 0]),
        0 | SS_ONSTACK if size < STACK_LEAST => Err(Errno::ENOMEM),
        0 | SS_ONSTACK => Ok([pointer, flags, size]),
        _ => Err(Errno::EINVAL),
    }
}

impl Signals {
    /// The words of `struct sigaction` for a signal.
    pub fn action(&mut self, signal: Signal) -> &mut [u64; ACTION_WORDS] {
        &mut self.actions[usize::from(signal.0) - 1]
    }

    /// The signals that are blocked.
    #[must_use]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Blocks these signals, and no others. Returns a signal that was waiting for this and ends the process.
    #[must_use]
    pub fn set_mask(&mut self, mask: u64) -> Option<Signal> {
        self.mask = mask & !(Signal::KILL.bit() | Signal::STOP.bit());
        let deliverable = self.pending & !self.mask;
        self.pending &= self.mask;
        let signals = (1..=SIGNALS as u8).map(Signal).filter(|signal| deliverable & signal.bit() != 0);
        signals.into_iter().find(|signal| !self.ignores(*signal))
    }

    /// The signals that came while they were blocked.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Takes note of a signal that the process sends itself. Says whether it ends the process now.
    pub fn takes(&mut self, signal: Signal) -> bool {
        if self.mask & signal.bit() != 0 {
            self.pending |= signal.bit();
            return false;
        }
        !self.ignores(signal)
    }

    fn ignores(&self, signal: Signal) -> bool {
        let [handler, ..] = self.actions[usize::from(signal.0) - 1];
        handler == SIG_IGN || handler == SIG_DFL && signal.ignored_by_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Signal, Signals};

    #[test]
    fn a_blocked_signal_waits_until_it_is_unblocked() {
        let user = Signal(10);
        let mut signals = Signals::default();
        assert!(signals.set_mask(user.bit() | Signal::KILL.bit()).is_none());
        assert_eq!(signals.mask(), user.bit(), "SIGKILL cannot be blocked");
        assert!(!signals.takes(user) && signals.takes(Signal::TERM));
        assert_eq!(signals.pending(), user.bit());
        assert_eq!(signals.set_mask(0), Some(user));
        assert_eq!((signals.pending(), signals.set_mask(0)), (0, None), "it comes once");
    }

    #[test]
    fn an_ignored_signal_changes_nothing() {
        let mut signals = Signals::default();
        signals.action(Signal(10))[0] = super::SIG_IGN;
        assert!(!signals.takes(Signal(10)) && !signals.takes(Signal(17)), "SIGCHLD is ignored by default");
        assert!(signals.takes(Signal(12)));
    }
}
