// SPDX-License-Identifier: MIT OR Apache-2.0
//! Halts of the child, translated to stops of gdb.

use super::{Debugger, PendingHalt, TRAP_FLAG};
use crate::signal;
use crate::threads::Threads;
use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::breakpoints::WatchKind;
use pando_abi::holding::ChildState;
use pando_abi::watch::{HaltReason, report, resume};
use pando_abi::{Registers, SavedContext};
use std::io::Result;

/// The vector of debug exceptions, of which steps are some.
const DEBUG: u8 = 1;

/// Bytes of a program's stack that may hold its arguments' addresses and its auxiliary vector.
const STACK_BYTES: usize = 256 << 10;

pub(super) type StopReason = MultiThreadStopReason<u64>;

/// A thread's identifier in the protocol.
pub(super) fn tid(thread: u64) -> Tid {
    Tid::new(thread as usize).unwrap_or(Tid::MIN)
}

impl Debugger<'_> {
    /// The end of the child, or the reason why it stopped. `None`: it runs, perhaps again.
    ///
    /// # Errors
    /// The device does not allow it.
    pub(super) fn stop_reason(&mut self) -> Result<Option<StopReason>> {
        Ok(match self.child.device.state(self.child.name)? {
            ChildState::New | ChildState::Started { .. } => None,
            ChildState::Halted => {
                let stop = self.after_halt();
                match self.child.unless_ended(stop)? {
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
        let reason = self.child.reason()?;
        if let HaltReason::Report([report::START, process, table, _]) = reason {
            return self.after_start(process, table);
        }
        if self.table == 0 {
            // Nothing of the program has run yet.
            return self.resume_child(resume::CONTINUE);
        }
        self.threads = Threads::read(&self.child, self.table)?;
        match reason {
            HaltReason::Requested => self.stop(PendingHalt::Nothing, self.own_thread(), Signal::SIGINT),
            HaltReason::Exception { vector: DEBUG, .. } => self.after_step(),
            HaltReason::Exception { .. } => self.after_breakpoint(),
            HaltReason::Syscall => self.resume_child(resume::DELIVER),
            HaltReason::Report([report::SIGNAL, thread, number, _]) => self.after_signal(thread, number as u8),
            // The debugger takes no pages, and does not watch for shortages.
            HaltReason::Report(_) | HaltReason::Taken { .. } | HaltReason::Shortage => self.resume_child(resume::CONTINUE),
        }
    }

    /// The first start is that of the program. Later ones replace its memory, or are those of other processes.
    fn after_start(&mut self, process: u64, table: u64) -> Result<Option<StopReason>> {
        if self.table != 0 {
            if process == self.process {
                self.breakpoints.forget();
            }
            return self.resume_child(resume::CONTINUE);
        }
        (self.process, self.table) = (process, table);
        self.threads = Threads::read(&self.child, table)?;
        self.auxiliary = self.read_auxiliary()?;
        self.stop(PendingHalt::Nothing, process, Signal::SIGTRAP)
    }

    /// Reads the auxiliary vector of the program that starts: it follows the arguments and the environment on its stack.
    fn read_auxiliary(&self) -> Result<Vec<u8>> {
        let stack = self.child.registers()?.rsp;
        let mut bytes = vec![0; STACK_BYTES];
        let count = self.child.device.read(self.child.name.current_space(), stack, &mut bytes)?;
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
            self.child.answer(0)?;
            return self.resume_child(resume::CONTINUE);
        }
        self.stop(PendingHalt::Signal { thread, signal: signal.0 }, thread, signal)
    }

    fn after_step(&mut self) -> Result<Option<StopReason>> {
        if let Some(address) = self.stepped_over.take() {
            self.breakpoints.rearm(&self.child, self.space(self.threads.running), address)?;
            return self.resume_child(resume::CONTINUE);
        }
        let running = self.threads.running;
        let is_own = self.threads.get(running).is_some_and(|record| record.process == self.process);
        if is_own && let Some(addr) = self.watchpoints.changed(&self.child, self.space(running))? {
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
        self.resume_child(resume::CONTINUE)
    }

    fn after_breakpoint(&mut self) -> Result<Option<StopReason>> {
        let registers = self.child.registers()?;
        let (running, address) = (self.threads.running, registers.rip.wrapping_sub(1));
        let process = self.threads.get(running).map(|record| record.process);
        if !self.breakpoints.contains(address) {
            // The program's own.
            if process != Some(self.process) {
                return self.resume_child(resume::DELIVER);
            }
            return self.stop(PendingHalt::Exception, running, Signal::SIGTRAP);
        }
        self.child.set_registers(&Registers { rip: address, ..registers })?;
        if process == Some(self.process) {
            self.note_stop(PendingHalt::Nothing)?;
            return Ok(Some(StopReason::SwBreak(tid(running))));
        }
        // A fork has inherited it, or shares the program's memory until it executes a program of its own.
        let space = self.space(running);
        self.breakpoints.write_original(&self.child, space, address)?;
        if space != self.space(self.process) {
            return self.resume_child(resume::CONTINUE);
        }
        self.stepped_over = Some(address);
        self.resume_child(resume::STEP)
    }

    /// Lets the child continue without a stop for gdb.
    fn resume_child(&mut self, how: u64) -> Result<Option<StopReason>> {
        self.child.device.resume(self.child.name, how)?;
        Ok(None)
    }

    fn stop(&mut self, halt: PendingHalt, thread: u64, signal: Signal) -> Result<Option<StopReason>> {
        self.note_stop(halt)?;
        Ok(Some(StopReason::SignalWithThread { tid: tid(thread), signal }))
    }

    /// Ends all single steps: those of watched threads, and one that was not completed because another thread stopped. gdb sees no trap
    /// flag, and a program that continues without gdb gets no debug exception.
    fn note_stop(&mut self, halt: PendingHalt) -> Result<()> {
        self.halt = halt;
        let stepped_over = self.stepped_over.take();
        if let Some(address) = stepped_over {
            // The process that steps over it hits it again. The memory may be gone, and the breakpoint with it.
            let _ = self.breakpoints.rearm(&self.child, self.space(self.process), address);
        }
        if self.stepping.take().is_none() && stepped_over.is_none() && self.watchpoints.is_empty() {
            return Ok(());
        }
        self.threads.records.iter().try_for_each(|record| self.set_trap_flag(record.number, false))
    }

    /// Sets or clears the trap flag of a thread.
    pub(super) fn set_trap_flag(&self, thread: u64, is_set: bool) -> Result<()> {
        let flags = |rflags: u64| if is_set { rflags | TRAP_FLAG } else { rflags & !TRAP_FLAG };
        if thread == self.threads.running {
            let registers = self.child.registers()?;
            if flags(registers.rflags) == registers.rflags {
                return Ok(());
            }
            return self.child.set_registers(&Registers { rflags: flags(registers.rflags), ..registers });
        }
        let Some(record) = self.threads.get(thread) else { return Ok(()) };
        let space = self.child.name.current_space();
        let Some(words) = self.child.words::<{ SavedContext::WORDS }>(space, record.context)? else { return Ok(()) };
        let saved = SavedContext::from_words(words);
        if flags(saved.rflags) == saved.rflags {
            return Ok(());
        }
        self.child.set_words(space, record.context, &SavedContext { rflags: flags(saved.rflags), ..saved }.to_words())
    }
}
