// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: the state that the threads of one share. Its memory and open files are in [`System`](crate::system::System).

pub mod scheduling;
pub mod settings;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use pando_abi::SpaceIndex;

use crate::cpu_time::CpuTime;
use crate::limits::Limits;
pub use crate::pid::{FIRST, Pid};
use crate::signals::action::Disposition;
use crate::signals::info::SigInfo;
use crate::signals::{ProcessSignals, Signal};
use crate::timers::Timers;
use crate::user::NANOSECONDS;
use crate::wait::Tid;
use scheduling::Scheduling;
use settings::PrctlSettings;

/// Bytes of a thread's name with its zero byte.
pub const NAME: usize = 16;

/// A change of a process's state, as `wait4` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessStateChange {
    /// It exited with this status.
    Exited(u8),
    /// This signal ended it.
    Killed(u8),
    /// The same, with the core dump flag.
    Dumped(u8),
    /// This signal stopped it.
    Stopped(u8),
    /// `SIGCONT` continued it.
    Continued,
}

impl ProcessStateChange {
    /// The status word of `wait4`.
    #[must_use]
    pub fn status(self) -> u32 {
        match self {
            ProcessStateChange::Exited(status) => u32::from(status) << 8,
            ProcessStateChange::Killed(signal) => signal.into(),
            ProcessStateChange::Dumped(signal) => u32::from(signal) | 0x80,
            ProcessStateChange::Stopped(signal) => u32::from(signal) << 8 | 0x7f,
            ProcessStateChange::Continued => 0xffff,
        }
    }

    /// `si_code` and `si_status` of the signal that reports it.
    #[must_use]
    pub fn code_and_status(self) -> (i32, u32) {
        match self {
            ProcessStateChange::Exited(status) => (1, status.into()),
            ProcessStateChange::Killed(signal) => (2, signal.into()),
            ProcessStateChange::Dumped(signal) => (3, signal.into()),
            ProcessStateChange::Stopped(signal) => (5, signal.into()),
            ProcessStateChange::Continued => (6, 18),
        }
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, ProcessStateChange::Exited(_) | ProcessStateChange::Killed(_) | ProcessStateChange::Dumped(_))
    }
}

/// Resources that a process has used: CPU time of its own and of the children it has waited for, and memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Its own.
    pub own: CpuTime,
    /// Of children.
    pub children: CpuTime,
    /// The most bytes of memory that were seen: at each request for the usage, and at its end.
    pub peak: u64,
    /// The same of the child with the highest peak.
    pub children_peak: u64,
}

impl Usage {
    /// The words of a `struct rusage` of this time and memory.
    #[must_use]
    pub fn words(time: CpuTime, peak: u64) -> [u64; 18] {
        const PEAK: usize = 4;
        let mut words = [0; 18];
        for (pair, time) in words.chunks_exact_mut(2).zip([time.user(), time.system]) {
            pair.copy_from_slice(&[time / NANOSECONDS, time % NANOSECONDS / 1000]);
        }
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
    pub number: Pid,
    /// Its parent, which waits for it.
    pub parent: Pid,
    /// Its group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// The space whose memory it uses.
    pub space: SpaceIndex,
    /// It uses its parent's memory (`vfork`), and the parent waits until it does not any more.
    pub is_vfork: bool,
    /// Its threads.
    pub threads: BTreeSet<Tid>,
    /// Its signal actions, and the pending signals that any of its threads may take.
    pub signals: ProcessSignals,
    /// The signal that its parent gets when it ends; 0: none.
    pub end_signal: u8,
    /// The change that its parent has not yet been notified of.
    pub change: Option<ProcessStateChange>,
    /// Nobody waits for it: it is removed as soon as it has ended.
    pub is_auto_reaped: bool,
    /// It is stopped: none of its threads runs.
    pub stopped: bool,
    /// It has executed a program.
    pub executed: bool,
    /// `getpid` returns a number that no process has, so that libraries that compare it take the process for a new child.
    pub fakes_new_pid: bool,
    /// The signal that it gets when the cell goes on as a clone.
    pub clone_signal: Option<Signal>,
    /// Its timers.
    pub timers: Timers,
    /// When it started, in nanoseconds of the cell's clock.
    pub started: u64,
    /// Resources that it has used, without its running thread's present turn.
    pub usage: Usage,
    /// The entries of its auxiliary vector.
    pub auxiliary: Vec<(u64, u64)>,
    /// Its resource limits.
    pub limits: Limits,
    /// Its scheduling settings.
    pub scheduling: Scheduling,
    /// Its settings of `prctl`.
    pub settings: PrctlSettings,
    /// Its score for the out-of-memory killer (`oom_score_adj`). There is none, so the value is only stored.
    pub oom_score_adj: i16,
    /// The lowest value of that which it may set without `CAP_SYS_RESOURCE`.
    pub oom_score_adj_min: i16,
    /// The user as whom somebody logged in, if anybody did; only kept.
    pub loginuid: Option<u32>,
    /// Its first thread's name when that ended.
    pub last_name: [u8; NAME],
    /// Its `personality`.
    pub personality: u32,
}

impl Process {
    /// A process that has not been loaded yet, of one thread with its own number.
    #[must_use]
    pub fn new(number: Pid, started: u64) -> Process {
        Process {
            number,
            parent: 0,
            group: number,
            session: number,
            space: SpaceIndex(0),
            is_vfork: false,
            threads: BTreeSet::from([number]),
            signals: ProcessSignals::default(),
            end_signal: 0,
            change: None,
            is_auto_reaped: false,
            stopped: false,
            executed: false,
            fakes_new_pid: false,
            clone_signal: None,
            timers: Timers::default(),
            started,
            usage: Usage::default(),
            auxiliary: Vec::new(),
            limits: Limits::default(),
            scheduling: Scheduling::default(),
            settings: PrctlSettings::default(),
            oom_score_adj: 0,
            oom_score_adj_min: 0,
            loginuid: None,
            last_name: [0; NAME],
            personality: 0,
        }
    }

    /// Its child: everything that is inherited, under its own number.
    #[must_use]
    pub fn child(&self, number: Pid, started: u64) -> Process {
        Process {
            number,
            parent: self.number,
            threads: BTreeSet::from([number]),
            signals: self.signals.inherited(),
            end_signal: 0,
            change: None,
            is_auto_reaped: false,
            stopped: false,
            executed: false,
            fakes_new_pid: false,
            is_vfork: false,
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

    /// The signal that reports cloning, if it asked for one and handles it.
    #[must_use]
    pub fn handled_clone_signal(&self) -> Option<Signal> {
        self.clone_signal.filter(|signal| self.signals.action(*signal).disposition(*signal) == Disposition::Handle)
    }

    /// Whether it has ended and waits for its parent (a zombie).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.is_empty()
    }

    /// The siginfo of the signal that its parent gets.
    #[must_use]
    pub fn child_info(&self, change: ProcessStateChange, user: u32) -> SigInfo {
        let (code, status) = change.code_and_status();
        SigInfo::child(self.number, user, code, status)
    }
}
