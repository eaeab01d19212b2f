// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a memory call did nothing, or stopped.

use super::block::Wanted;
use super::frames::Shortage;
use pando_abi::Refusal;

/// Why a memory call did nothing, or stopped: a refusal to the cell, or a shortage that waiting may mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The caller's mistake.
    Refused(Refusal),
    /// Not enough memory now.
    Short(Shortage),
    /// A block must be read first.
    Absent(Wanted),
}

impl From<Refusal> for Obstacle {
    fn from(refusal: Refusal) -> Obstacle {
        Obstacle::Refused(refusal)
    }
}

impl From<Shortage> for Obstacle {
    fn from(shortage: Shortage) -> Obstacle {
        Obstacle::Short(shortage)
    }
}
