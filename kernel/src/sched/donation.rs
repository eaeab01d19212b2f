// SPDX-License-Identifier: MIT OR Apache-2.0
//! Donations of CPU time.

use crate::cell::CellId;
use std::time::Duration;

/// CPU time that a cell donates to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Donation {
    pub(crate) child: CellId,
    pub(crate) left: Duration,
    /// The vCPU on which the child's family runs for the donor.
    pub(crate) vcpu: Option<usize>,
}

impl Donation {
    /// A donation of which nothing is used.
    pub(crate) fn new(child: CellId, time: Duration) -> Donation {
        Donation { child, left: time, vcpu: None }
    }
}
