// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads: what runs, and what is kept of it while another does.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pando_abi::SavedContext;
use pando_rt::thread_base;
use pando_rt::vector::State as VectorState;

use crate::credentials::Credentials;
use crate::ipc::semaphores::Operation;
use crate::jobs::orders::Wanted;
use crate::process::{NAME, ProcessNumber};
use crate::sequences::Registered;
use crate::signals::Signals;
use crate::slack::Slack;
use crate::wait::{ThreadNumber, Wait};

/// What is kept of a system call that waits, until it is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// It has been attempted before.
    pub again: bool,
    /// Until when it waits.
    pub deadline: Option<u64>,
    /// What it has done so far: bytes that were moved, or what it has made.
    pub done: u64,
    /// Signals do not end its waiting, but for the one that ends everything.
    pub is_uninterruptible: bool,
    /// How it ends: somebody else has finished it.
    pub result: Option<u64>,
}

/// What a thread is about to do.
#[derive(Debug, Default)]
pub enum Stage {
    /// Run its program.
    #[default]
    Runs,
    /// Begin with this program.
    Starts(Box<Wanted>),
    /// Make its system call again.
    Calls,
    /// Nothing, until something happens; then make its system call again.
    Waits(Wait),
    /// Nothing any more.
    Ended,
}

/// What the CPU holds of a thread while it runs.
#[derive(Debug, Default)]
pub struct Saved {
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
    pub number: ThreadNumber,
    /// Whose thread it is.
    pub process: ProcessNumber,
    /// Its name, as `PR_GET_NAME` gives it.
    pub name: [u8; NAME],
    /// Its signals.
    pub signals: Signals,
    /// The system call that it makes.
    pub call: Call,
    /// What it is about to do.
    pub stage: Stage,
    /// What is kept of it while it does not run.
    pub saved: Saved,
    /// Where its number is written when it first runs; 0: nowhere.
    pub set_number: u64,
    /// Where zero is written when it ends, and who waits there woken; 0: nowhere.
    pub clear_number: u64,
    /// Its list of robust futexes; 0: none.
    pub robust_list: u64,
    /// Where it says which sequence of code it is in that is not to be interrupted.
    pub sequences: Option<Registered>,
    /// Which bits of a futex it waits for.
    pub futex_bits: u32,
    /// The lock that it is to have when it is woken.
    pub futex_lock: Option<u64>,
    /// What it waits to be done to semaphores.
    pub operations: Vec<Operation>,
    /// How late its waiting may end.
    pub slack: Slack,
    /// Who it is while it does not run, if threads of its process are or were different ones; then all have it.
    pub who: Option<Credentials>,
    /// Nanoseconds of the CPU that it has used before its present turn.
    pub used: u64,
}

impl Thread {
    /// The first thread of a process.
    #[must_use]
    pub fn new(number: ThreadNumber) -> Thread {
        Thread {
            number,
            process: number,
            name: [0; NAME],
            signals: Signals::default(),
            call: Call::default(),
            stage: Stage::Runs,
            saved: Saved::default(),
            set_number: 0,
            clear_number: 0,
            robust_list: 0,
            sequences: None,
            futex_bits: 0,
            futex_lock: None,
            operations: Vec::new(),
            slack: Slack::default(),
            who: None,
            used: 0,
        }
    }

    /// A thread like this one; its context is still to come.
    #[must_use]
    pub fn child(&self, number: ThreadNumber) -> Thread {
        let (signals, slack) = (self.signals.inherited(), self.slack.inherited());
        Thread { process: self.process, name: self.name, signals, slack, ..Thread::new(number) }
    }

    /// Sets its name, cut to what fits.
    pub fn set_name(&mut self, name: &[u8]) {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let length = end.min(self.name.len() - 1);
        self.name.fill(0);
        self.name[..length].copy_from_slice(&name[..length]);
    }

    /// Takes what the CPU holds, to give it to another.
    pub fn save(&mut self, context: &SavedContext) {
        self.saved.context = *context;
        self.saved.bases = [thread_base::fs(), thread_base::gs()];
        match &mut self.saved.vectors {
            Some(vectors) => vectors.renew(),
            none => *none = Some(VectorState::save()),
        }
    }

    /// Gives the CPU what was kept.
    pub fn load(&mut self, context: &mut SavedContext) {
        *context = self.saved.context;
        let [fs, gs] = self.saved.bases;
        // They were read from the CPU, or checked when they were given.
        thread_base::set_fs(fs);
        thread_base::set_gs(gs);
        match &mut self.saved.vectors {
            Some(vectors) => vectors.load(),
            None => pando_rt::vector::reset(),
        }
    }
}
