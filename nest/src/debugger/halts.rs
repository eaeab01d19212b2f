// SPDX-License-Identifier: MIT OR Apache-2.0
//! Halts of the cell, translated to stops of gdb.

use super::processes::{self, ProcessDescription};
use super::{Debugger, PendingHalt, TRAP_FLAG};
use crate::signal;
use crate::threads::Threads;
use crate::watched_cell::StateAccess;
use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::breakpoints::WatchKind;
use pando_abi::holding::ChildState;
use pando_abi::watch::{HaltReason, report, resume};
use pando_abi::{Registers, SavedContext};
use std::io::{Error, ErrorKind, Result};

/// The vector of debug exceptions, of which steps are some.
const DEBUG: u8 = 1;

/// Bytes of a program's stack that may hold its arguments' addresses and its auxiliary vector.
const STACK_BYTES: usize = 256 << 10;

pub(super) type StopReason = MultiThreadStopReason<u64>;

/// A thread's identifier in the protocol.
pub(super) fn tid(thread: u64) -> Tid {
    Tid::new(thread as usize).unwrap_or(Tid::MIN)
}

/// The end of a process with a status as `wait4` returns it.
fn end_of(status: u64) -> StopReason {
    match (status & 0x7f) as u8 {
        0 => StopReason::Exited((status >> 8) as u8),
        signal => StopReason::Terminated(signal::of_linux(signal)),
    }
}

impl Debugger<'_> {
    /// The end of the cell, or the reason why it stopped. `None`: it runs, perhaps again.
    ///
    /// # Errors
    /// The operator does not allow it.
    pub(super) fn stop_reason(&mut self) -> Result<Option<StopReason>> {
        Ok(match self.cell.state()? {
            ChildState::New | ChildState::Started { .. } => None,
            ChildState::Halted => {
                let stop = self.after_halt();
                match self.cell.unless_ended(stop)? {
                    Some(stop) => stop,
                    None => return self.stop_reason(),
                }
            }
            ChildState::Exited(status) => Some(StopReason::Exited(status)),
            ChildState::Signalled(signal) => Some(StopReason::Terminated(signal::of_linux(signal))),
            ChildState::Frozen | ChildState::Quota | ChildState::MachineFull | ChildState::Killed | ChildState::Failed => {
                Some(StopReason::Terminated(Signal::SIGKILL))
            }
        })
    }

    /// Handles a halt.
    fn after_halt(&mut self) -> Result<Option<StopReason>> {
        let reason = self.cell.reason()?;
        if let HaltReason::Report([report::START, process, table, _]) = reason {
            return self.after_start(process, table);
        }
        if let HaltReason::Report([report::THREADS, table, list, words]) = reason {
            return self.after_announcement(table, list, words);
        }
        if self.table == 0 {
            // Nothing of the program has run yet, or its libOS has not answered yet.
            let is_own = matches!(reason, HaltReason::Exception { .. });
            return self.resume_cell(if is_own { resume::DELIVER } else { resume::CONTINUE });
        }
        self.threads = Threads::read(self.cell, self.table)?;
        match reason {
            HaltReason::Requested => self.stop(PendingHalt::Nothing, self.own_thread(), Signal::SIGINT),
            HaltReason::Exception { vector: DEBUG, .. } => self.after_step(),
            HaltReason::Exception { .. } => self.after_breakpoint(),
            HaltReason::Syscall => self.resume_cell(resume::DELIVER),
            HaltReason::Report([report::SIGNAL, thread, number, _]) => self.after_signal(thread, number as u8),
            HaltReason::Report([report::END, process, status, _]) if process == self.process => {
                self.note_stop(PendingHalt::Nothing)?;
                Ok(Some(end_of(status)))
            }
            // The debugger takes no pages, and does not watch for shortages.
            HaltReason::Report(_) | HaltReason::Taken { .. } | HaltReason::Shortage => self.resume_cell(resume::CONTINUE),
        }
    }

    /// The first start is that of the program. Later ones replace its memory, or are those of other processes.
    fn after_start(&mut self, process: u64, table: u64) -> Result<Option<StopReason>> {
        if self.table != 0 {
            if process == self.process {
                self.breakpoints.forget();
            }
            return self.resume_cell(resume::CONTINUE);
        }
        (self.process, self.table) = (process, table);
        self.threads = Threads::read(self.cell, table)?;
        self.auxiliary = self.read_auxiliary()?;
        self.stop(PendingHalt::Nothing, process, Signal::SIGTRAP)
    }

    /// The libOS of a cell that runs has listed its threads and processes.
    fn after_announcement(&mut self, table: u64, list: u64, words: u64) -> Result<Option<StopReason>> {
        if self.table != 0 {
            return self.resume_cell(resume::CONTINUE);
        }
        self.threads = Threads::read(self.cell, table)?;
        self.processes = processes::read(self.cell, list, words)?;
        let wanted = |process: &&ProcessDescription| self.wanted_process.is_none_or(|wanted| process.number == wanted);
        let Some(process) = self.processes.iter().find(wanted).cloned() else { return Err(Error::from(ErrorKind::NotFound)) };
        (self.process, self.table) = (process.number, table);
        (self.file, self.auxiliary) = (process.path, process.auxiliary);
        self.stop(PendingHalt::Nothing, self.own_thread(), Signal::SIGTRAP)
    }

    /// Reads the auxiliary vector of the program that starts: it follows the arguments and the environment on its stack.
    fn read_auxiliary(&self) -> Result<Vec<u8>> {
        let stack = self.cell.registers()?.rsp;
        let mut bytes = vec![0; STACK_BYTES];
        let count = self.cell.read(None, stack, &mut bytes)?;
        let (words, _) = bytes[..count].as_chunks::<8>();
        let mut words = words.iter().skip(1).skip_while(|word| **word != [0; 8]).skip(1).skip_while(|word| **word != [0; 8]).skip(1);
        let mut auxiliary = Vec::new();
        while let (Some(kind), Some(value)) = (words.next(), words.next()) {
            auxiliary.extend(kind.iter().chain(value));
            if *kind == [0; 8] {
                break;
            }
        }
        Ok(auxiliary)
    }

    fn after_signal(&mut self, thread: u64, number: u8) -> Result<Option<StopReason>> {
        let signal = signal::of_linux(number);
        let is_own = self.threads.get(thread).is_some_and(|record| record.process == self.process);
        // SIGKILL is not to be stopped, and the protocol does not have every signal.
        if !is_own || matches!(signal, Signal::SIGKILL | Signal::SIGZERO) {
            self.cell.answer(0)?;
            return self.resume_cell(resume::CONTINUE);
        }
        self.stop(PendingHalt::Signal { thread, signal: signal.0 }, thread, signal)
    }

    fn after_step(&mut self) -> Result<Option<StopReason>> {
        if let Some(address) = self.stepped_over.take() {
            self.breakpoints.rearm(self.cell, self.space(self.threads.running)?, address)?;
            return self.resume_cell(resume::CONTINUE);
        }
        let running = self.threads.running;
        let is_own = self.threads.get(running).is_some_and(|record| record.process == self.process);
        if is_own && let Some(addr) = self.watchpoints.changed(self.cell, self.space(running)?)? {
            self.note_stop(PendingHalt::Nothing)?;
            return Ok(Some(StopReason::Watch { tid: tid(running), kind: WatchKind::Write, addr }));
        }
        if self.stepping == Some(running) {
            return self.stop(PendingHalt::Nothing, running, Signal::SIGTRAP);
        }
        // All threads step while values are watched. Other threads that were created by a stepped instruction have its flags.
        if !is_own || self.watchpoints.is_empty() {
            self.set_trap_flag(running, false)?;
        }
        self.resume_cell(resume::CONTINUE)
    }

    fn after_breakpoint(&mut self) -> Result<Option<StopReason>> {
        let registers = self.cell.registers()?;
        let (running, address) = (self.threads.running, registers.rip.wrapping_sub(1));
        let process = self.threads.get(running).map(|record| record.process);
        let space = self.space(running)?;
        let shares_memory = self.threads.of(self.process).any(|record| Some(record.space as u32) == space);
        let is_inherited = || shares_memory || self.breakpoints.is_inherited(self.cell, space, address);
        let is_ours = match process == Some(self.process) {
            true => self.breakpoints.contains(address),
            false => self.breakpoints.is_known(address) && is_inherited(),
        };
        if !is_ours {
            // The program's own.
            if process != Some(self.process) {
                return self.resume_cell(resume::DELIVER);
            }
            return self.stop(PendingHalt::Exception, running, Signal::SIGTRAP);
        }
        self.cell.set_registers(&Registers { rip: address, ..registers })?;
        if process == Some(self.process) {
            self.note_stop(PendingHalt::Nothing)?;
            return Ok(Some(StopReason::SwBreak(tid(running))));
        }
        // A fork has inherited it, or shares the program's memory until it executes a program of its own.
        self.breakpoints.write_original(self.cell, space, address)?;
        if !shares_memory {
            return self.resume_cell(resume::CONTINUE);
        }
        self.stepped_over = Some(address);
        self.resume_cell(resume::STEP)
    }

    /// Lets the cell continue without a stop for gdb, unless gdb waits for one: the halt that it has asked for was not made, because the
    /// cell halted before.
    fn resume_cell(&mut self, how: u64) -> Result<Option<StopReason>> {
        if self.is_interrupted && how != resume::STEP {
            let halt = if how == resume::DELIVER { PendingHalt::Exception } else { PendingHalt::Nothing };
            return self.stop(halt, self.own_thread(), Signal::SIGINT);
        }
        self.cell.resume(how)?;
        Ok(None)
    }

    fn stop(&mut self, halt: PendingHalt, thread: u64, signal: Signal) -> Result<Option<StopReason>> {
        self.note_stop(halt)?;
        Ok(Some(StopReason::SignalWithThread { tid: tid(thread), signal }))
    }

    /// Ends all single steps: those of watched threads, and one that was not completed because another thread stopped. gdb sees no trap
    /// flag, and a program that continues without gdb gets no debug exception.
    fn note_stop(&mut self, halt: PendingHalt) -> Result<()> {
        (self.halt, self.is_running, self.is_interrupted) = (halt, false, false);
        let stepped_over = self.stepped_over.take();
        if let Some(address) = stepped_over {
            // The process that steps over it hits it again. The memory may be gone, and the breakpoint with it.
            let _ = self.space(self.process).and_then(|space| self.breakpoints.rearm(self.cell, space, address));
        }
        if self.stepping.take().is_none() && stepped_over.is_none() && self.watchpoints.is_empty() {
            return Ok(());
        }
        for record in &self.threads.records {
            let cleared = self.set_trap_flag(record.number, false);
            // The registers of other processes' threads are not needed to go on: the list may be wrong about them.
            if record.process == self.process {
                cleared?;
            }
        }
        Ok(())
    }

    /// Sets or clears the trap flag of a thread.
    pub(super) fn set_trap_flag(&self, thread: u64, is_set: bool) -> Result<()> {
        let flags = |rflags: u64| if is_set { rflags | TRAP_FLAG } else { rflags & !TRAP_FLAG };
        if thread == self.threads.running {
            let registers = self.cell.registers()?;
            if flags(registers.rflags) == registers.rflags {
                return Ok(());
            }
            return self.cell.set_registers(&Registers { rflags: flags(registers.rflags), ..registers });
        }
        let Some(record) = self.threads.get(thread) else { return Ok(()) };
        let Some(saved) = self.cell.saved_context(record.context)? else { return Ok(()) };
        if flags(saved.rflags) == saved.rflags {
            return Ok(());
        }
        self.cell.set_words(record.context, &SavedContext { rflags: flags(saved.rflags), ..saved }.to_words())
    }
}
