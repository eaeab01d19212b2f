// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process asked to share processors.

/// Policies of real time.
pub const FIFO: u32 = 1;
/// The same, in turns.
pub const ROUND_ROBIN: u32 = 2;
/// A flag of policies: children start with the usual one.
pub const RESET_ON_FORK: u32 = 0x4000_0000;

/// What a process asked for. Processes take turns, whatever it is: it is kept and told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduling {
    /// Its nice value.
    pub nice: i32,
    /// Its policy, with the flags of policies.
    pub policy: u32,
    /// Its priority within a policy of real time.
    pub priority: u32,
    /// Its class and level in what it reads and writes.
    pub io: u32,
}

impl Scheduling {
    /// What a child starts with.
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
