// SPDX-License-Identifier: MIT OR Apache-2.0
//! The start phase of a cell: from the operator's request until the cell no longer counts as starting.

use crate::limits::START_PHASE_CPU_MAX;
use std::time::Duration;

/// A function that is called when a cell is admitted. The kernel lock is held: it must not block, nor call the kernel.
pub type AdmissionCallback = Box<dyn FnOnce() + Send>;

/// The start of a cell.
pub(super) struct StartPhase {
    /// Time on a vCPU that is left until the cell no longer counts as starting.
    pub(super) quantum_left: Duration,
    pub(super) on_admission: Option<AdmissionCallback>,
}

impl StartPhase {
    /// The start of a cell that is not admitted yet.
    pub(super) fn new(on_admission: Option<AdmissionCallback>) -> StartPhase {
        StartPhase { quantum_left: START_PHASE_CPU_MAX, on_admission }
    }
}
