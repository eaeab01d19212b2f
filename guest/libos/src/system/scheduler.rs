// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler: one thread runs at a time; the others wait for an event or for their turn.
//!
//! Runnable threads stand in a queue. One runs until it waits, or until the timer event ends its time slice while others are in the
//! queue. When no thread is runnable, the cell idles.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use pando_abi::{Refusal, SavedContext, SpaceIndex};
use pando_rt::hypercall::{self, NO_DEADLINE, NextSpace};
use pando_rt::{clock, debug, events, timer};

use super::System;
use super::zygotes::Zygotes;
use crate::cpu_time::{CpuTime, SystemTime};
use crate::errno::Errno;
use crate::files::tree::node::NodeId;
use crate::memory::AddressSpace;
use crate::memory::regions::Regions;
use crate::process::{Pid, Process, ProcessStateChange};
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use crate::thread::{Thread, ThreadState};
use crate::uapi::SA_NOCLDSTOP;
use crate::wait::{Channel, Tid, Waiters};

/// Time slice in nanoseconds while other threads are runnable: the end of a slice costs two exits.
const TIME_SLICE: u64 = 10_000_000;
/// Minimum run time in nanoseconds of a thread that was scheduled before the next waiter's deadline. Where exits are expensive, that
/// deadline may have passed already, and there is no minimum.
const SLICE_MIN: u64 = 50_000;

/// All processes and threads except the running ones, and the scheduler's state.
#[derive(Debug)]
pub struct Descheduled {
    pub(super) processes: BTreeMap<Pid, Box<Process>>,
    pub(super) threads: BTreeMap<Tid, Box<Thread>>,
    /// Memory of spaces other than the running one.
    pub(crate) memories: BTreeMap<SpaceIndex, Box<AddressSpace>>,
    pub(super) zygotes: Zygotes,
    pub(super) waiters: Waiters,
    /// Regions that are mapped in memory shared by processes.
    pub shared: Regions,
    /// The shared regions to which processes have given different permissions, with those that are mapped now.
    pub(crate) contested: Regions,
    /// The files that shared anonymous memory has become.
    pub(crate) anonymous_files: Vec<NodeId>,
    /// Runnable threads, each once.
    pub(super) queue: VecDeque<Tid>,
    /// The number assigned last; higher ones have not been used recently.
    pub(super) last_number: u32,
    /// When the running thread's time slice began, by the clock of CPU time.
    slice_began: u64,
    /// The libOS's part of the time slice.
    slice_system: SystemTime,
    /// When the time slice ends, if other threads are runnable.
    slice_ends: Option<u64>,
    /// Until then, threads whose wait is over do not preempt the running thread.
    slice_kept: u64,
    /// The time slice is over.
    slice_over: bool,
    /// When the next timer of a process expires.
    pub(super) timers_due: Option<u64>,
    /// Increases whenever another thread, or another program, runs.
    pub turns: u64,
}

impl Descheduled {
    pub(super) fn new(now: u64) -> Descheduled {
        Descheduled {
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            memories: BTreeMap::new(),
            zygotes: Zygotes::default(),
            waiters: Waiters::default(),
            shared: Regions::default(),
            contested: Regions::default(),
            anonymous_files: Vec::new(),
            queue: VecDeque::new(),
            last_number: crate::process::FIRST,
            slice_began: now,
            slice_system: SystemTime::default(),
            slice_ends: None,
            slice_kept: now,
            slice_over: false,
            timers_due: None,
            turns: 0,
        }
    }

    /// The number of spaces that the libOS knows, the running one included.
    pub(super) fn spaces(&self) -> u64 {
        (self.memories.len() + self.zygotes.count()) as u64 + 2
    }

    /// How long the running thread has run in this time slice.
    #[must_use]
    pub(super) fn turn(&self, now: u64) -> CpuTime {
        let total = now.saturating_sub(self.slice_began);
        CpuTime { total, system: self.slice_system.at(self.slice_began, now).min(total) }
    }
}

impl System {
    /// Switches to the next runnable thread.
    pub fn switch(&mut self, context: &mut SavedContext) {
        if self.memory.has_late_protections() {
            self.memory.set_late_protections();
        }
        self.charge();
        if matches!(self.thread.state, ThreadState::Runs | ThreadState::Calls | ThreadState::Starts(_))
            && !self.process.stopped
            && !self.others.queue.contains(&self.thread.number)
        {
            self.others.queue.push_back(self.thread.number);
        }
        let next = self.next();
        if self.thread_table.is_some() {
            debug::read_again(context);
        }
        let is_late = self.others.waiters.next().is_some_and(|(deadline, _)| deadline <= clock::now());
        self.others.slice_over = false;
        if next != self.thread.number
            && let Some(mut thread) = self.others.threads.remove(&next)
        {
            self.others.turns += 1;
            if matches!(self.thread.state, ThreadState::Runs) {
                self.abort_rseq(context);
            }
            self.save_credentials();
            self.enter_process(thread.process);
            if let Some(credentials) = &thread.credentials {
                self.files.current.credentials.clone_from(credentials);
            }
            self.thread.save(context);
            thread.load(context);
            let before = core::mem::replace(&mut self.thread, thread);
            self.files.thread = next;
            if !matches!(before.state, ThreadState::Ended) {
                self.others.threads.insert(before.number, before);
            }
            self.announce_number();
            self.list_threads();
        }
        self.others.slice_began = clock::running();
        if !is_late {
            self.others.slice_kept = clock::now() + SLICE_MIN;
        }
        self.arm();
    }

    /// Saves the running thread's credentials if they differ from its process's; other threads see the first thread's as those of the
    /// process.
    fn save_credentials(&mut self) {
        if self.thread.credentials.is_none() {
            return;
        }
        let first = self.process.number;
        let leader = self.others.threads.get(&first).filter(|_| self.thread.number != first).and_then(|leader| leader.credentials.clone());
        let credentials = leader.unwrap_or_else(|| self.files.current.credentials.clone());
        self.thread.credentials = Some(core::mem::replace(&mut self.files.current.credentials, credentials));
    }

    /// Aborts the restartable sequence (rseq) of the running thread, because the thread is being preempted.
    pub fn abort_rseq(&mut self, context: &mut SavedContext) {
        let Some(registered) = self.thread.rseq else { return };
        match registered.leave(context.rip) {
            Ok(instruction) => context.rip = instruction,
            Err(_) => {
                self.thread.rseq = None;
                self.force(SigInfo::kernel(Signal::SIGSEGV));
            }
        }
    }

    /// Whether the running thread should yield to another.
    #[must_use]
    pub fn should_yield(&self) -> bool {
        let can_run = matches!(self.thread.state, ThreadState::Runs) && !self.process.stopped;
        !can_run || self.jobs.suspend_programs() || self.others.slice_over && !self.others.queue.is_empty()
    }

    /// The next runnable thread; waits until there is one.
    fn next(&mut self) -> Tid {
        loop {
            self.process_events();
            if self.run_deferred_work() {
                // An event may have arrived meanwhile.
                continue;
            }
            // A process killed by a signal closes its files outside of any call.
            self.wake_noted();
            let runs = !self.jobs.suspend_programs();
            if let Some(next) = self.others.queue.pop_front_if(|_| runs) {
                return next;
            }
            if !events::noted().is_empty() {
                // Noted while something above waited for the console: nothing would tell of it again.
                continue;
            }
            let deadline = self.others.waiters.next().map(|(deadline, _)| deadline);
            let deadline = deadline.into_iter().chain(self.network_due()).min().unwrap_or(NO_DEADLINE);
            if deadline > clock::now() {
                // While no thread runs, the deadline of the last time slice does not matter.
                timer::set(self.due().min(self.network_due().unwrap_or(NO_DEADLINE)));
                self.list_threads();
                events::wait(deadline);
                // No thread has used the CPU meanwhile.
                self.others.slice_began = clock::running();
            }
            let now = clock::now();
            self.wake_due_threads(now);
            if self.network_due().is_some_and(|due| due <= now) {
                self.pump();
            }
        }
    }

    /// When the network stack's next timer is due.
    pub(super) fn network_due(&self) -> Option<u64> {
        self.files.sockets.inet.deadline()
    }

    /// Switches to a process, with its memory and its files.
    fn enter_process(&mut self, number: Pid) {
        if number == self.process.number {
            return;
        }
        let Some(process) = self.others.processes.remove(&number) else { return };
        self.files.switch_to(number);
        self.enter_space(process.space);
        let before = core::mem::replace(&mut self.process, process);
        if before.is_auto_reaped {
            self.files.forget_process(before.number);
        } else {
            self.others.processes.insert(before.number, before);
        }
        self.watch_timers();
    }

    /// Switches to the space of another process. The previous one is still in use by another process, or is given up.
    fn enter_space(&mut self, space: SpaceIndex) {
        if space == self.memory.space {
            return;
        }
        let Some(memory) = self.others.memories.remove(&space) else { return };
        let is_used = !self.process.has_ended() || self.is_memory_of_others();
        self.enter_memory(NextSpace::Existing(space), memory, is_used).expect("a space is there as long as its memory is");
    }

    /// Whether a process other than the running one uses the present memory.
    pub(super) fn is_memory_of_others(&self) -> bool {
        let space = self.memory.space;
        self.others.processes.values().any(|process| process.space == space && !process.has_ended())
    }

    /// Switches to a space, whose memory is, or is cloned from, `memory`. `is_used`: a process still uses the previous one. Otherwise it
    /// becomes a zygote or is destroyed. Returns the space.
    ///
    /// # Errors
    /// There is no such space, or the clone could not be made. The running program can only end: its shared mappings are left.
    pub(super) fn enter_memory(&mut self, next: NextSpace, mut memory: Box<AddressSpace>, is_used: bool) -> Result<SpaceIndex, Refusal> {
        self.leave_mappings();
        let before = self.memory.space;
        let is_zygote = !is_used && self.keeps_as_zygote();
        let destroyed = Some(before).filter(|_| !is_used && !is_zygote);
        memory.space = hypercall::space_switch(next, destroyed)?;
        let space = memory.space;
        let memory_before = core::mem::replace(&mut self.memory, memory);
        if is_used {
            self.others.memories.insert(before, memory_before);
        } else if is_zygote {
            self.add_zygote(memory_before);
        } else {
            self.drop_zygotes_if_short();
        }
        self.apply_permissions();
        self.enter_mappings();
        Ok(space)
    }

    /// Adds the running thread's time slice to its CPU time.
    pub(super) fn charge(&mut self) {
        let now = clock::running();
        let turn = self.others.turn(now);
        self.thread.used += turn;
        self.process.usage.own += turn;
        self.others.slice_began = now;
        self.others.slice_system.reset();
    }

    /// Notes that the libOS begins to serve an upcall.
    pub fn enter_upcall(&mut self) {
        self.others.slice_system.enter(clock::running);
    }

    /// Measures the system time of the present upcall, which may take long.
    pub fn measure_upcall(&mut self) {
        self.others.slice_system.measure(clock::running);
    }

    /// Notes that the program runs again.
    pub fn leave_upcall(&mut self) {
        self.others.slice_system.leave(self.others.slice_began, clock::running);
    }

    /// Sets the timer event to the next deadline: a timer, a wait's timeout, or the end of the time slice.
    pub(super) fn arm(&mut self) {
        if self.others.queue.is_empty() {
            self.others.slice_ends = None;
        } else {
            let now = clock::now();
            self.others.slice_ends.get_or_insert(now + TIME_SLICE);
        }
        timer::set_by(self.due());
        self.arm_network_timer();
    }

    /// Advances the timer event to the network stack's next timer. It takes effect at the next exit, as transmitted packets do.
    pub(super) fn arm_network_timer(&self) {
        timer::lower(self.network_due().unwrap_or(NO_DEADLINE));
    }

    /// When the next deadline of a thread is due.
    fn due(&self) -> u64 {
        let deadline = self.others.waiters.next().map(|(deadline, _)| deadline.max(self.others.slice_kept));
        [self.others.timers_due, deadline, self.others.slice_ends].into_iter().flatten().min().unwrap_or(NO_DEADLINE)
    }

    /// Ends the running thread's time slice if it has expired.
    pub(super) fn end_turn(&mut self, now: u64) {
        if self.others.slice_ends.is_some_and(|end| end <= now) {
            self.others.slice_ends = None;
            self.others.slice_over = true;
        }
    }

    /// Yields to other runnable threads (`sched_yield`).
    pub fn end_turn_now(&mut self) {
        self.others.slice_over = true;
    }

    /// Whether no other thread could run while this one waits.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.others.threads.is_empty()
    }

    /// Wakes all threads that wait on a channel: each restarts its call.
    pub fn wake(&mut self, channel: Channel) {
        let woken: Vec<Tid> = self.others.waiters.on(channel).collect();
        for thread in woken {
            self.wake_thread(thread);
        }
    }

    /// Wakes threads whose files have changed.
    pub fn wake_noted(&mut self) {
        if let Some(network) = &mut self.network {
            if self.files.sockets.inet.has_work() {
                self.pump();
            } else {
                network.ring_if_overdue();
            }
        }
        self.pump_jobs();
        self.take_answers();
        while let Some(channel) = self.files.changed.pop() {
            self.wake(channel);
        }
        while let Some(session) = self.files.ptys.hung_up.pop() {
            for signal in [Signal::SIGHUP, Signal::SIGCONT] {
                // A session leader that has ended gets no signal.
                let _ = self.send(session, SigInfo::kernel(signal));
            }
        }
    }

    /// The threads that wait on a channel, in order of arrival.
    #[must_use]
    pub fn waiters_on(&self, channel: Channel) -> Vec<Tid> {
        self.others.waiters.on(channel).collect()
    }

    /// Moves a waiting thread to another channel.
    pub fn requeue(&mut self, number: Tid, to: Channel) {
        let others = &mut self.others;
        if let Some(ThreadState::Waits(wait)) = others.threads.get_mut(&number).map(|thread| &mut thread.state) {
            others.waiters.requeue(number, wait, to);
        }
    }

    /// Wakes a waiting thread.
    pub(crate) fn wake_thread(&mut self, number: Tid) {
        let Some(thread) = self.thread_of_mut(number) else { return };
        if !matches!(thread.state, ThreadState::Waits(_)) {
            return;
        }
        let process = thread.process;
        if let ThreadState::Waits(wait) = core::mem::replace(&mut thread.state, ThreadState::Calls) {
            self.others.waiters.remove(number, &wait);
        }
        if self.process_of(process).is_some_and(|process| !process.stopped) {
            self.others.queue.push_back(number);
            if self.others.slice_ends.is_none() && number != self.thread.number {
                self.arm();
            }
        }
    }

    /// Completes the call of a waiting thread.
    pub fn finish_call(&mut self, number: Tid, result: Result<u64, Errno>) {
        if let Some(waiter) = self.thread_of_mut(number) {
            waiter.call.result = Some(result.unwrap_or_else(Errno::to_result));
        }
        self.wake_thread(number);
    }

    /// Completes the calls of all threads that wait on a channel.
    pub fn finish_calls_on(&mut self, channel: Channel, result: Result<u64, Errno>) {
        for thread in self.waiters_on(channel) {
            self.finish_call(thread, result);
        }
    }

    /// Wakes threads whose deadline has passed, unless the running thread has only begun.
    pub(super) fn wake_late_threads(&mut self, now: u64) {
        if now >= self.others.slice_kept {
            self.wake_due_threads(now);
        }
    }

    /// Wakes threads whose deadline has passed.
    fn wake_due_threads(&mut self, now: u64) {
        while let Some((_, thread)) = self.others.waiters.next().filter(|(deadline, _)| *deadline <= now) {
            self.wake_thread(thread);
        }
    }

    /// Stops the running process.
    pub fn stop(&mut self, signal: Signal) {
        self.process.stopped = true;
        let Process { threads, number, .. } = &*self.process;
        self.others.queue.retain(|thread| !threads.contains(thread));
        self.notify_parent(*number, ProcessStateChange::Stopped(signal.0));
    }

    /// Continues a stopped process; `tells`: its parent is notified.
    pub fn resume_process(&mut self, number: Pid, tells: bool) {
        let Some(process) = self.process_of_mut(number).filter(|process| process.stopped) else { return };
        process.stopped = false;
        for thread in process.threads.clone() {
            let can_run = self
                .thread_of(thread)
                .is_some_and(|thread| matches!(thread.state, ThreadState::Runs | ThreadState::Calls | ThreadState::Starts(_)));
            if can_run && (thread != self.thread.number || !self.others.queue.contains(&thread)) {
                self.others.queue.push_back(thread);
            }
        }
        if tells {
            self.notify_parent(number, ProcessStateChange::Continued);
        }
    }

    /// Notifies the parent of a process of its state change, by a signal and by waking it.
    pub(super) fn notify_parent(&mut self, number: Pid, change: ProcessStateChange) {
        let user = self.files.user_of(number);
        let Some(process) = self.process_of_mut(number) else { return };
        process.change = Some(change);
        let (parent, signal) = (process.parent, if change.is_end() { process.end_signal } else { Signal::SIGCHLD.0 });
        let info = process.child_info(change, user);
        let Some(shared) = self.process_of(parent).map(|parent| &parent.signals) else { return };
        let silent = !change.is_end() && shared.action(Signal::SIGCHLD).flags & SA_NOCLDSTOP != 0;
        if signal != 0 && !silent {
            // A signal that exceeds the queue limit is lost, as on Linux.
            let _ = self.send(parent, info.by(Signal(signal)));
        }
        self.wake(Channel::Child(parent));
    }

    /// Writes a new thread's number to the requested address, now that its memory is active.
    fn announce_number(&mut self) {
        let address = core::mem::take(&mut self.thread.set_child_tid);
        if address != 0 {
            // Writing to an invalid address is no error, as on Linux.
            let _ = crate::user::set_word32(address, self.thread.number);
        }
    }
}
