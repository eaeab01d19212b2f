// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: what a program asked for is recorded. Handlers do not run yet.

use crate::errno::Errno;

/// How many signals there are, numbered from 1.
const SIGNALS: usize = 64;
/// Words of `struct sigaction` as the system call knows it: handler, flags, restorer, mask.
pub const ACTION_WORDS: usize = 4;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SS_DISABLE: u64 = 2;

/// A signal's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub u8);

#[expect(missing_docs, reason = "the standard names")]
impl Signal {
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
    pub mask: u64,
    /// `stack_t`: pointer, flags, size.
    pub stack: [u64; 3],
}

impl Default for Signals {
    fn default() -> Signals {
        Signals { actions: [[SIG_DFL; ACTION_WORDS]; SIGNALS], mask: 0, stack: [0, SS_DISABLE, 0] }
    }
}

impl Signals {
    /// The words of `struct sigaction` for a signal.
    pub fn action(&mut self, signal: Signal) -> &mut [u64; ACTION_WORDS] {
        &mut self.actions[usize::from(signal.0) - 1]
    }

    /// Whether a signal that the process sends itself changes nothing.
    #[must_use]
    pub fn ignores(&self, signal: Signal) -> bool {
        let [handler, ..] = self.actions[usize::from(signal.0) - 1];
        handler == SIG_IGN || handler == SIG_DFL && signal.ignored_by_default()
    }
}
