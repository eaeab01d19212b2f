// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of processes.

/// Number of a process.
pub type ProcessNumber = u32;

/// The process that the operator started. The cell ends with it.
pub const FIRST: ProcessNumber = 1;
