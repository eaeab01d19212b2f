// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of threads, of processes, and of the cell with its first process.

use alloc::collections::BTreeSet;

use pando_rt::hypercall::exit;

use super::System;
use crate::files::pidfd::PidState;
use crate::process::{FIRST, Pid, Process, ProcessStateChange};
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use crate::thread::ThreadState;
use crate::uapi::FUTEX_BITSET_MATCH_ANY;
use crate::user::set_word32;
use crate::wait::{Channel, Tid};

impl System {
    /// Ends the running thread, and its process if it is the last one.
    pub fn end_thread(&mut self, status: u64) {
        if self.process.threads.len() == 1 {
            return self.exit_process(status);
        }
        self.release_robust_futexes();
        self.process.threads.remove(&self.thread.number);
        self.files.threads.remove(&(self.process.number, self.thread.number));
        self.thread.state = ThreadState::Ended;
    }

    /// Ends the running process by its own request (`exit_group`).
    pub fn exit_process(&mut self, status: u64) {
        if self.process.number == FIRST {
            self.finish();
            exit(status & 0xff, 0, 0, 0);
        }
        self.end_process(ProcessStateChange::Exited(status as u8));
    }

    /// Ends the running process by a signal. `address` is the faulting address, `instruction` the instruction pointer; 0 if not
    /// applicable.
    pub fn kill_by_signal(&mut self, signal: Signal, address: u64, instruction: u64) {
        if self.process.number == FIRST {
            self.finish();
            super::kill(signal, address, instruction);
        }
        // A core size limit of 0 writes nothing; with a higher limit, the dump is discarded.
        let is_kept = signal.dumps() && self.process.settings.dumpable && self.process.limits.core() > 0;
        self.end_process(if is_kept { ProcessStateChange::Dumped(signal.0) } else { ProcessStateChange::Killed(signal.0) });
    }

    /// Ends the running process: closes its files, ends all of its threads, and frees its memory if no other process uses it.
    fn end_process(&mut self, change: ProcessStateChange) {
        if !self.process.is_vfork {
            self.note_last_peak();
        }
        self.end_other_threads();
        self.release_robust_futexes();
        self.undo_semaphores();
        self.sync_mappings();
        if !self.shares_memory() {
            self.leave_all_shared();
        }
        self.free_unmapped_files();
        self.files.close_descriptors();
        self.files.notify_exit(self.process.number, PidState::Ended);
        let controlled = self.controlled_groups();
        self.process.threads.clear();
        self.process.last_name = self.thread.name;
        self.files.threads.remove(&(self.process.number, self.thread.number));
        self.thread.state = ThreadState::Ended;
        self.release_memory();
        self.leave_terminal();
        let number = self.process.number;
        self.reparent_children(number);
        let parent = self.process.parent;
        let forgets = self.process_of(parent).is_none_or(|parent| parent.signals.forgets_children());
        self.notify_parent(number, change);
        self.process.is_auto_reaped = forgets;
        self.jobs.ended(number, change);
        self.continue_orphaned_groups(&controlled);
        self.report_end(change.status());
    }

    /// The process groups that may become orphaned with the running process: its own, and those of its children.
    fn controlled_groups(&self) -> BTreeSet<Pid> {
        let number = self.process.number;
        let children = self.others.processes.values().filter(|child| child.parent == number).map(|child| child.group);
        children.chain([self.process.group]).filter(|group| !self.is_orphaned(*group)).collect()
    }

    /// Continues the stopped members of groups that have become orphaned, after a `SIGHUP`.
    fn continue_orphaned_groups(&mut self, groups: &BTreeSet<Pid>) {
        for group in groups {
            let is_stopped = |process: &Process| process.group == *group && process.stopped && !process.has_ended();
            if !self.processes_where(is_stopped).is_empty() && self.is_orphaned(*group) {
                self.send_to_group(*group, SigInfo::kernel(Signal::SIGHUP));
                self.send_to_group(*group, SigInfo::kernel(Signal::SIGCONT));
            }
        }
    }

    /// Ends all threads of the running process except the running one.
    pub(super) fn end_other_threads(&mut self) {
        let running = self.thread.number;
        let ended: alloc::vec::Vec<Tid> = self.process.threads.iter().copied().filter(|number| *number != running).collect();
        for number in ended {
            if let Some(thread) = self.others.threads.remove(&number)
                && let ThreadState::Waits(wait) = &thread.state
            {
                self.others.waiters.remove(number, wait);
            }
            self.process.threads.remove(&number);
            self.files.threads.remove(&(self.process.number, number));
            self.others.queue.retain(|waiting| *waiting != number);
        }
    }

    /// Releases the robust futexes of the running thread, and clears its thread ID in memory (`clear_child_tid`).
    pub(super) fn release_robust_futexes(&mut self) {
        self.release_robust();
        let address = core::mem::take(&mut self.thread.clear_child_tid);
        // If no other thread can see the word, it stays as it is, as on Linux.
        if address != 0 && (self.process.threads.len() > 1 || self.process.is_vfork) && set_word32(address, 0).is_ok() {
            self.wake_word(address, 1, FUTEX_BITSET_MATCH_ANY);
        }
    }

    /// Whether another process uses the running one's memory.
    pub(super) fn shares_memory(&self) -> bool {
        let space = self.process.space;
        self.others.processes.values().any(|process| process.space == space && !process.has_ended())
    }

    /// Returns borrowed memory (`vfork`).
    pub(super) fn release_memory(&mut self) {
        if core::mem::take(&mut self.process.is_vfork) {
            self.wake(Channel::Released(self.process.number));
        }
    }

    /// The new parent of a dead process's children: its nearest subreaper ancestor, or the first process.
    fn reaper_of(&self, number: Pid) -> Pid {
        let mut ancestor = number;
        while let Some(process) = self.process_of(ancestor).and_then(|process| self.process_of(process.parent)) {
            if process.settings.is_subreaper && !process.has_ended() {
                return process.number;
            }
            ancestor = process.number;
        }
        FIRST
    }

    /// Assigns the children of a process to another parent.
    fn reparent_children(&mut self, number: Pid) {
        let reaper = self.reaper_of(number);
        for child in self.processes_where(|process| process.parent == number) {
            let Some(process) = self.process_of_mut(child) else { continue };
            process.parent = reaper;
            let death_signal = process.settings.death_signal();
            let ended = process.change.filter(|change| change.is_end() && process.has_ended());
            if let Some(signal) = death_signal {
                // A signal that exceeds the queue limit is lost, as on Linux.
                let _ = self.send(child, SigInfo::kernel(signal));
            }
            if let Some(change) = ended {
                let forgets = self.process_of(reaper).is_some_and(|first| first.signals.forgets_children());
                self.notify_parent(child, change);
                if forgets {
                    self.others.processes.remove(&child);
                    self.files.forget_process(child);
                }
            }
        }
    }

    /// Detaches the session from its terminal if the running process leads it.
    fn leave_terminal(&mut self) {
        let Some(name) = self.controlling().filter(|_| self.process.session == self.process.number) else { return };
        let Ok(terminal) = self.terminal_mut(name) else { return };
        let foreground = core::mem::take(&mut terminal.foreground);
        terminal.session = 0;
        for signal in [Signal::SIGHUP, Signal::SIGCONT].into_iter().filter(|_| foreground != 0) {
            self.send_to_group(foreground, SigInfo::kernel(signal));
        }
    }
}
