// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending: which thread a signal wakes, and what it does to a process that is stopped.

use super::System;
use crate::errno::Errno;
use crate::process::{FIRST, Process, ProcessNumber};
use crate::signals::action::{Action, Disposition};
use crate::signals::info::Info;
use crate::signals::{Set, Signal};
use crate::thread::{Stage, Thread};
use crate::wait::{Channel, ThreadNumber};

impl System {
    /// Sends a signal to a process: any of its threads takes it. What is ignored and not blocked is forgotten.
    ///
    /// # Errors
    /// `ESRCH`; `EAGAIN`: too many wait.
    pub fn send(&mut self, to: ProcessNumber, info: Info) -> Result<(), Errno> {
        let signal = info.signal();
        self.before_sending(to, signal)?;
        let process = self.process_of(to).ok_or(Errno::ESRCH)?;
        // Who has ended but was not waited for hears nothing.
        let Some(leader) = process.threads.first().copied() else { return Ok(()) };
        let ignored = process.signals.action(signal).disposition(signal) == Disposition::Ignore;
        if ignored && self.thread_of(leader).is_some_and(|thread| !thread.signals.mask().contains(signal)) {
            return Ok(());
        }
        self.process_of_mut(to).ok_or(Errno::ESRCH)?.signals.pending.add(info)?;
        self.wake(Channel::Signal(to));
        let takes = |thread: &Thread| !thread.signals.mask().contains(signal);
        // Who runs sees it on its way out.
        let is_seen = self.process.number == to && takes(&self.thread) && !matches!(self.thread.stage, Stage::Waits(_));
        if !is_seen {
            let threads = self.process_of(to).map(|process| process.threads.clone()).unwrap_or_default();
            if let Some(taker) = threads.into_iter().find(|number| self.thread_of(*number).is_some_and(takes)) {
                self.disturb(taker, signal);
            }
        }
        Ok(())
    }

    /// Sends a signal to a thread.
    ///
    /// # Errors
    /// `ESRCH`; `EAGAIN`: too many wait.
    pub fn send_to_thread(&mut self, to: ThreadNumber, info: Info) -> Result<(), Errno> {
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
            self.disturb(to, signal);
        }
        Ok(())
    }

    /// Sends a signal to every process of a group. Says whether there was one.
    pub fn send_to_group(&mut self, group: ProcessNumber, info: Info) -> bool {
        let members = self.processes_where(|process| process.group == group);
        for member in &members {
            // One that finds no room is lost, as on Linux.
            let _ = self.send(*member, info);
        }
        !members.is_empty()
    }

    /// What a signal undoes: going on drops what would stop, and the other way round; a process that is stopped goes on.
    fn before_sending(&mut self, to: ProcessNumber, signal: Signal) -> Result<(), Errno> {
        let process = self.process_of(to).ok_or(Errno::ESRCH)?;
        let undone = match signal {
            Signal::CONT => Set::STOPPING,
            _ if signal.stops() => Set::only(Signal::CONT),
            _ => Set::default(),
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
        if matches!(signal, Signal::CONT | Signal::KILL) {
            self.resume_process(to, signal == Signal::CONT);
        }
        Ok(())
    }

    /// Makes a thread that waits look at its signals.
    fn disturb(&mut self, number: ThreadNumber, signal: Signal) {
        let Some(thread) = self.thread_of(number) else { return };
        // Who borrows to a child waits for it whatever comes, but for the end.
        let waits = matches!(thread.stage, Stage::Waits(_));
        let patient = thread.call.is_uninterruptible && signal != Signal::KILL;
        if waits && !patient {
            self.rouse(number);
        }
    }

    /// Sends the running thread a signal that cannot wait: who blocks or ignores it is ended by it.
    pub fn force(&mut self, info: Info) {
        let signal = info.signal();
        let only = Set::only(signal);
        let mask = self.thread.signals.mask();
        let shared = &mut self.process.signals;
        if mask.contains(signal) || shared.action(signal).disposition(signal) == Disposition::Ignore {
            shared.set_action(signal, Action::default());
            self.thread.signals.set_mask(mask.without(only));
        }
        self.thread.signals.pending.drop_all(only);
        self.thread.signals.pending.push(info);
    }

    /// Whether a signal stops the running process: not the first one, and not by the terminal where nobody would let it go on.
    #[must_use]
    pub fn may_stop(&self, signal: Signal) -> bool {
        self.process.number != FIRST && (signal == Signal::STOP || !self.is_orphaned(self.process.group))
    }

    /// Whether nobody controls a group of processes: no parent of a member is of the same session and another group.
    #[must_use]
    pub fn is_orphaned(&self, group: ProcessNumber) -> bool {
        let controls = |process: &Process| {
            self.process_of(process.parent).is_some_and(|parent| parent.session == process.session && parent.group != group)
        };
        self.processes_where(|process| process.group == group && !process.has_ended() && controls(process)).is_empty()
    }

    /// Drops what waits for a thread of the running process and is now ignored.
    pub fn drop_ignored(&mut self, signal: Signal) {
        for number in self.process.threads.clone() {
            if let Some(thread) = self.thread_of_mut(number) {
                thread.signals.pending.drop_all(Set::only(signal));
            }
        }
    }

    /// The signals that wait for the running thread, blocked or not.
    #[must_use]
    pub fn pending(&self) -> Set {
        self.thread.signals.pending.set().and(self.process.signals.pending.set())
    }

    /// The signals that would be delivered if the running thread ran on.
    #[must_use]
    pub fn deliverable(&self) -> Set {
        self.pending().without(self.thread.signals.mask())
    }

    /// Whether a handler would run, or the program stop or end, if it ran on.
    #[must_use]
    pub fn want_handling(&self) -> bool {
        self.deliverable().iter().any(|signal| self.process.signals.action(signal).disposition(signal) != Disposition::Ignore)
    }

    /// Takes the first signal of a set that waits for the running thread.
    pub fn take_signal(&mut self, set: Set) -> Option<Info> {
        let own = self.thread.signals.pending.set().common(set);
        let shared = self.process.signals.pending.set().common(set);
        let from_own = own.and(shared).first().is_some_and(|first| own.contains(first));
        if from_own { self.thread.signals.pending.take(set) } else { self.process.signals.pending.take(set) }
    }
}
