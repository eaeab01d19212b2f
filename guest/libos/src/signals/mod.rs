// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: what a program asked for, and what waits to be delivered to it.
//!
//! A signal is [sent](crate::system::System::send) at any time, to a process or to one of its threads; it is [delivered](crate::delivery) only when the thread would run on.

pub mod action;
pub mod frame;
pub mod info;
pub mod stack;

use alloc::vec::Vec;

use crate::errno::Errno;
use crate::files::pulse;
use action::{Action, Disposition};
use info::Info;
use stack::AlternateStack;

/// How many signals there are, numbered from 1.
pub const SIGNALS: usize = 64;
/// The first of those that are queued one by one.
const FIRST_REAL_TIME: u8 = 32;
/// Signals that may wait.
pub const PENDING_MAX: usize = 1024;

/// A signal's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub u8);

#[expect(missing_docs, reason = "the standard names")]
impl Signal {
    pub const HUP: Signal = Signal(1);
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
    pub const CHLD: Signal = Signal(17);
    pub const CONT: Signal = Signal(18);
    pub const STOP: Signal = Signal(19);
    pub const TSTP: Signal = Signal(20);
    pub const TTIN: Signal = Signal(21);
    pub const TTOU: Signal = Signal(22);
    pub const XCPU: Signal = Signal(24);
    pub const XFSZ: Signal = Signal(25);
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
    pub(crate) fn stops(self) -> bool {
        matches!(self.0, 19..=22)
    }

    /// Whether its default is to end the program and keep what it had in memory: `QUIT`, `ILL`, `TRAP`, `ABRT`, `BUS`, `FPE`, `SEGV`, `XCPU`, `XFSZ`, `SYS`.
    pub(crate) fn dumps(self) -> bool {
        matches!(self.0, 3..=8 | 11 | 24 | 25 | 31)
    }

    /// Whether the default is to go on: `CHLD`, `CONT`, `URG`, `WINCH`.
    fn ignored_by_default(self) -> bool {
        matches!(self.0, 17 | 18 | 23 | 28)
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

    /// Those that stop a process.
    pub const STOPPING: Set = Set(0b1111 << 18);

    /// Only this one.
    #[must_use]
    pub const fn only(signal: Signal) -> Set {
        Set(1 << (signal.0 - 1))
    }

    /// What is in this set or in the other.
    #[must_use]
    pub const fn and(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn common(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

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
    pub(crate) fn first(self) -> Option<Signal> {
        let set = if self.0 & Set::SYNCHRONOUS.0 != 0 { self.0 & Set::SYNCHRONOUS.0 } else { self.0 };
        (set != 0).then(|| Signal(set.trailing_zeros() as u8 + 1))
    }

    /// The signals in it.
    pub(crate) fn iter(self) -> impl Iterator<Item = Signal> {
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

/// Signals that were sent and not yet delivered.
#[derive(Debug, Default)]
pub struct Pending {
    /// In the order in which they came.
    queue: Vec<Info>,
    /// Which signals these are.
    set: Set,
    /// When the last one came, among all that happens to files.
    pub sent: u64,
}

impl Pending {
    /// Adds a signal; of most no two wait.
    ///
    /// # Errors
    /// `EAGAIN`: too many wait.
    pub fn add(&mut self, info: Info) -> Result<(), Errno> {
        let signal = info.signal();
        let is_real_time = signal.0 >= FIRST_REAL_TIME;
        if !is_real_time && self.set.contains(signal) {
            return Ok(());
        }
        // Those of which no two wait find room whatever the others have taken.
        if is_real_time && self.queue.len() >= PENDING_MAX {
            return Err(Errno::EAGAIN);
        }
        self.push(info);
        Ok(())
    }

    pub(crate) fn push(&mut self, info: Info) {
        self.set = self.set.with(info.signal());
        self.queue.push(info);
        self.sent = pulse::moment();
    }

    /// Which signals wait.
    #[must_use]
    pub fn set(&self) -> Set {
        self.set
    }

    /// Takes back what nobody is to see any more.
    pub fn drop_where(&mut self, gone: impl Fn(&Info) -> bool) {
        self.queue.retain(|info| !gone(info));
        self.set = self.queue.iter().fold(Set::default(), |set, info| set.with(info.signal()));
    }

    /// The same for some signals.
    pub fn drop_all(&mut self, signals: Set) {
        if self.set.0 & signals.0 != 0 {
            self.drop_where(|info| signals.contains(info.signal()));
        }
    }

    /// Takes the first signal of a set that waits.
    pub fn take(&mut self, set: Set) -> Option<Info> {
        let signal = Set(self.set.0 & set.0).first()?;
        let position = self.queue.iter().position(|info| info.signal() == signal)?;
        let info = self.queue.remove(position);
        if !self.queue.iter().any(|info| info.signal() == signal) {
            self.set = self.set.without(Set::default().with(signal));
        }
        Some(info)
    }
}

/// The signals of a process: what all its threads share.
#[derive(Debug, Default)]
pub struct Shared {
    /// What was asked for, from signal 1 on; empty as long as nothing was.
    actions: Vec<Action>,
    /// What any thread may take.
    pub pending: Pending,
}

impl Shared {
    /// What is to be done when a signal comes.
    #[must_use]
    pub fn action(&self, signal: Signal) -> Action {
        self.actions.get(usize::from(signal.0) - 1).copied().unwrap_or_default()
    }

    /// Sets what is to be done. What waits here and would now be ignored is dropped.
    pub fn set_action(&mut self, signal: Signal, action: Action) {
        self.actions.resize(SIGNALS, Action::default());
        self.actions[usize::from(signal.0) - 1] = Action { mask: action.mask.without(Set::UNSTOPPABLE), ..action };
        if action.disposition(signal) == Disposition::Ignore {
            self.pending.drop_all(Set::default().with(signal));
        }
    }

    /// What a child starts with.
    #[must_use]
    pub fn inherited(&self) -> Shared {
        Shared { actions: self.actions.clone(), pending: Pending::default() }
    }

    /// What a program that is executed starts with: handlers are gone, what is ignored stays so.
    pub fn executed(&mut self) {
        for (action, number) in self.actions.iter_mut().zip(1..) {
            let ignored = action.disposition(Signal(number)) == Disposition::Ignore && !action.is_default();
            *action = if ignored { Action::ignoring() } else { Action::default() };
        }
    }

    /// Whether children that end are nobody's to wait for.
    #[must_use]
    pub fn forgets_children(&self) -> bool {
        let action = self.action(Signal::CHLD);
        action.flags & action::flag::NO_CHILD_WAIT != 0 || action.is_ignoring()
    }
}

/// The signals of a thread.
#[derive(Debug, Default)]
pub struct Signals {
    mask: Set,
    /// What the mask is to become once the call is over that has changed it for as long as it waits.
    pub(crate) mask_afterwards: Option<Set>,
    /// What only this thread may take.
    pub pending: Pending,
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
        // A call that is made again finds its own.
        self.mask_afterwards = self.mask_afterwards.or(Some(self.mask));
        self.set_mask(mask);
    }

    /// Ends what [`set_mask_for_call`](Self::set_mask_for_call) began.
    pub fn restore_mask(&mut self) {
        if let Some(mask) = self.mask_afterwards.take() {
            self.mask = mask;
        }
    }

    /// What a thread that this one makes starts with.
    #[must_use]
    pub fn inherited(&self) -> Signals {
        Signals { mask: self.mask_afterwards.unwrap_or(self.mask), stack: self.stack, ..Signals::default() }
    }
}

#[cfg(test)]
mod tests;
