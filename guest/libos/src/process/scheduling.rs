// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling settings of a process.

/// The real-time policy `SCHED_FIFO`.
pub const FIFO: u32 = 1;
/// The real-time policy `SCHED_RR`.
pub const ROUND_ROBIN: u32 = 2;
/// `SCHED_RESET_ON_FORK`: children start with the usual policy.
pub const RESET_ON_FORK: u32 = 0x4000_0000;

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
        if self.policy & RESET_ON_FORK == 0 {
            return self;
        }
        let policy = self.policy & !RESET_ON_FORK;
        if matches!(policy, FIFO | ROUND_ROBIN) {
            Scheduling { io: self.io, ..Scheduling::default() }
        } else {
            Scheduling { nice: self.nice.max(0), policy, ..self }
        }
    }
}
