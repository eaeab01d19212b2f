// SPDX-License-Identifier: MIT OR Apache-2.0
//! The complete state of the libOS. The running process and thread are fields of [`System`]; all others are kept in [`Descheduled`] until
//! the scheduler runs them ([`scheduler`]).

mod debugging;
mod end;
mod execute;
mod fork;
mod freeze;
pub mod futex;
mod jobs;
mod mounts;
mod network;
pub mod scheduler;
mod segments;
mod send;
mod spinning;
pub mod wait4;
mod zygotes;

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use pando_abi::virtual_registers::Window;
use pando_abi::{Event, EventSet, Registers, SpaceIndex};
use pando_rt::hypercall::{NO_DEADLINE, exit};
use pando_rt::{clock, console, events, registers};

use crate::cpu_time::CpuTime;
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::files::Files;
use crate::ipc::Ipc;
use crate::jobs::Jobs;
use crate::limits::Limit;
use crate::memory::AddressSpace;
use crate::network::NetworkStack;
use crate::process::{FIRST, Pid, Process};
use crate::random::Random;
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use crate::terminal::{Terminal, TerminalName};
use crate::thread::{Thread, ThreadState};
use crate::thread_table::ThreadTable;
use crate::timers::{ClockReadings, CpuClockTarget};
use crate::uapi::{CAP_SYS_RESOURCE, RLIMIT_FSIZE, RLIMIT_NOFILE, SI_TIMER, SI_USER};
use crate::wait::{Channel, Tid};
pub use fork::CloneArgs;
use scheduler::Descheduled;

/// A change to the calling context that a system call leaves to its caller.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// A signal handler has returned: continue as its frame says.
    Return,
    /// A thread was created that continues at this point, on a stack of its own unless that is 0.
    Copy {
        /// The new thread.
        to: Tid,
        /// Its stack pointer.
        stack: u64,
    },
    /// A program was executed and starts with these registers.
    Start(Registers),
}

/// The complete state.
#[derive(Debug)]
pub struct System {
    /// The memory of the running process.
    pub memory: Box<AddressSpace>,
    /// All files, and what each process has open.
    pub files: Files,
    /// System V IPC objects.
    pub ipc: Ipc,
    /// The terminal.
    pub terminal: Terminal,
    /// The cell's randomness.
    pub random: Random,
    /// The running process.
    pub process: Box<Process>,
    /// The running thread.
    pub thread: Box<Thread>,
    /// The cell's network, if it has a card.
    pub network: Option<Box<NetworkStack>>,
    /// Programs that the operator has started beside the first one.
    pub jobs: Jobs,
    /// The signal that the operator's request to end becomes.
    pub stop_signal: Signal,
    /// System calls are printed.
    pub traced: bool,
    /// The table of threads for a debugger in the parent cell, if there is one.
    pub thread_table: Option<ThreadTable>,
    /// The boot ID (`/proc/sys/kernel/random/boot_id`), once it has been read.
    pub boot_id: Option<[u8; 16]>,
    /// The generation of clones that this libOS last noticed.
    generation: u64,
    /// Events that are processed once no operation is in progress.
    deferred: EventSet,
    /// The thread whose line of the trace is not complete.
    pub unfinished: Option<Tid>,
    /// The change to make to the context once the system call is over.
    pub effect: Option<Effect>,
    /// All other processes and threads.
    pub others: Descheduled,
}

impl System {
    /// A system of one process that has not been loaded yet.
    #[must_use]
    pub fn new(files: Files, terminal: Terminal, random: Random) -> System {
        let now = clock::now();
        System {
            memory: Box::default(),
            files,
            ipc: Ipc::default(),
            terminal,
            random,
            process: Box::new(Process::new(FIRST, now)),
            thread: Box::new(Thread::new(FIRST)),
            network: None,
            jobs: Jobs::default(),
            stop_signal: Signal::SIGTERM,
            traced: false,
            thread_table: None,
            boot_id: None,
            generation: registers::identity().generation,
            deferred: EventSet::NONE,
            unfinished: None,
            effect: None,
            others: Descheduled::new(now),
        }
    }

    /// Sets a limit of a process.
    ///
    /// # Errors
    /// `EINVAL`, `EPERM`, `ESRCH`.
    pub fn set_limit(&mut self, number: Pid, resource: u64, limit: Limit) -> Result<(), Errno> {
        let may_raise = self.files.current.credentials.is_capable(CAP_SYS_RESOURCE);
        self.process_of_mut(number).ok_or(Errno::ESRCH)?.limits.set(resource, limit, may_raise)?;
        if let Some(process_files) = self.files.of_mut(number) {
            match resource {
                RLIMIT_NOFILE => process_files.descriptors_max = limit.soft,
                RLIMIT_FSIZE => process_files.file_size_max = limit.soft,
                _ => {}
            }
        }
        self.watch_timers();
        Ok(())
    }

    /// The running thread's own credentials, mutably: other threads of its process keep theirs.
    pub fn own_credentials(&mut self) -> &mut Credentials {
        if self.process.threads.len() > 1 && self.thread.credentials.is_none() {
            let threads: Vec<Tid> = self.process.threads.iter().copied().collect();
            for number in threads {
                let credentials = self.files.current.credentials.clone();
                if let Some(thread) = self.thread_of_mut(number) {
                    thread.credentials = Some(credentials);
                }
            }
        }
        &mut self.files.current.credentials
    }

    /// The running process's user.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.files.current.credentials.user.real
    }

    /// A process, which may be a zombie.
    #[must_use]
    pub fn process_of(&self, number: Pid) -> Option<&Process> {
        if self.process.number == number { Some(&self.process) } else { self.others.processes.get(&number).map(|process| &**process) }
    }

    /// A process, mutably.
    pub fn process_of_mut(&mut self, number: Pid) -> Option<&mut Process> {
        if self.process.number == number {
            return Some(&mut self.process);
        }
        self.others.processes.get_mut(&number).map(|process| &mut **process)
    }

    /// The process with a number, or with a thread of that number.
    #[must_use]
    pub fn process_named(&self, number: u32) -> Option<Pid> {
        self.process_of(number).map(|process| process.number).or_else(|| self.thread_of(number).map(|thread| thread.process))
    }

    /// The numbers of the processes that satisfy a predicate, in order.
    #[must_use]
    pub fn processes_where(&self, is: impl Fn(&Process) -> bool) -> Vec<Pid> {
        let mut numbers: Vec<Pid> = self.others.processes.values().filter(|process| is(process)).map(|process| process.number).collect();
        if is(&self.process) {
            let index = numbers.partition_point(|number| *number < self.process.number);
            numbers.insert(index, self.process.number);
        }
        numbers
    }

    /// A thread.
    #[must_use]
    pub fn thread_of(&self, number: Tid) -> Option<&Thread> {
        if self.thread.number == number { Some(&self.thread) } else { self.others.threads.get(&number).map(|thread| &**thread) }
    }

    /// A thread, mutably.
    pub fn thread_of_mut(&mut self, number: Tid) -> Option<&mut Thread> {
        if self.thread.number == number {
            return Some(&mut self.thread);
        }
        self.others.threads.get_mut(&number).map(|thread| &mut **thread)
    }

    /// All threads.
    pub fn all_threads(&self) -> impl Iterator<Item = &Thread> {
        self.others.threads.values().map(|thread| &**thread).chain([&*self.thread])
    }

    /// The number that was assigned to a process or thread last.
    #[must_use]
    pub fn last_number(&self) -> Tid {
        self.others.last_number
    }

    /// The memory of a space, if it exists.
    #[must_use]
    pub fn memory_of(&self, space: SpaceIndex) -> Option<&AddressSpace> {
        if self.memory.space == space { Some(&self.memory) } else { self.others.memories.get(&space).map(|memory| &**memory) }
    }

    /// The terminal of a session.
    fn terminal_named(&self, session: Pid) -> Option<TerminalName> {
        if self.terminal.is_there() && self.terminal.session == session {
            return Some(TerminalName::Operator);
        }
        self.files.ptys.all().find(|(_, pty)| pty.terminal.session == session).map(|(id, _)| TerminalName::Pseudo(id))
    }

    /// The terminal of the running process's session.
    #[must_use]
    pub fn controlling(&self) -> Option<TerminalName> {
        self.terminal_named(self.process.session)
    }

    /// A terminal.
    ///
    /// # Errors
    /// `EIO`: it is gone.
    pub fn terminal(&self, name: TerminalName) -> Result<&Terminal, Errno> {
        match name {
            TerminalName::Operator => Ok(&self.terminal),
            TerminalName::Pseudo(id) => self.files.ptys.get(id).map(|pty| &pty.terminal),
        }
    }

    /// A terminal, mutably.
    ///
    /// # Errors
    /// `EIO`: it is gone.
    pub fn terminal_mut(&mut self, name: TerminalName) -> Result<&mut Terminal, Errno> {
        match name {
            TerminalName::Operator => Ok(&mut self.terminal),
            TerminalName::Pseudo(id) => self.files.ptys.get_mut(id).map(|pty| &mut pty.terminal),
        }
    }

    /// The number of a session's terminal, and the group in its foreground.
    #[must_use]
    pub fn terminal_of(&self, session: Pid) -> Option<(u32, Pid)> {
        let name = self.terminal_named(session)?;
        let number = if let TerminalName::Pseudo(id) = name { id.0 } else { 0 };
        self.terminal(name).ok().map(|terminal| (number, terminal.foreground))
    }

    /// CPU time of all processes that have not been waited for, including their waited-for children.
    #[must_use]
    pub fn total_cpu_time(&self) -> CpuTime {
        let others: CpuTime = self.others.processes.values().map(|process| process.usage.own + process.usage.children).sum();
        others + self.process_time() + self.process.usage.children
    }

    /// Updates the peak resident size of the running process, and returns it.
    pub fn note_peak(&mut self) -> u64 {
        let peak = self.process.usage.peak.max(self.memory.resident_bytes());
        self.process.usage.peak = peak;
        peak
    }

    /// Updates the peak resident size of the running process, which is about to end. If its mappings are small, all of them count:
    /// counting pages costs an exit.
    pub(crate) fn note_last_peak(&mut self) {
        const SMALL: u64 = 8 << 20;
        let bytes = self.memory.bytes();
        if bytes > SMALL {
            self.note_peak();
        } else {
            self.process.usage.peak = self.process.usage.peak.max(bytes);
        }
    }

    /// The current time, and the running process's CPU time.
    #[must_use]
    pub fn clock_readings(&self) -> ClockReadings {
        let clock = clock::now();
        ClockReadings { clock, cpu: self.process_time().total }
    }

    /// The running process's CPU time.
    #[must_use]
    pub fn process_time(&self) -> CpuTime {
        self.process.usage.own + self.others.turn(clock::running())
    }

    /// The running thread's CPU time.
    #[must_use]
    pub fn thread_time(&self) -> CpuTime {
        self.thread.used + self.others.turn(clock::running())
    }

    /// The CPU time of a process or thread.
    ///
    /// # Errors
    /// `EINVAL`: there is no such process, or no such thread of the running one.
    pub fn time_of(&self, whose: CpuClockTarget) -> Result<u64, Errno> {
        match whose {
            CpuClockTarget::Process(number) if number == 0 || number == self.process.number => Ok(self.clock_readings().cpu),
            CpuClockTarget::Process(number) => self.process_of(number).map(|process| process.usage.own.total).ok_or(Errno::EINVAL),
            CpuClockTarget::Thread(number) if number == 0 || number == self.thread.number => Ok(self.thread_time().total),
            CpuClockTarget::Thread(number) => {
                let thread = self.thread_of(number).filter(|thread| thread.process == self.process.number);
                thread.map(|thread| thread.used.total).ok_or(Errno::EINVAL)
            }
        }
    }

    /// Arms the timer event for the next timer, after timers were set.
    pub fn watch_timers(&mut self) {
        let now = self.clock_readings();
        let others = self.others.processes.values();
        // Only a running process uses CPU time: CPU timers are watched while their process runs.
        let waiting = others.filter_map(|process| process.timers.next_by_clock()).min();
        let limit = self.process.limits.cpu().map(|limit| now.clock_at(limit));
        let running = self.process.timers.next(now).into_iter().chain(limit);
        self.others.timers_due = running.chain(waiting).chain(self.files.timers.next()).min();
        self.arm();
    }

    /// The information of a signal that is being delivered; for a timer's signal it includes the overrun count.
    pub fn delivered_info(&mut self, info: SigInfo) -> SigInfo {
        if info.code() != SI_TIMER {
            return info;
        }
        let overrun = self.process.timers.delivered(info.first(), self.clock_readings());
        self.watch_timers();
        info.with_overrun(overrun)
    }

    /// Processes pending events: turns them into signals, and wakes waiting threads.
    pub fn process_events(&mut self) {
        let events = events::take();
        if events.is_empty() {
            return;
        }
        for (event, signal) in [(Event::Interrupt, Signal::SIGINT), (Event::Terminate, self.stop_signal)] {
            if events.contains(event) {
                self.raise_in_foreground(signal);
            }
        }
        if events.contains(Event::Console) {
            self.take_typed();
            self.files.note_more_input();
            self.wake(Channel::Input);
        }
        if events.contains(Event::WindowSize) {
            let Window { rows, columns } = registers::window();
            if self.terminal.is_there() && self.terminal.resize([rows as u16, columns as u16]) {
                self.raise_in_foreground(Signal::SIGWINCH);
            }
        }
        if events.contains(Event::Network) {
            self.pump();
        }
        if events.contains(Event::Child) || events.contains(Event::Port) {
            self.files.cells_files.note_event();
            self.wake(Channel::Cells);
        }
        if events.contains(Event::Timer) {
            self.expire_timers();
        }
        self.defer(events);
    }

    /// Runs the network stack, and wakes the threads whose sockets changed.
    pub(crate) fn pump(&mut self) {
        if let Some(network) = &mut self.network
            && network.pump(&mut self.files.sockets, clock::now())
        {
            self.wake(Channel::Sockets);
        }
        self.arm_network_timer();
    }

    /// Sends the signals of expired timers, wakes threads whose timeout is over, and ends the running thread's time slice if it is over.
    fn expire_timers(&mut self) {
        let now = self.clock_readings();
        let running = self.process.number;
        for number in self.processes_where(|_| true) {
            let mut sent = Vec::new();
            if let Some(process) = self.process_of_mut(number) {
                let cpu = if number == running { now.cpu } else { process.usage.own.total };
                process.timers.expire(ClockReadings { clock: now.clock, cpu }, &mut |info| sent.push(info));
                sent.extend(process.limits.spend(cpu).map(SigInfo::kernel));
            }
            for info in sent {
                // A signal that exceeds the queue limit is lost, as on Linux.
                let _ = self.send(number, info);
            }
        }
        if self.files.timers.next().is_some_and(|next| next <= now.clock) {
            self.files.note_time();
            self.wake(Channel::Timers);
        }
        self.wake_late_threads(now.clock);
        if self.network_due().is_some_and(|due| due <= now.clock) {
            self.pump();
        }
        self.end_turn(now.clock);
        self.watch_timers();
    }

    /// Sends the running process a signal, ignoring errors.
    pub fn raise(&mut self, info: SigInfo) {
        // The queue limit is reached: the signal is lost, as on Linux.
        let _ = self.send(self.process.number, info);
    }

    /// Sends a signal to the processes in the foreground of a terminal.
    pub fn raise_at(&mut self, name: TerminalName, signal: Signal) {
        let foreground = self.terminal(name).map_or(0, |terminal| terminal.foreground);
        if name == TerminalName::Operator {
            self.raise_in_foreground(signal);
        } else if foreground != 0 {
            self.send_to_group(foreground, SigInfo::kernel(signal));
        }
    }

    /// Sends a signal to the processes in the foreground of the operator's terminal.
    pub fn raise_in_foreground(&mut self, signal: Signal) {
        let foreground = self.terminal.foreground;
        if !self.send_to_group(foreground, SigInfo::kernel(signal)) {
            let _ = self.send(FIRST, SigInfo::kernel(signal));
        }
    }

    /// Sends `SIGPIPE` to the running process. Returns `EPIPE`.
    pub fn broken_pipe(&mut self) -> Errno {
        let info = SigInfo::sent(Signal::SIGPIPE, SI_USER, self.process.number, self.user());
        let _ = self.send_to_thread(self.thread.number, info);
        Errno::EPIPE
    }

    /// The error of a failed write or resize. Sends `SIGXFSZ` if the process exceeded its file size limit.
    pub fn file_size_error(&mut self, error: Errno) -> Errno {
        if error == Errno::EFBIG && self.files.current.file_size_max != u64::MAX {
            let info = SigInfo::sent(Signal::SIGXFSZ, SI_USER, self.process.number, self.user());
            let _ = self.send_to_thread(self.thread.number, info);
        }
        error
    }

    /// Checks whether a waiting system call must be interrupted by a signal.
    ///
    /// # Errors
    /// `ERESTART`: it must; the call ends with this, or with `EINTR` if Linux would never restart it.
    pub fn interruption(&mut self) -> Result<(), Errno> {
        self.process_events();
        if self.want_handling() { Err(Errno::ERESTART) } else { Ok(()) }
    }

    /// Flushes the output of programs, before the cell ends.
    fn finish(&mut self) {
        console::flush();
        // The host reports its own write errors to the operator; the program has ended.
        self.sync_mappings();
        self.finish_mounts();
        let _ = self.files.sync_all();
        self.write_last_output();
    }

    /// Lets the network send remaining data: connections outlive their programs, as on Linux, but only for a limited time.
    fn write_last_output(&mut self) {
        const LIMIT: u64 = 10_000_000_000;
        let Some(network) = &mut self.network else { return };
        self.files.sockets.close_all();
        let end = clock::now().saturating_add(LIMIT);
        loop {
            let now = clock::now();
            network.pump(&mut self.files.sockets, now);
            if network.is_all_acknowledged(&self.files.sockets) || now >= end {
                return;
            }
            events::wait(self.files.sockets.inet.deadline().map_or(end, |deadline| deadline.min(end)));
        }
    }

    /// The deadline of a waiting call: the one that it had when it was first made.
    pub fn deadline(&mut self, deadline: u64) -> u64 {
        *self.thread.call.deadline.get_or_insert(deadline)
    }

    /// Returns the result of `ready`, or makes the call wait until one of the channels is woken or the clock reaches `deadline`, which
    /// returns `Ok(None)`. Each change that can make it ready must wake one of the channels.
    ///
    /// # Errors
    /// `WAITS`: the thread must wait, and the call is then restarted. `ERESTART`: a signal came first.
    pub fn wait<T>(&mut self, on: &[Channel], deadline: u64, ready: impl FnOnce(&mut System) -> Option<T>) -> Result<Option<T>, Errno> {
        // Processing events may make it ready.
        let interruption = self.interruption();
        if let Some(result) = ready(self) {
            return Ok(Some(result));
        }
        interruption?;
        let deadline = self.deadline(deadline);
        if clock::now() >= deadline {
            return Ok(None);
        }
        Err(self.wait_on(on, deadline.saturating_add(self.thread.slack.nanoseconds())))
    }

    /// Makes the running thread wait uninterruptibly, and returns the error `WAITS`.
    pub fn wait_on(&mut self, on: &[Channel], deadline: u64) -> Errno {
        let until = Some(deadline).filter(|deadline| *deadline != NO_DEADLINE);
        self.thread.state = ThreadState::Waits(self.others.waiters.add(self.thread.number, on, until));
        Errno::WAITS
    }
}

/// Ends the cell at once, as a signal ends a program; unflushed output is lost.
pub fn kill(signal: Signal, address: u64, instruction: u64) -> ! {
    exit(0, signal.0.into(), address, instruction)
}

/// Ends the cell before its program ran, with a message.
pub fn refuse(status: u64, path: &[u8], why: &dyn core::fmt::Display) -> ! {
    let path = alloc::string::String::from_utf8_lossy(path);
    // Without a reader the message is lost.
    let _ = console::send_bytes(console::Stream::Stderr, format!("pando: {path}: {why}\n").as_bytes());
    exit(status, 0, 0, 0)
}
