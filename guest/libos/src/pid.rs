// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of processes.

/// Number of a process.
pub type Pid = u32;

/// The process that the operator started. The cell ends with it.
pub const FIRST: Pid = 1;
