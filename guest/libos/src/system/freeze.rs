// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates and clones: where the operator wants a template, the cell freezes between two instructions of its programs, and each clone goes on from there under its own name.
//!
//! Wherever this is called, every thread stands in the program's own code, in a call that is made again, or in the call that asked for it; nothing of the libOS is half done.

use pando_abi::note::options;
use pando_abi::{Event, EventSet};
use pando_rt::{console, events, hypercall, memory, registers};

use super::System;
use crate::process::{Process, ProcessNumber};
use crate::signals::info::Info;
use crate::wait::Channel;

impl System {
    /// The program says that it is ready: becomes a template where the operator wants one, and returns in each of its clones; otherwise returns at once.
    pub fn ready(&mut self) {
        if memory::arguments().header.options & options::TEMPLATE != 0 {
            self.prepare_to_freeze();
            hypercall::freeze();
            // The program that asked is told by the call's return.
            self.go_on(Some(self.process.number));
        }
    }

    /// Does what had to wait until nothing is half done: becomes a template if the operator has asked for it, and takes note of a freeze that nobody here took part in. Says whether there was anything.
    pub(crate) fn settle(&mut self) -> bool {
        if !self.has_deferred() {
            // So it is nearly always, and a page that is not written is not copied for each clone.
            return false;
        }
        let deferred = core::mem::take(&mut self.deferred);
        if deferred.contains(Event::Generation) && registers::generation() != self.generation {
            self.go_on(None);
        }
        if deferred.contains(Event::Freeze) {
            self.prepare_to_freeze();
            let unaware = !self.processes_where(|process| !process.has_ended() && process.clone_news().is_none()).is_empty();
            // It may be the source that was asked, or the operator may not want it any more.
            if hypercall::freeze_if_asked(unaware) {
                self.go_on(None);
            }
        }
        if deferred.contains(Event::Control) {
            self.take_orders();
        }
        true
    }

    /// Whether something waits until nothing is half done.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    fn prepare_to_freeze(&mut self) {
        self.charge();
        // What was said is the template's to say.
        console::flush();
        // It is about to be granted.
        events::forget(Event::Freeze);
    }

    /// What is to be done first in a clone. Random numbers come from the clone's own entropy as soon as one is asked for ([`crate::random`]), and the clock goes on where it stood
    /// ([`pando_rt::clock`]). Processes that asked for a signal get it, but for the one that knows already.
    fn go_on(&mut self, knowing: Option<ProcessNumber>) {
        self.generation = registers::generation();
        console::begin_anew();
        self.terminal.ended = false;
        self.files.saw_clone();
        self.boot_id = None;
        self.jobs.abandon(&mut self.files);
        self.traced = memory::arguments().header.options & options::TRACE != 0;
        self.connect_anew();
        self.notice();
        self.wake(Channel::Generation);
        self.wake(Channel::Input);
        self.wake_noted();
        self.watch_timers();
        for number in self.processes_where(|process| Some(process.number) != knowing && process.clone_news().is_some()) {
            if let Some(signal) = self.process_of(number).and_then(Process::clone_news) {
                // Whoever has so many signals waiting has one of this kind among them.
                let _ = self.send(number, Info::kernel(signal));
            }
        }
    }

    /// Keeps events for later that must not come when something is half done.
    pub(super) fn defer(&mut self, events: EventSet) {
        let kept = EventSet::NONE.with(Event::Freeze).with(Event::Generation).with(Event::Control);
        self.deferred = EventSet(self.deferred.0 | events.0 & kept.0);
    }
}
