// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends signals: chooses the thread to wake, and continues or stops processes.

use super::System;
use crate::errno::Errno;
use crate::process::{FIRST, Pid, Process};
use crate::signals::action::{Action, Disposition};
use crate::signals::info::SigInfo;
use crate::signals::{Signal, SignalSet};
use crate::thread::{Thread, ThreadState};
use crate::wait::{Channel, Tid};

impl System {
    /// Sends a signal to a process: any of its threads takes it. A signal that is ignored and not blocked is discarded.
    ///
    /// # Errors
    /// `ESRCH`; `EAGAIN`: the queue limit is reached.
    pub fn send(&mut self, to: Pid, info: SigInfo) -> Result<(), Errno> {
        let signal = info.signal();
        self.before_sending(to, signal)?;
        let process = self.process_of(to).ok_or(Errno::ESRCH)?;
        // A zombie receives nothing.
        let Some(leader) = process.threads.first().copied() else { return Ok(()) };
        let ignored = process.signals.action(signal).disposition(signal) == Disposition::Ignore;
        if ignored && self.thread_of(leader).is_some_and(|thread| !thread.signals.mask().contains(signal)) {
            return Ok(());
        }
        self.process_of_mut(to).ok_or(Errno::ESRCH)?.signals.pending.add(info)?;
        self.wake(Channel::Signal(to));
        let takes = |thread: &Thread| !thread.signals.mask().contains(signal);
        // A running thread sees it on return to user mode.
        let is_seen = self.process.number == to && takes(&self.thread) && !matches!(self.thread.state, ThreadState::Waits(_));
        if !is_seen {
            let threads = self.process_of(to).map(|process| process.threads.clone()).unwrap_or_default();
            if let Some(taker) = threads.into_iter().find(|number| self.thread_of(*number).is_some_and(takes)) {
                self.interrupt_thread(taker, signal);
            }
        }
        Ok(())
    }

    /// Sends a signal to a thread.
    ///
    /// # Errors
    /// `ESRCH`; `EAGAIN`: the queue limit is reached.
    pub fn send_to_thread(&mut self, to: Tid, info: SigInfo) -> Result<(), Errno> {
        let signal = info.signal();
        let process = self.thread_of(to).ok_or(Errno::ESRCH)?.process;
        self.before_sending(process, signal)?;
        let ignored = self.process_of(process).ok_or(Errno::ESRCH)?.signals.action(signal).disposition(signal) == Disposition::Ignore;
        let thread = self.thread_of_mut(to).ok_or(Errno::ESRCH)?;
        if ignored && !thread.signals.mask().contains(signal) {
            return Ok(());
        }
        thread.signals.pending.add(info)?;
        let takes = !thread.signals.mask().contains(signal);
        self.wake(Channel::Signal(process));
        if takes {
            self.interrupt_thread(to, signal);
        }
        Ok(())
    }

    /// Sends a signal to every process of a group. Returns whether there was one.
    pub fn send_to_group(&mut self, group: Pid, info: SigInfo) -> bool {
        let members = self.processes_where(|process| process.group == group);
        for member in &members {
            // A signal that exceeds the queue limit is lost, as on Linux.
            let _ = self.send(*member, info);
        }
        !members.is_empty()
    }

    /// Applies the effect of sending: `SIGCONT` discards pending stop signals and continues a stopped process; a stop signal discards a
    /// pending `SIGCONT`.
    fn before_sending(&mut self, to: Pid, signal: Signal) -> Result<(), Errno> {
        let process = self.process_of(to).ok_or(Errno::ESRCH)?;
        let undone = match signal {
            Signal::SIGCONT => SignalSet::STOPPING,
            _ if signal.stops() => SignalSet::only(Signal::SIGCONT),
            _ => SignalSet::default(),
        };
        if !undone.is_empty() {
            let threads = process.threads.clone();
            for number in threads {
                if let Some(thread) = self.thread_of_mut(number) {
                    thread.signals.pending.drop_all(undone);
                }
            }
            if let Some(process) = self.process_of_mut(to) {
                process.signals.pending.drop_all(undone);
            }
        }
        if matches!(signal, Signal::SIGCONT | Signal::SIGKILL) {
            self.resume_process(to, signal == Signal::SIGCONT);
        }
        Ok(())
    }

    /// Makes a waiting thread check its signals.
    fn interrupt_thread(&mut self, number: Tid, signal: Signal) {
        let Some(thread) = self.thread_of(number) else { return };
        // A thread waiting for `vfork`'s child is interrupted by nothing but its own end.
        let waits = matches!(thread.state, ThreadState::Waits(_));
        let patient = thread.call.is_uninterruptible && signal != Signal::SIGKILL;
        if waits && !patient {
            self.wake_thread(number);
        }
    }

    /// Sends the running thread a synchronous signal: if it blocks or ignores the signal, its process is killed.
    pub fn force(&mut self, info: SigInfo) {
        let signal = info.signal();
        let only = SignalSet::only(signal);
        let mask = self.thread.signals.mask();
        let shared = &mut self.process.signals;
        if mask.contains(signal) || shared.action(signal).disposition(signal) == Disposition::Ignore {
            shared.set_action(signal, Action::default());
            self.thread.signals.set_mask(mask.without(only));
        }
        self.thread.signals.pending.drop_all(only);
        self.thread.signals.pending.push(info);
    }

    /// Whether a signal stops the running process: never the first process, and no terminal signal stops an orphaned group.
    #[must_use]
    pub fn may_stop(&self, signal: Signal) -> bool {
        self.process.number != FIRST && (signal == Signal::SIGSTOP || !self.is_orphaned(self.process.group))
    }

    /// Whether a process group is orphaned: no parent of a member is in the same session and another group.
    #[must_use]
    pub fn is_orphaned(&self, group: Pid) -> bool {
        let controls = |process: &Process| {
            self.process_of(process.parent).is_some_and(|parent| parent.session == process.session && parent.group != group)
        };
        self.processes_where(|process| process.group == group && !process.has_ended() && controls(process)).is_empty()
    }

    /// Discards pending signals of the running process that are now ignored.
    pub fn drop_ignored(&mut self, signal: Signal) {
        for number in self.process.threads.clone() {
            if let Some(thread) = self.thread_of_mut(number) {
                thread.signals.pending.drop_all(SignalSet::only(signal));
            }
        }
    }

    /// The pending signals of the running thread, blocked or not.
    #[must_use]
    pub fn pending(&self) -> SignalSet {
        self.thread.signals.pending.set().and(self.process.signals.pending.set())
    }

    /// The signals that would be delivered if the running thread continued.
    #[must_use]
    pub fn deliverable(&self) -> SignalSet {
        self.pending().without(self.thread.signals.mask())
    }

    /// Whether a handler would run, or the program stop or end, if it continued.
    #[must_use]
    pub fn want_handling(&self) -> bool {
        self.deliverable().iter().any(|signal| self.process.signals.action(signal).disposition(signal) != Disposition::Ignore)
    }

    /// Removes the first pending signal of a set from the running thread's queue.
    pub fn take_signal(&mut self, set: SignalSet) -> Option<SigInfo> {
        let thread_pending = self.thread.signals.pending.set().common(set);
        let process_pending = self.process.signals.pending.set().common(set);
        let from_thread = thread_pending.and(process_pending).first().is_some_and(|first| thread_pending.contains(first));
        if from_thread { self.thread.signals.pending.take(set) } else { self.process.signals.pending.take(set) }
    }
}
