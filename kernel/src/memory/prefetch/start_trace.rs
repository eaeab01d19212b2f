// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start traces: which blocks of its disks a cell accesses until it waits for others, has used some CPU time, or ends.
//!
//! The operator can read these blocks before the next start.
//! Only cells that the operator names are traced. A trace has no content of blocks, only their numbers.

use pando_abi::{BlockNumber, DiskIndex};
use std::ops::Range;

/// The kinds of traced starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// The trace records the accessed blocks; each is read on access.
    Record,
    /// The expected blocks were read in advance: mappings get these at once, and read others on access.
    Prefetched,
}

/// The start of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartTrace {
    /// The kind of the start.
    pub mode: StartMode,
    /// The blocks that were accessed, in order, if it has learned them.
    pub blocks: Vec<(DiskIndex, Range<BlockNumber>)>,
    /// The spans of 2 MiB in segments in which it accessed blocks, by their first addresses, if it has learned them.
    pub spans: Vec<u64>,
    /// Number of faults on blocks and of reads.
    pub misses: u64,
}

impl StartTrace {
    /// A trace of nothing yet.
    #[must_use]
    pub fn new(mode: StartMode) -> StartTrace {
        StartTrace { mode, blocks: Vec::new(), spans: Vec::new(), misses: 0 }
    }
}
