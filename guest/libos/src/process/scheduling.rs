// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling settings of a process.

use crate::uapi::{SCHED_FIFO, SCHED_RESET_ON_FORK, SCHED_RR};

/// The scheduling settings of a process. They are only stored and reported: processes take turns regardless of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduling {
    /// Its nice value.
    pub nice: i32,
    /// Its policy, with its flags.
    pub policy: u32,
    /// Its priority within a real-time policy.
    pub priority: u32,
    /// Its I/O class and level (`ioprio_set`).
    pub io: u32,
}

impl Scheduling {
    /// The settings of a new child.
    #[must_use]
    pub fn inherited(self) -> Scheduling {
        if self.policy & SCHED_RESET_ON_FORK == 0 {
            return self;
        }
        let policy = self.policy & !SCHED_RESET_ON_FORK;
        if matches!(policy, SCHED_FIFO | SCHED_RR) {
            Scheduling { io: self.io, ..Scheduling::default() }
        } else {
            Scheduling { nice: self.nice.max(0), policy, ..self }
        }
    }
}
