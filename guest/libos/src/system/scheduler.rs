// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose turn it is: one thread runs at a time, the others wait for something or for their turn.
//!
//! Threads that can run stand in a queue. One runs until it waits, or until its turn is over while others stand in the queue; the timer event says so. When none can
//! run, the cell idles.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use pando_abi::{SavedContext, SpaceIndex};
use pando_rt::hypercall::{self, NO_DEADLINE};
use pando_rt::{clock, events};

use super::System;
use super::zygotes::Zygotes;
use crate::errno::Errno;
use crate::memory::AddressSpace;
use crate::memory::regions::Regions;
use crate::process::{Change, Process, ProcessNumber};
use crate::signals::Signal;
use crate::signals::info::Info;
use crate::thread::{Stage, Thread};
use crate::wait::{Channel, ThreadNumber, Waiters};

/// Nanoseconds that a thread runs while others want to: a turn's end costs two exits.
const TURN: u64 = 10_000_000;
/// Nanoseconds that a thread runs at least that was given a turn before somebody's waiting was over: where exits are dear its turn begins after that.
const LEAST: u64 = 50_000;

/// All processes and threads but those that run, and what decides who is next.
#[derive(Debug)]
pub struct Others {
    pub(super) processes: BTreeMap<ProcessNumber, Box<Process>>,
    pub(super) threads: BTreeMap<ThreadNumber, Box<Thread>>,
    /// Memory of spaces other than the running one.
    pub(crate) memories: BTreeMap<SpaceIndex, Box<AddressSpace>>,
    pub(super) zygotes: Zygotes,
    pub(super) waiters: Waiters,
    /// What is mapped where processes share memory.
    pub shared: Regions,
    /// What of it processes have given different permissions, as it is mapped now.
    pub(crate) contested: Regions,
    /// Threads that can run, each once.
    pub(super) queue: VecDeque<ThreadNumber>,
    /// Numbers above this were not given lately.
    pub(super) last_number: u32,
    /// When the running thread's turn began.
    turn_began: u64,
    /// When a turn ends, if others want one.
    turn_ends: Option<u64>,
    /// Until then nobody whose waiting is over disturbs the running thread.
    turn_kept: u64,
    /// The turn is over.
    turn_over: bool,
    /// When the next timer of a process runs out.
    pub(super) timers_due: Option<u64>,
    /// Grows whenever another thread, or another program, runs.
    pub turns: u64,
}

impl Others {
    pub(super) fn new(now: u64) -> Others {
        Others {
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            memories: BTreeMap::new(),
            zygotes: Zygotes::default(),
            waiters: Waiters::default(),
            shared: Regions::default(),
            contested: Regions::default(),
            queue: VecDeque::new(),
            last_number: crate::process::FIRST,
            turn_began: now,
            turn_ends: None,
            turn_kept: now,
            turn_over: false,
            timers_due: None,
            turns: 0,
        }
    }

    /// How long the running thread has run.
    #[must_use]
    pub(super) fn turn(&self, now: u64) -> u64 {
        now.saturating_sub(self.turn_began)
    }
}

impl System {
    /// Gives the CPU to the next thread that can run.
    pub fn switch(&mut self, context: &mut SavedContext) {
        self.charge();
        if matches!(self.thread.stage, Stage::Runs | Stage::Calls | Stage::Starts(_))
            && !self.process.stopped
            && !self.others.queue.contains(&self.thread.number)
        {
            self.others.queue.push_back(self.thread.number);
        }
        let next = self.next();
        let is_late = self.others.waiters.next().is_some_and(|(deadline, _)| deadline <= clock::now());
        self.others.turn_over = false;
        if next != self.thread.number
            && let Some(mut thread) = self.others.threads.remove(&next)
        {
            self.others.turns += 1;
            if matches!(self.thread.stage, Stage::Runs) {
                self.leave_sequence(context);
            }
            self.put_credentials_away();
            self.enter_process(thread.process);
            if let Some(who) = &thread.who {
                self.files.own.who.clone_from(who);
            }
            self.thread.save(context);
            thread.load(context);
            let before = core::mem::replace(&mut self.thread, thread);
            self.files.thread = next;
            if !matches!(before.stage, Stage::Ended) {
                self.others.threads.insert(before.number, before);
            }
            self.announce_number();
        }
        self.others.turn_began = clock::now();
        if !is_late {
            self.others.turn_kept = self.others.turn_began + LEAST;
        }
        self.arm();
    }

    /// Keeps who the running thread is, if that is its own business: for others its process is who its first thread is.
    fn put_credentials_away(&mut self) {
        if self.thread.who.is_none() {
            return;
        }
        let first = self.process.number;
        let leader = self.others.threads.get(&first).filter(|_| self.thread.number != first).and_then(|leader| leader.who.clone());
        let own = leader.unwrap_or_else(|| self.files.own.who.clone());
        self.thread.who = Some(core::mem::replace(&mut self.files.own.who, own));
    }

    /// Leads the running thread out of the sequence that it is in, because it is being interrupted.
    pub fn leave_sequence(&mut self, context: &mut SavedContext) {
        let Some(registered) = self.thread.sequences else { return };
        match registered.leave(context.rip) {
            Ok(instruction) => context.rip = instruction,
            Err(_) => {
                self.thread.sequences = None;
                self.force(Info::kernel(Signal::SEGV));
            }
        }
    }

    /// Whether the running thread is to make way for another.
    #[must_use]
    pub fn makes_way(&self) -> bool {
        let can_run = matches!(self.thread.stage, Stage::Runs) && !self.process.stopped;
        !can_run || self.others.turn_over && !self.others.queue.is_empty()
    }

    /// The next thread that can run, waiting until there is one.
    fn next(&mut self) -> ThreadNumber {
        loop {
            self.notice();
            if self.settle() {
                // Something may have been noted meanwhile.
                continue;
            }
            // A process that a signal has ended leaves its files outside of any call.
            self.wake_noted();
            if let Some(next) = self.others.queue.pop_front() {
                return next;
            }
            let deadline = self.others.waiters.next().map(|(deadline, _)| deadline);
            let deadline = deadline.into_iter().chain(self.network_due()).min().unwrap_or(NO_DEADLINE);
            if deadline > clock::now() {
                // Of an earlier turn there is nothing to hear while nobody runs.
                events::set_timer(self.due().min(self.network_due().unwrap_or(NO_DEADLINE)));
                events::wait(deadline);
                // Nobody has used the CPU meanwhile.
                self.others.turn_began = clock::now();
            }
            let now = clock::now();
            self.rouse_due(now);
            if self.network_due().is_some_and(|due| due <= now) {
                self.pump();
            }
        }
    }

    /// When the network has something to do by itself.
    pub(super) fn network_due(&self) -> Option<u64> {
        self.files.sockets.outside.deadline()
    }

    /// Puts a process in place of the running one, with its memory and its files.
    fn enter_process(&mut self, number: ProcessNumber) {
        if number == self.process.number {
            return;
        }
        let Some(process) = self.others.processes.remove(&number) else { return };
        self.files.enter(number);
        self.enter_space(process.space);
        let before = core::mem::replace(&mut self.process, process);
        if before.is_forgotten {
            self.files.forget_process(before.number);
        } else {
            self.others.processes.insert(before.number, before);
        }
        self.watch_timers();
    }

    /// Runs on in another space. Whoever ran in the one before has it still, or it is gone.
    pub(super) fn enter_space(&mut self, space: SpaceIndex) {
        let before = self.memory.space;
        if space == before {
            return;
        }
        self.leave_mappings();
        let Some(memory) = self.others.memories.remove(&space) else { return };
        hypercall::space_switch(space).expect("a space is there as long as its memory is");
        let memory_before = core::mem::replace(&mut self.memory, memory);
        let is_used = |process: &Process| process.space == before && !process.has_ended();
        if is_used(&self.process) || self.others.processes.values().any(|process| is_used(process)) {
            self.others.memories.insert(before, memory_before);
        } else {
            self.retire(memory_before);
        }
        self.settle_shared();
        self.enter_mappings();
    }

    /// Adds the running thread's turn to what it has used.
    pub(super) fn charge(&mut self) {
        let now = clock::now();
        let turn = self.others.turn(now);
        self.thread.used += turn;
        self.process.usage.own += turn;
        self.others.turn_began = now;
    }

    /// Makes the timer event come by the time that something is due: a timer, somebody's deadline, the end of a turn.
    pub(super) fn arm(&mut self) {
        if self.others.queue.is_empty() {
            self.others.turn_ends = None;
        } else {
            let now = clock::now();
            self.others.turn_ends.get_or_insert(now + TURN);
        }
        events::set_timer_by(self.due());
        self.remind();
    }

    /// Makes the timer event come by the time that the network has something to do by itself. That waits for an exit, as what programs say by it does.
    pub(super) fn remind(&self) {
        events::lower_timer(self.network_due().unwrap_or(NO_DEADLINE));
    }

    /// When something is due for threads.
    fn due(&self) -> u64 {
        let deadline = self.others.waiters.next().map(|(deadline, _)| deadline.max(self.others.turn_kept));
        [self.others.timers_due, deadline, self.others.turn_ends].into_iter().flatten().min().unwrap_or(NO_DEADLINE)
    }

    /// Ends the running thread's turn if its time has come.
    pub(super) fn end_turn(&mut self, now: u64) {
        if self.others.turn_ends.is_some_and(|end| end <= now) {
            self.others.turn_ends = None;
            self.others.turn_over = true;
        }
    }

    /// Lets those go first that want to run, as the running thread asks.
    pub fn end_turn_now(&mut self) {
        self.others.turn_over = true;
    }

    /// Whether no other thread could run while this one waits.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.others.threads.is_empty()
    }

    /// Wakes all threads that wait on a channel: each makes its call again.
    pub fn wake(&mut self, channel: Channel) {
        let woken: Vec<ThreadNumber> = self.others.waiters.on(channel).collect();
        for thread in woken {
            self.rouse(thread);
        }
    }

    /// Wakes those whose files have changed.
    pub fn wake_noted(&mut self) {
        if let Some(network) = &mut self.network {
            if self.files.sockets.outside.calls() {
                self.pump();
            } else {
                network.hurry();
            }
        }
        self.pump_jobs();
        while let Some(channel) = self.files.changed.pop() {
            self.wake(channel);
        }
        while let Some(session) = self.files.ptys.hung_up.pop() {
            for signal in [Signal::HUP, Signal::CONT] {
                // A leader that is gone hears nothing.
                let _ = self.send(session, Info::kernel(signal));
            }
        }
    }

    /// Who waits on a channel, in order of arrival.
    #[must_use]
    pub fn waiters_on(&self, channel: Channel) -> Vec<ThreadNumber> {
        self.others.waiters.on(channel).collect()
    }

    /// Lets a thread that waits wait on another channel.
    pub fn requeue(&mut self, number: ThreadNumber, to: Channel) {
        let others = &mut self.others;
        if let Some(Stage::Waits(wait)) = others.threads.get_mut(&number).map(|thread| &mut thread.stage) {
            others.waiters.requeue(number, wait, to);
        }
    }

    /// Wakes a thread that waits.
    pub(crate) fn rouse(&mut self, number: ThreadNumber) {
        let Some(thread) = self.thread_of_mut(number) else { return };
        if !matches!(thread.stage, Stage::Waits(_)) {
            return;
        }
        let process = thread.process;
        if let Stage::Waits(wait) = core::mem::replace(&mut thread.stage, Stage::Calls) {
            self.others.waiters.remove(number, &wait);
        }
        if self.process_of(process).is_some_and(|process| !process.stopped) {
            self.others.queue.push_back(number);
            if self.others.turn_ends.is_none() && number != self.thread.number {
                self.arm();
            }
        }
    }

    /// Ends the call of a thread that waits.
    pub fn finish_call(&mut self, number: ThreadNumber, result: Result<u64, Errno>) {
        if let Some(waiter) = self.thread_of_mut(number) {
            waiter.call.result = Some(result.unwrap_or_else(Errno::to_result));
        }
        self.rouse(number);
    }

    /// Ends the calls of all threads that wait on a channel.
    pub fn finish_calls_on(&mut self, channel: Channel, result: Result<u64, Errno>) {
        for thread in self.waiters_on(channel) {
            self.finish_call(thread, result);
        }
    }

    /// Wakes those whose deadline has come, unless the running thread has only begun.
    pub(super) fn rouse_late(&mut self, now: u64) {
        if now >= self.others.turn_kept {
            self.rouse_due(now);
        }
    }

    /// Wakes those whose deadline has come.
    fn rouse_due(&mut self, now: u64) {
        while let Some((_, thread)) = self.others.waiters.next().filter(|(deadline, _)| *deadline <= now) {
            self.rouse(thread);
        }
    }

    /// Stops the running process.
    pub fn stop(&mut self, signal: Signal) {
        self.process.stopped = true;
        let Process { threads, number, .. } = &*self.process;
        self.others.queue.retain(|thread| !threads.contains(thread));
        self.tell_parent(*number, Change::Stopped(signal.0));
    }

    /// Lets a process that was stopped go on; its parent may be told.
    pub fn resume_process(&mut self, number: ProcessNumber, tells: bool) {
        let Some(process) = self.process_of_mut(number).filter(|process| process.stopped) else { return };
        process.stopped = false;
        for thread in process.threads.clone() {
            let can_run =
                self.thread_of(thread).is_some_and(|thread| matches!(thread.stage, Stage::Runs | Stage::Calls | Stage::Starts(_)));
            if can_run && (thread != self.thread.number || !self.others.queue.contains(&thread)) {
                self.others.queue.push_back(thread);
            }
        }
        if tells {
            self.tell_parent(number, Change::Continued);
        }
    }

    /// Sends a signal to the parent of a process, and wakes it if it waits, because of what became of its child.
    pub(super) fn tell_parent(&mut self, number: ProcessNumber, change: Change) {
        let user = self.files.user_of(number);
        let Some(process) = self.process_of_mut(number) else { return };
        process.change = Some(change);
        let (parent, signal) = (process.parent, if change.is_end() { process.end_signal } else { Signal::CHLD.0 });
        let info = process.told(change, user);
        let Some(shared) = self.process_of(parent).map(|parent| &parent.signals) else { return };
        let silent = !change.is_end() && shared.action(Signal::CHLD).flags & crate::signals::action::flag::NO_CHILD_STOP != 0;
        if signal != 0 && !silent {
            // One that finds no room is lost, as on Linux.
            let _ = self.send(parent, info.by(Signal(signal)));
        }
        self.wake(Channel::Child(parent));
    }

    /// Writes a new thread's number where it is to stand, now that its memory is there.
    fn announce_number(&mut self) {
        let address = core::mem::take(&mut self.thread.set_number);
        if address != 0 {
            // Whoever gave no memory is not told, as on Linux.
            let _ = crate::user::set_word32(address, self.thread.number);
        }
    }
}
