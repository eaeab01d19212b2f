// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads, with their state while another one runs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pando_abi::SavedContext;
use pando_rt::thread_base;
use pando_rt::vector::VectorState;

use crate::cpu_time::CpuTime;
use crate::credentials::Credentials;
use crate::ipc::semaphores::SemaphoreOperation;
use crate::jobs::requests::JobRequest;
use crate::process::{NAME, Pid};
use crate::rseq::RseqArea;
use crate::signals::ThreadSignals;
use crate::slack::Slack;
use crate::wait::{Tid, Wait};

/// The state of a system call that waits, until it is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// It has been attempted before.
    pub is_restarted: bool,
    /// When its waiting ends.
    pub deadline: Option<u64>,
    /// When it was first made, if that matters.
    pub began: Option<u64>,
    /// Its progress: bytes that were moved, or the number of an object that it has made.
    pub done: u64,
    /// Signals do not interrupt its waiting, except for one that ends the process.
    pub is_uninterruptible: bool,
    /// The result, if another thread has completed the call.
    pub result: Option<u64>,
    /// The address behind the instruction that makes it.
    pub instruction: u64,
}

/// The next action of a thread.
#[derive(Debug, Default)]
pub enum ThreadState {
    /// Run its program.
    #[default]
    Runs,
    /// Begin with this program.
    Starts(Box<JobRequest>),
    /// Make its system call again.
    Calls,
    /// Nothing, until it is woken; then make its system call again.
    Waits(Wait),
    /// Nothing any more.
    Ended,
}

/// The CPU state of a thread that does not run.
#[derive(Debug, Default)]
pub struct CpuState {
    /// The context in its own code.
    pub context: SavedContext,
    /// FS and GS base.
    pub bases: [u64; 2],
    /// Vector state; `None`: that of a fresh program.
    pub vectors: Option<VectorState>,
}

/// A thread.
#[derive(Debug)]
pub struct Thread {
    /// Its number.
    pub number: Tid,
    /// Its process.
    pub process: Pid,
    /// Its name, as `PR_GET_NAME` gives it.
    pub name: [u8; NAME],
    /// Its signals.
    pub signals: ThreadSignals,
    /// The system call that it makes.
    pub call: Call,
    /// Its next action.
    pub state: ThreadState,
    /// Its CPU state while it does not run.
    pub saved: CpuState,
    /// Address to which its number is written when it first runs (`CLONE_CHILD_SETTID`); 0: none.
    pub set_child_tid: u64,
    /// Address at which zero is written and a futex woken when it ends (`CLONE_CHILD_CLEARTID`); 0: none.
    pub clear_child_tid: u64,
    /// Its list of robust futexes; 0: none.
    pub robust_list: u64,
    /// Its registered area of restartable sequences.
    pub rseq: Option<RseqArea>,
    /// The bits of a futex that it waits for.
    pub futex_bits: u32,
    /// The lock that it gets when it is woken.
    pub futex_lock: Option<u64>,
    /// The semaphore operations that it waits for.
    pub operations: Vec<SemaphoreOperation>,
    /// Its timer slack.
    pub slack: Slack,
    /// Its credentials while it does not run. Only kept if threads of its process have or had different ones; then all have them.
    pub credentials: Option<Credentials>,
    /// How often it has polled in a row, found something ready, and left it.
    pub idle_polls: u8,
    /// When it did so last.
    pub last_poll: u64,
    /// CPU time that it used before its present turn.
    pub used: CpuTime,
}

impl Thread {
    /// The first thread of a process.
    #[must_use]
    pub fn new(number: Tid) -> Thread {
        Thread {
            number,
            process: number,
            name: [0; NAME],
            signals: ThreadSignals::default(),
            call: Call::default(),
            state: ThreadState::Runs,
            saved: CpuState::default(),
            set_child_tid: 0,
            clear_child_tid: 0,
            robust_list: 0,
            rseq: None,
            futex_bits: 0,
            futex_lock: None,
            operations: Vec::new(),
            slack: Slack::default(),
            credentials: None,
            idle_polls: 0,
            last_poll: 0,
            used: CpuTime::default(),
        }
    }

    /// A thread like this one, for a clone; its context is set later.
    #[must_use]
    pub fn child(&self, number: Tid) -> Thread {
        let (signals, slack) = (self.signals.inherited(), self.slack.inherited());
        Thread { process: self.process, name: self.name, signals, slack, ..Thread::new(number) }
    }

    /// Sets its name, truncated to [`NAME`].
    pub fn set_name(&mut self, name: &[u8]) {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let length = end.min(self.name.len() - 1);
        self.name.fill(0);
        self.name[..length].copy_from_slice(&name[..length]);
    }

    /// Saves the CPU state before another thread runs.
    pub fn save(&mut self, context: &SavedContext) {
        self.saved.context = *context;
        self.saved.bases = [thread_base::fs(), thread_base::gs()];
        match &mut self.saved.vectors {
            Some(vectors) => vectors.renew(),
            none => *none = Some(VectorState::save()),
        }
    }

    /// Loads the saved CPU state.
    pub fn load(&mut self, context: &mut SavedContext) {
        *context = self.saved.context;
        let [fs, gs] = self.saved.bases;
        // The values were read from the CPU, or checked when they were set.
        thread_base::set_fs(fs);
        thread_base::set_gs(gs);
        match &mut self.saved.vectors {
            Some(vectors) => vectors.load(),
            None => pando_rt::vector::reset(),
        }
    }
}
