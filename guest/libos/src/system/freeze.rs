// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates and clones: where the operator requests a template, the cell freezes between two instructions of its programs. Each clone
//! continues from there under its own name.
//!
//! When these functions run, each thread is in the program's own code, in a call that will be restarted, or in the call that requested
//! the freeze. No operation of the libOS is in progress.

use pando_abi::boot_info::options;
use pando_abi::{Event, EventSet};
use pando_rt::{clock, console, events, memory, registers, template};

use super::System;
use crate::files::status::time;
use crate::process::{Pid, Process};
use crate::signals::info::SigInfo;
use crate::wait::Channel;

impl System {
    /// Handles a program's report that it is ready. Becomes a template if the operator wants one, and returns in each of its clones;
    /// otherwise returns at once.
    pub fn ready(&mut self) {
        if memory::arguments().header.options & options::TEMPLATE != 0 {
            self.prepare_to_freeze();
            template::freeze();
            // The calling program learns it from the call's return.
            self.resume_clone(Some(self.process.number));
        }
    }

    /// Does the deferred work: becomes a template if the operator has requested it, notices a freeze from outside, and executes the
    /// operator's requests. Returns whether there was any.
    pub(crate) fn run_deferred_work(&mut self) -> bool {
        if !self.has_deferred() {
            // This is the usual case; without a write, no page is copied for each clone.
            return false;
        }
        let deferred = core::mem::take(&mut self.deferred);
        if deferred.contains(Event::Generation) && registers::generation() != self.generation {
            self.resume_clone(None);
        }
        if deferred.contains(Event::Freeze) {
            self.prepare_to_freeze();
            let unaware = !self.processes_where(|process| !process.has_ended() && process.handled_clone_signal().is_none()).is_empty();
            // The request may have been for the source, or the operator may have withdrawn it.
            if template::freeze_if_requested(unaware) {
                self.resume_clone(None);
            }
        }
        if deferred.contains(Event::Control) {
            self.execute_requests();
        }
        if deferred.contains(Event::Debug) {
            self.announce_threads();
        }
        true
    }

    /// Whether deferred work is waiting.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    fn prepare_to_freeze(&mut self) {
        self.charge();
        if self.thread_table.is_none() {
            self.memory.patch_for_clones();
        }
        // Buffered output belongs to the template.
        console::flush();
        // The request is about to be granted.
        events::forget(Event::Freeze);
    }

    /// Initialises a clone. Random numbers come from the clone's own entropy at the next request ([`crate::random`]), and the clock
    /// continues where it stopped ([`pando_rt::clock`]). Processes that requested a signal get it, except the one that already knows.
    fn resume_clone(&mut self, knowing: Option<Pid>) {
        self.generation = registers::generation();
        console::reset_in_clone();
        self.terminal.ended = false;
        // The file servers are the source's.
        self.files.mounts.disconnect();
        self.files.note_clone();
        self.memory.note_clone();
        self.boot_id = None;
        self.jobs.abandon(&mut self.files);
        let chosen = memory::arguments().header.options;
        self.traced = chosen & options::TRACE != 0;
        if chosen & options::DEBUG == 0 {
            self.thread_table = None;
        }
        // A program that has replaced `/dev` finds no device there.
        let _ = self.files.tree.set_nesting(chosen & options::NESTING != 0, time(clock::wall()));
        self.reopen_network();
        self.process_events();
        self.files.cells_files.note_clone();
        self.wake(Channel::Cells);
        self.wake(Channel::Generation);
        self.wake(Channel::Input);
        self.wake_noted();
        self.watch_timers();
        for number in self.processes_where(|process| Some(process.number) != knowing && process.handled_clone_signal().is_some()) {
            if let Some(signal) = self.process_of(number).and_then(Process::handled_clone_signal) {
                // If its queue is full, it already contains a signal of this kind.
                let _ = self.send(number, SigInfo::kernel(signal));
            }
        }
    }

    /// Defers events that must not be processed while an operation is in progress.
    pub(super) fn defer(&mut self, events: EventSet) {
        let deferrable = EventSet::NONE.with(Event::Freeze).with(Event::Generation).with(Event::Control).with(Event::Debug);
        self.deferred = EventSet(self.deferred.0 | events.0 & deferrable.0);
    }
}
