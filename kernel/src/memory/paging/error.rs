// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a memory call stopped, or did nothing.

use super::block_read::BlockRequest;
use crate::memory::frames::Shortage;
use crate::memory::swapped_page::TakenPage;
use pando_abi::{Refusal, SpaceIndex};

/// The error of a memory call: a refusal to the cell, a shortage that may pass, a block that must be read, or a page that a parent has
/// taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// The caller's mistake.
    Refused(Refusal),
    /// Not enough memory now.
    Shortage(Shortage),
    /// A block must be read first.
    Absent(BlockRequest),
    /// The parent of the cell must give a page back first.
    Taken(TakenPage),
}

impl MemoryError {
    /// The error of an access to this slot of a space.
    #[must_use]
    pub(in crate::memory) fn in_slot(self, space: SpaceIndex, slot: usize) -> MemoryError {
        match self {
            MemoryError::Taken(page) => MemoryError::Taken(page.in_slot(space, slot)),
            other => other,
        }
    }
}

impl From<Refusal> for MemoryError {
    fn from(refusal: Refusal) -> MemoryError {
        MemoryError::Refused(refusal)
    }
}

impl From<Shortage> for MemoryError {
    fn from(shortage: Shortage) -> MemoryError {
        MemoryError::Shortage(shortage)
    }
}
