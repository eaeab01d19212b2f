// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process asked to share processors.

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
