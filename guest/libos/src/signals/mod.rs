// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: actions, masks and pending signals.
//!
//! A signal is [sent](crate::system::System::send) at any time, to a process or to one of its threads. It is
//! [delivered](crate::delivery) only when the thread would run on.

pub mod action;
pub mod frame;
pub mod info;
pub mod stack;

use alloc::vec::Vec;

use crate::errno::Errno;
use crate::event_time;
use crate::uapi::{
    SA_NOCLDWAIT, SIGABRT, SIGALRM, SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGPROF, SIGQUIT, SIGRTMIN,
    SIGSEGV, SIGSTOP, SIGSYS, SIGTERM, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
};
use action::{Action, Disposition};
use info::SigInfo;
use stack::AlternateStack;

/// Number of signals; the first is 1.
pub const SIGNALS: usize = 64;
/// Most signals that may be pending.
pub const PENDING_MAX: usize = 1024;

/// A signal's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub u8);

#[expect(missing_docs, reason = "the standard names")]
impl Signal {
    pub const SIGHUP: Signal = Signal(SIGHUP);
    pub const SIGINT: Signal = Signal(SIGINT);
    pub const SIGQUIT: Signal = Signal(SIGQUIT);
    pub const SIGILL: Signal = Signal(SIGILL);
    pub const SIGTRAP: Signal = Signal(SIGTRAP);
    pub const SIGBUS: Signal = Signal(SIGBUS);
    pub const SIGFPE: Signal = Signal(SIGFPE);
    pub const SIGKILL: Signal = Signal(SIGKILL);
    pub const SIGSEGV: Signal = Signal(SIGSEGV);
    pub const SIGPIPE: Signal = Signal(SIGPIPE);
    pub const SIGALRM: Signal = Signal(SIGALRM);
    pub const SIGTERM: Signal = Signal(SIGTERM);
    pub const SIGCHLD: Signal = Signal(SIGCHLD);
    pub const SIGCONT: Signal = Signal(SIGCONT);
    pub const SIGSTOP: Signal = Signal(SIGSTOP);
    pub const SIGTSTP: Signal = Signal(SIGTSTP);
    pub const SIGTTIN: Signal = Signal(SIGTTIN);
    pub const SIGTTOU: Signal = Signal(SIGTTOU);
    pub const SIGXCPU: Signal = Signal(SIGXCPU);
    pub const SIGXFSZ: Signal = Signal(SIGXFSZ);
    pub const SIGVTALRM: Signal = Signal(SIGVTALRM);
    pub const SIGPROF: Signal = Signal(SIGPROF);
    pub const SIGWINCH: Signal = Signal(SIGWINCH);
}

impl Signal {
    /// The signal with this number.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub fn from_number(number: u64) -> Result<Signal, Errno> {
        // A signal is an int: the upper half of the register is ignored.
        let number = u64::from(number as u32);
        if (1..=SIGNALS as u64).contains(&number) { Ok(Signal(number as u8)) } else { Err(Errno::EINVAL) }
    }

    /// Whether its default is to stop the process.
    pub(crate) fn stops(self) -> bool {
        matches!(self.0, SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU)
    }

    /// Whether its default is to end the program with a core dump.
    pub(crate) fn dumps(self) -> bool {
        matches!(self.0, SIGQUIT | SIGILL | SIGTRAP | SIGABRT | SIGBUS | SIGFPE | SIGSEGV | SIGXCPU | SIGXFSZ | SIGSYS)
    }

    /// Whether its default is to do nothing.
    fn ignored_by_default(self) -> bool {
        matches!(self.0, SIGCHLD | SIGCONT | SIGURG | SIGWINCH)
    }
}

/// A set of signals: signal n is bit n - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// The signals which can be neither blocked nor caught.
    pub const UNSTOPPABLE: SignalSet = SignalSet::of(&[SIGKILL, SIGSTOP]);
    /// Signals that instructions cause. They are delivered first.
    pub const SYNCHRONOUS: SignalSet = SignalSet::of(&[SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS]);

    /// Signals that stop a process.
    pub const STOPPING: SignalSet = SignalSet::of(&[SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU]);

    /// The set of signals with these numbers.
    const fn of(numbers: &[u8]) -> SignalSet {
        let (mut bits, mut at) = (0, 0);
        while at < numbers.len() {
            bits |= 1 << (numbers[at] - 1);
            at += 1;
        }
        SignalSet(bits)
    }

    /// The set of one signal.
    #[must_use]
    pub const fn only(signal: Signal) -> SignalSet {
        SignalSet(1 << (signal.0 - 1))
    }

    /// The union of two sets.
    #[must_use]
    pub const fn and(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 | other.0)
    }

    /// The intersection of two sets.
    #[must_use]
    pub const fn common(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 & other.0)
    }

    /// Whether it is empty.
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
    pub const fn with(self, signal: Signal) -> SignalSet {
        SignalSet(self.0 | 1 << (signal.0 - 1))
    }

    /// The signals of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 & !other.0)
    }

    /// The signal that is delivered first: one that an instruction caused, then the one with the lowest number.
    pub(crate) fn first(self) -> Option<Signal> {
        let set = if self.0 & SignalSet::SYNCHRONOUS.0 != 0 { self.0 & SignalSet::SYNCHRONOUS.0 } else { self.0 };
        (set != 0).then(|| Signal(set.trailing_zeros() as u8 + 1))
    }

    /// The signals in it.
    pub(crate) fn iter(self) -> impl Iterator<Item = Signal> {
        (1..=SIGNALS as u8).map(Signal).filter(move |signal| self.contains(*signal))
    }
}

/// The last exception, as signal frames record it: vector, error code, address of a page fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trap {
    /// The vector.
    pub number: u64,
    /// The error code.
    pub error: u64,
    /// The address of a page fault.
    pub address: u64,
}

/// A system call that a signal has interrupted, and that may be restarted.
#[derive(Clone, Copy, Debug)]
pub struct InterruptedCall {
    /// Its number.
    pub number: u64,
    /// The address of its instruction.
    pub site: u64,
}

/// Pending signals: sent and not yet delivered.
#[derive(Debug, Default)]
pub struct Pending {
    /// The signals, in order of arrival.
    queue: Vec<SigInfo>,
    /// The set of these signals.
    set: SignalSet,
    /// When the last one came, in the sequence of all changes to files.
    pub sent: u64,
}

impl Pending {
    /// Adds a signal; standard signals that are pending already are dropped.
    ///
    /// # Errors
    /// `EAGAIN`: too many are pending.
    pub fn add(&mut self, info: SigInfo) -> Result<(), Errno> {
        let signal = info.signal();
        let is_real_time = signal.0 >= SIGRTMIN;
        if !is_real_time && self.set.contains(signal) {
            return Ok(());
        }
        // Standard signals need no limit, as there is at most one of each.
        if is_real_time && self.queue.len() >= PENDING_MAX {
            return Err(Errno::EAGAIN);
        }
        self.push(info);
        Ok(())
    }

    pub(crate) fn push(&mut self, info: SigInfo) {
        self.set = self.set.with(info.signal());
        self.queue.push(info);
        self.sent = event_time::next_event_time();
    }

    /// The set of pending signals.
    #[must_use]
    pub fn set(&self) -> SignalSet {
        self.set
    }

    /// Drops the pending signals for which `is_dropped` holds.
    pub fn drop_where(&mut self, is_dropped: impl Fn(&SigInfo) -> bool) {
        self.queue.retain(|info| !is_dropped(info));
        self.set = self.queue.iter().fold(SignalSet::default(), |set, info| set.with(info.signal()));
    }

    /// Drops the pending signals of a set.
    pub fn drop_all(&mut self, signals: SignalSet) {
        if self.set.0 & signals.0 != 0 {
            self.drop_where(|info| signals.contains(info.signal()));
        }
    }

    /// Takes the pending signal of a set that is delivered first.
    pub fn take(&mut self, set: SignalSet) -> Option<SigInfo> {
        let signal = SignalSet(self.set.0 & set.0).first()?;
        let position = self.queue.iter().position(|info| info.signal() == signal)?;
        let info = self.queue.remove(position);
        if !self.queue.iter().any(|info| info.signal() == signal) {
            self.set = self.set.without(SignalSet::default().with(signal));
        }
        Some(info)
    }
}

/// The signals of a process, which all its threads share.
#[derive(Debug, Default)]
pub struct ProcessSignals {
    /// The actions, from signal 1 on; empty if none was set.
    actions: Vec<Action>,
    /// Pending signals that any thread may take.
    pub pending: Pending,
}

impl ProcessSignals {
    /// The action for a signal.
    #[must_use]
    pub fn action(&self, signal: Signal) -> Action {
        self.actions.get(usize::from(signal.0) - 1).copied().unwrap_or_default()
    }

    /// Sets an action. Pending signals of the process that are now ignored are dropped.
    pub fn set_action(&mut self, signal: Signal, action: Action) {
        self.actions.resize(SIGNALS, Action::default());
        self.actions[usize::from(signal.0) - 1] = Action { mask: action.mask.without(SignalSet::UNSTOPPABLE), ..action };
        if action.disposition(signal) == Disposition::Ignore {
            self.pending.drop_all(SignalSet::default().with(signal));
        }
    }

    /// The signals of a new child.
    #[must_use]
    pub fn inherited(&self) -> ProcessSignals {
        ProcessSignals { actions: self.actions.clone(), pending: Pending::default() }
    }

    /// Resets the actions for an executed program: handlers are dropped, ignored signals stay ignored.
    pub fn executed(&mut self) {
        for (action, number) in self.actions.iter_mut().zip(1..) {
            let ignored = action.disposition(Signal(number)) == Disposition::Ignore && !action.is_default();
            *action = if ignored { Action::ignoring() } else { Action::default() };
        }
    }

    /// Whether children that end leave no zombies.
    #[must_use]
    pub fn forgets_children(&self) -> bool {
        let action = self.action(Signal::SIGCHLD);
        action.flags & SA_NOCLDWAIT != 0 || action.is_ignoring()
    }
}

/// The signals of a thread.
#[derive(Debug, Default)]
pub struct ThreadSignals {
    mask: SignalSet,
    /// The mask to restore after the running call, which has changed it while it waits.
    pub(crate) mask_afterwards: Option<SignalSet>,
    /// Pending signals that only this thread may take.
    pub pending: Pending,
    /// The alternate stack.
    pub stack: AlternateStack,
    /// The last exception.
    pub trap: Trap,
    /// The stack pointer at the running system call.
    pub stack_pointer: u64,
    /// The running system call is `rt_sigreturn`.
    pub returns: bool,
    /// The interrupted system call, until a handler starts or there turns out to be none.
    pub interrupted: Option<InterruptedCall>,
}

impl ThreadSignals {
    /// The blocked signals.
    #[must_use]
    pub fn mask(&self) -> SignalSet {
        self.mask
    }

    /// Blocks these signals, and no others.
    pub fn set_mask(&mut self, mask: SignalSet) {
        self.mask = mask.without(SignalSet::UNSTOPPABLE);
    }

    /// Blocks these signals while a call waits; the present mask is restored afterwards.
    pub fn set_mask_for_call(&mut self, mask: SignalSet) {
        // A restarted call has saved the mask already.
        self.mask_afterwards = self.mask_afterwards.or(Some(self.mask));
        self.set_mask(mask);
    }

    /// Restores the mask from before [`set_mask_for_call`](Self::set_mask_for_call).
    pub fn restore_mask(&mut self) {
        if let Some(mask) = self.mask_afterwards.take() {
            self.mask = mask;
        }
    }

    /// The signals of a thread that this one creates.
    #[must_use]
    pub fn inherited(&self) -> ThreadSignals {
        ThreadSignals { mask: self.mask_afterwards.unwrap_or(self.mask), stack: self.stack, ..ThreadSignals::default() }
    }
}

#[cfg(test)]
mod tests;
