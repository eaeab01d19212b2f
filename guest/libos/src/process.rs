// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: what all threads of one share. Its memory and what it has open lie with those of the others, in [`System`](crate::system::System).

pub mod scheduling;
pub mod settings;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use pando_abi::SpaceIndex;

use crate::limits::Limits;
use crate::signals::action::Disposition;
use crate::signals::info::Info;
use crate::signals::{Shared, Signal};
use crate::timers::Timers;
use crate::user::NANOSECONDS;
use crate::wait::ThreadNumber;
use scheduling::Scheduling;
use settings::Settings;

/// Bytes of a thread's name with its zero byte.
pub const NAME: usize = 16;
/// Number of a process.
pub type ProcessNumber = u32;

/// The program that the operator started. The cell ends with it.
pub const FIRST: ProcessNumber = 1;

/// How a process ended, stopped or went on, as `wait4` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended with this status.
    Exited(u8),
    /// This signal ended it.
    Killed(u8),
    /// The same, and its memory would have been kept.
    Dumped(u8),
    /// This signal stopped it.
    Stopped(u8),
    /// It goes on.
    Continued,
}

impl Change {
    /// The status word of `wait4`.
    #[must_use]
    pub fn status(self) -> u32 {
        match self {
            Change::Exited(status) => u32::from(status) << 8,
            Change::Killed(signal) => signal.into(),
            Change::Dumped(signal) => u32::from(signal) | 0x80,
            Change::Stopped(signal) => u32::from(signal) << 8 | 0x7f,
            Change::Continued => 0xffff,
        }
    }

    /// `si_code` and `si_status` of the signal that tells it.
    #[must_use]
    pub fn told(self) -> (i32, u32) {
        match self {
            Change::Exited(status) => (1, status.into()),
            Change::Killed(signal) => (2, signal.into()),
            Change::Dumped(signal) => (3, signal.into()),
            Change::Stopped(signal) => (5, signal.into()),
            Change::Continued => (6, 18),
        }
    }

    /// Whether it is the end.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Change::Exited(_) | Change::Killed(_) | Change::Dumped(_))
    }
}

/// What a process has used: nanoseconds of the CPU, its own and those of the children it has waited for, and memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Its own.
    pub own: u64,
    /// Of children.
    pub children: u64,
    /// The most bytes that it had in memory whenever somebody looked: who asks for it, and it itself at its end.
    pub peak: u64,
    /// The same of the child that had most.
    pub children_peak: u64,
}

impl Usage {
    /// The words of a `struct rusage` of so much time and memory.
    #[must_use]
    pub fn words(time: u64, peak: u64) -> [u64; 18] {
        const PEAK: usize = 4;
        let mut words = [0; 18];
        (words[0], words[1]) = (time / NANOSECONDS, time % NANOSECONDS / 1000);
        words[PEAK] = peak >> 10;
        words
    }

    /// The same for a process with the children that it has waited for.
    #[must_use]
    pub fn whole(&self) -> [u64; 18] {
        Usage::words(self.own + self.children, self.peak.max(self.children_peak))
    }
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub number: ProcessNumber,
    /// Who waits for it.
    pub parent: ProcessNumber,
    /// Its group.
    pub group: ProcessNumber,
    /// Its session.
    pub session: ProcessNumber,
    /// The space whose memory it uses.
    pub space: SpaceIndex,
    /// It uses its parent's memory, and the parent waits until it does not any more.
    pub borrows: bool,
    /// Its threads.
    pub threads: BTreeSet<ThreadNumber>,
    /// What its signals do, and those that any thread of it may take.
    pub signals: Shared,
    /// The signal that its parent gets when it ends; 0: none.
    pub end_signal: u8,
    /// What its parent has not been told yet.
    pub change: Option<Change>,
    /// Nobody waits for it: when it has ended it is gone.
    pub is_forgotten: bool,
    /// It is stopped: none of its threads runs.
    pub stopped: bool,
    /// It has executed a program.
    pub executed: bool,
    /// It passes for a child of itself, with a number that nobody has.
    pub passes_for_child: bool,
    /// The signal that tells it, in a clone of the cell, that it is in one.
    pub clone_signal: Option<Signal>,
    /// Its timers.
    pub timers: Timers,
    /// When it started, in nanoseconds of the cell's clock.
    pub started: u64,
    /// What it has used of the CPU, without its running thread's present turn.
    pub usage: Usage,
    /// The numbers of its auxiliary vector.
    pub auxiliary: Vec<(u64, u64)>,
    /// What it may use.
    pub limits: Limits,
    /// How it asked to share processors.
    pub scheduling: Scheduling,
    /// What it set for itself.
    pub settings: Settings,
    /// How much sooner, or later, it would be ended for its memory; nothing is, so it is only kept.
    pub memory_score: i16,
    /// The user as whom somebody logged in, if anybody did; only kept.
    pub login: Option<u32>,
    /// Its first thread's name when that ended.
    pub last_name: [u8; NAME],
    /// Which system it wants this to be like.
    pub personality: u32,
}

impl Process {
    /// A process that has not been loaded yet, of one thread with its own number.
    #[must_use]
    pub fn new(number: ProcessNumber, started: u64) -> Process {
        Process {
            number,
            parent: 0,
            group: number,
            session: number,
            space: SpaceIndex(0),
            borrows: false,
            threads: BTreeSet::from([number]),
            signals: Shared::default(),
            end_signal: 0,
            change: None,
            is_forgotten: false,
            stopped: false,
            executed: false,
            passes_for_child: false,
            clone_signal: None,
            timers: Timers::default(),
            started,
            usage: Usage::default(),
            auxiliary: Vec::new(),
            limits: Limits::default(),
            scheduling: Scheduling::default(),
            settings: Settings::default(),
            memory_score: 0,
            login: None,
            last_name: [0; NAME],
            personality: 0,
        }
    }

    /// Its child: what it inherits, under its own number.
    #[must_use]
    pub fn child(&self, number: ProcessNumber, started: u64) -> Process {
        Process {
            number,
            parent: self.number,
            threads: BTreeSet::from([number]),
            signals: self.signals.inherited(),
            end_signal: 0,
            change: None,
            is_forgotten: false,
            stopped: false,
            executed: false,
            passes_for_child: false,
            borrows: false,
            timers: Timers::default(),
            started,
            usage: Usage::default(),
            auxiliary: self.auxiliary.clone(),
            limits: self.limits,
            scheduling: self.scheduling.inherited(),
            settings: self.settings.inherited(),
            ..*self
        }
    }

    /// The signal that tells it that it was cloned, if it asked for one and handles it.
    #[must_use]
    pub fn clone_news(&self) -> Option<Signal> {
        self.clone_signal.filter(|signal| self.signals.action(*signal).disposition(*signal) == Disposition::Handle)
    }

    /// Whether it has ended and waits to be waited for.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.is_empty()
    }

    /// What a parent is told.
    #[must_use]
    pub fn told(&self, change: Change, user: u32) -> Info {
        let (code, status) = change.told();
        Info::child(self.number, user, code, status)
    }
}
