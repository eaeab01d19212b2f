// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: what a program asked for, and what waits to be delivered to it.
//!
//! A signal is [sent](Signals::send) at any time, also while a system call waits; it is [delivered](delivery) only when the application would run on. Stopping has no effect: the
//! process's group is orphaned, which is where Linux ignores the terminal's stop signals, and after `SIGSTOP` there would be nobody to continue it.

pub mod action;
pub mod delivery;
pub mod frame;
pub mod info;
pub mod stack;

use alloc::vec::Vec;

use crate::errno::Errno;
use action::{Action, Disposition};
use info::Info;
use stack::AlternateStack;

/// How many signals there are, numbered from 1.
const SIGNALS: usize = 64;
/// The first of those that are queued one by one.
const FIRST_REAL_TIME: u8 = 32;
/// Signals that may wait.
const PENDING_MAX: usize = 1024;

/// A signal's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub u8);

#[expect(missing_docs, reason = "the standard names")]
impl Signal {
    pub const INT: Signal = Signal(2);
    pub const QUIT: Signal = Signal(3);
    pub const ILL: Signal = Signal(4);
    pub const TRAP: Signal = Signal(5);
    pub const BUS: Signal = Signal(7);
    pub const FPE: Signal = Signal(8);
    pub const KILL: Signal = Signal(9);
    pub const SEGV: Signal = Signal(11);
    pub const PIPE: Signal = Signal(13);
    pub const ALRM: Signal = Signal(14);
    pub const TERM: Signal = Signal(15);
    pub const CONT: Signal = Signal(18);
    pub const STOP: Signal = Signal(19);
    pub const TSTP: Signal = Signal(20);
    pub const VTALRM: Signal = Signal(26);
    pub const PROF: Signal = Signal(27);
    pub const WINCH: Signal = Signal(28);
}

impl Signal {
    /// The signal with this number.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub fn from_number(number: u64) -> Result<Signal, Errno> {
        // Signals are ints: the upper half of the register says nothing.
        let number = u64::from(number as u32);
        if (1..=SIGNALS as u64).contains(&number) { Ok(Signal(number as u8)) } else { Err(Errno::EINVAL) }
    }

    /// Whether it is stopping by default.
    fn stops(self) -> bool {
        matches!(self.0, 19..=22)
    }

    /// Whether the default is to go on: `CHLD`, `CONT`, `URG`, `WINCH`, and the stopping ones.
    fn ignored_by_default(self) -> bool {
        matches!(self.0, 17..=23 | 28)
    }
}

/// A set of signals: signal n is bit n - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(pub u64);

impl Set {
    /// Those that nothing holds back.
    pub const UNSTOPPABLE: Set = Set(1 << 8 | 1 << 18);
    /// Those that instructions cause: `ILL`, `TRAP`, `BUS`, `FPE`, `SEGV`, `SYS`. They come before others.
    pub const SYNCHRONOUS: Set = Set(1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30);

    /// Whether the signal is in it.
    #[must_use]
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & 1 << (signal.0 - 1) != 0
    }

    /// The set and the signal.
    #[must_use]
    pub const fn with(self, signal: Signal) -> Set {
        Set(self.0 | 1 << (signal.0 - 1))
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub const fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    /// The set with the lowest number, those first that instructions cause.
    fn first(self) -> Option<Signal> {
        let set = if self.0 & Set::SYNCHRONOUS.0 != 0 { self.0 & Set::SYNCHRONOUS.0 } else { self.0 };
        (set != 0).then(|| Signal(set.trailing_zeros() as u8 + 1))
    }

    /// The signals in it.
    fn iter(self) -> impl Iterator<Item = Signal> {
        (1..=SIGNALS as u8).map(Signal).filter(move |signal| self.contains(*signal))
    }
}

/// The exception that came last, as frames tell it: vector, error code, address of a page fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trap {
    /// The vector.
    pub number: u64,
    /// The error code.
    pub error: u64,
    /// What a page fault touched.
    pub address: u64,
}

/// A system call that a signal has interrupted, and that may be made again.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted {
    /// Its number.
    pub number: u64,
    /// The instruction.
    pub site: u64,
}

/// The process's signals.
#[derive(Debug, Default)]
pub struct Signals {
    /// What was asked for, from signal 1 on; empty as long as nothing was.
    actions: Vec<Action>,
    mask: Set,
    /// What the mask is to become once the call is over that has changed it for as long as it waits.
    mask_afterwards: Option<Set>,
    /// What waits, in the order in which it came.
    pending: Vec<Info>,
    /// Which signals these are.
    pending_set: Set,
    /// The alternate stack.
    pub stack: AlternateStack,
    /// The exception that came last.
    pub trap: Trap,
    /// The stack pointer of the system call that runs.
    pub stack_pointer: u64,
    /// The system call that runs is `rt_sigreturn`.
    pub returns: bool,
    /// The system call that was interrupted, until a handler is started or it is found that there is none.
    pub interrupted: Option<Interrupted>,
}

impl Signals {
    /// What is to be done when a signal comes.
    #[must_use]
    pub fn action(&self, signal: Signal) -> Action {
        self.actions.get(usize::from(signal.0) - 1).copied().unwrap_or_default()
    }

    /// Sets what is to be done. What waits and would now be ignored is dropped.
    pub fn set_action(&mut self, signal: Signal, action: Action) {
        self.actions.resize(SIGNALS, Action::default());
        self.actions[usize::from(signal.0) - 1] = Action { mask: action.mask.without(Set::UNSTOPPABLE), ..action };
        if action.disposition(signal) == Disposition::Ignore {
            self.drop_pending(Set::default().with(signal));
        }
    }

    /// The signals that are blocked.
    #[must_use]
    pub fn mask(&self) -> Set {
        self.mask
    }

    /// Blocks these signals, and no others.
    pub fn set_mask(&mut self, mask: Set) {
        self.mask = mask.without(Set::UNSTOPPABLE);
    }

    /// Blocks these signals while a call waits, and afterwards what was blocked before.
    pub fn set_mask_for_call(&mut self, mask: Set) {
        self.mask_afterwards = Some(self.mask);
        self.set_mask(mask);
    }

    /// Ends what [`set_mask_for_call`](Self::set_mask_for_call) began.
    pub fn restore_mask(&mut self) {
        if let Some(mask) = self.mask_afterwards.take() {
            self.mask = mask;
        }
    }

    /// Sends a signal. What is ignored and not blocked is forgotten; of most signals no two wait.
    ///
    /// # Errors
    /// `EAGAIN`: too many wait.
    pub fn send(&mut self, info: Info) -> Result<(), Errno> {
        let signal = info.signal();
        if signal == Signal::CONT {
            self.drop_pending(Set(0b1111 << 18));
        } else if signal.stops() {
            self.drop_pending(Set::default().with(Signal::CONT));
        }
        let ignored = self.action(signal).disposition(signal) == Disposition::Ignore && !self.mask.contains(signal);
        if ignored || signal.0 < FIRST_REAL_TIME && self.pending_set.contains(signal) {
            return Ok(());
        }
        if self.pending.len() >= PENDING_MAX {
            return Err(Errno::EAGAIN);
        }
        self.pending.push(info);
        self.pending_set = self.pending_set.with(signal);
        Ok(())
    }

    /// Sends a signal that cannot wait: who blocks or ignores it is ended by it.
    pub fn force(&mut self, info: Info) {
        let signal = info.signal();
        let only = Set::default().with(signal);
        if self.mask.contains(signal) || self.action(signal).disposition(signal) == Disposition::Ignore {
            self.set_action(signal, Action::default());
            self.mask = self.mask.without(only);
        }
        self.drop_pending(only);
        self.pending.push(info);
        self.pending_set = self.pending_set.with(signal);
    }

    /// Takes back what a timer has sent and nobody has seen.
    pub fn drop_where(&mut self, gone: impl Fn(&Info) -> bool) {
        self.pending.retain(|info| !gone(info));
        self.pending_set = self.pending.iter().fold(Set::default(), |set, info| set.with(info.signal()));
    }

    fn drop_pending(&mut self, signals: Set) {
        if self.pending_set.0 & signals.0 != 0 {
            self.drop_where(|info| signals.contains(info.signal()));
        }
    }

    /// The signals that wait, blocked or not.
    #[must_use]
    pub fn pending(&self) -> Set {
        self.pending_set
    }

    /// The signals that would be delivered if the application ran on.
    #[must_use]
    pub fn deliverable(&self) -> Set {
        self.pending_set.without(self.mask)
    }

    /// Whether a handler would run, or the program end, if it ran on.
    #[must_use]
    pub fn want_handling(&self) -> bool {
        self.deliverable().iter().any(|signal| self.action(signal).disposition(signal) != Disposition::Ignore)
    }

    /// Takes the first signal of a set that waits.
    pub fn take(&mut self, set: Set) -> Option<Info> {
        let signal = Set(self.pending_set.0 & set.0).first()?;
        let position = self.pending.iter().position(|info| info.signal() == signal)?;
        let info = self.pending.remove(position);
        if !self.pending.iter().any(|info| info.signal() == signal) {
            self.pending_set = self.pending_set.without(Set::default().with(signal));
        }
        Some(info)
    }
}

#[cfg(test)]
mod tests;
