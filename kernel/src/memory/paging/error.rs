// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a memory call stopped, or did nothing.

use super::block_read::BlockRequest;
use crate::memory::frames::Shortage;
use pando_abi::Refusal;

/// The error of a memory call: a refusal to the cell, a shortage that may pass, or a block that must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// The caller's mistake.
    Refused(Refusal),
    /// Not enough memory now.
    Short(Shortage),
    /// A block must be read first.
    Absent(BlockRequest),
}

impl From<Refusal> for MemoryError {
    fn from(refusal: Refusal) -> MemoryError {
        MemoryError::Refused(refusal)
    }
}

impl From<Shortage> for MemoryError {
    fn from(shortage: Shortage) -> MemoryError {
        MemoryError::Short(shortage)
    }
}
