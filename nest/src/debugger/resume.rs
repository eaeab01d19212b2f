// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resuming the cell as gdb requests.

use super::{Debugger, PendingHalt, Space};
use crate::watched_cell::StateAccess;
use gdbstub::common::{Signal, Tid};
use gdbstub::target::ext::base::multithread::{
    MultiThreadResume, MultiThreadSchedulerLocking, MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use pando_abi::holding::ChildState;
use pando_abi::watch::resume;
use std::collections::BTreeSet;
use std::io::Error;

/// The actions of gdb's next `vCont`: a thread to step, signals to deliver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResumeActions {
    /// The thread that executes one instruction.
    step: Option<u64>,
    /// Signals that threads get, by the protocol's number.
    signals: Vec<(u64, u8)>,
}

impl ResumeActions {
    fn note_signal(&mut self, tid: Tid, signal: Option<Signal>) {
        self.signals.extend(signal.map(|signal| (tid.get() as u64, signal.0)));
    }
}

impl Debugger<'_> {
    /// Answers the last halt. Returns how the cell continues.
    fn answer_halt(&mut self, actions: &ResumeActions) -> Result<u64, Error> {
        match std::mem::replace(&mut self.halt, PendingHalt::Nothing) {
            PendingHalt::Nothing => {}
            PendingHalt::Signal { thread, signal } => {
                let is_delivered = actions.signals.contains(&(thread, signal));
                self.cell.answer(u64::from(!is_delivered))?;
            }
            PendingHalt::Exception if actions.signals.iter().any(|(_, signal)| *signal == Signal::SIGTRAP.0) => return Ok(resume::DELIVER),
            PendingHalt::Exception => {}
        }
        Ok(resume::CONTINUE)
    }

    /// Removes all breakpoints from the halted cell, ends the watch, and lets the cell continue with what it was halted by.
    pub(super) fn release(&mut self) -> Result<(), Error> {
        let spaces: BTreeSet<Space> = self.threads.records.iter().map(|record| Some(record.space as u32)).collect();
        self.breakpoints.clear(self.cell, self.space(self.process).ok(), &spaces);
        // A signal that is about to take effect does so: that is the answer if there is no other.
        let how = if self.halt == PendingHalt::Exception { resume::DELIVER } else { resume::CONTINUE };
        self.cell.unwatch()?;
        if self.cell.state()? == ChildState::Halted {
            self.cell.resume(how)?;
        }
        self.is_running = true;
        self.cell.raise_debug_event()
    }

    /// Lets the cell continue as gdb has asked.
    fn resume_with_actions(&mut self) -> Result<(), Error> {
        let actions = std::mem::take(&mut self.actions);
        let mut how = self.answer_halt(&actions)?;
        self.stepping = actions.step;
        if !self.watchpoints.is_empty() {
            self.watchpoints.remember(self.cell, self.space(self.process)?)?;
            for record in self.threads.of(self.process) {
                self.set_trap_flag(record.number, true)?;
            }
        }
        match actions.step {
            Some(thread) if thread == self.threads.running => how = resume::STEP,
            Some(thread) => self.set_trap_flag(thread, true)?,
            None => {}
        }
        self.is_running = true;
        self.cell.resume(how)
    }
}

impl MultiThreadResume for Debugger<'_> {
    fn resume(&mut self) -> Result<(), Error> {
        let resumed = self.resume_with_actions();
        self.cell.unless_ended(resumed).map(drop)
    }

    fn clear_resume_actions(&mut self) -> Result<(), Error> {
        self.actions = ResumeActions::default();
        Ok(())
    }

    fn set_resume_action_continue(&mut self, tid: Tid, signal: Option<Signal>) -> Result<(), Error> {
        self.actions.note_signal(tid, signal);
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for Debugger<'_> {
    fn set_resume_action_step(&mut self, tid: Tid, signal: Option<Signal>) -> Result<(), Error> {
        self.actions.step = Some(tid.get() as u64);
        self.actions.note_signal(tid, signal);
        Ok(())
    }
}

impl MultiThreadSchedulerLocking for Debugger<'_> {
    /// No event is delivered before a step of the running thread, so that no other thread runs, unless its instruction waits. Otherwise all
    /// threads run.
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
