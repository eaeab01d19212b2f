// SPDX-License-Identifier: MIT OR Apache-2.0
//! Training traces: the pages that one clone accesses, in order.
//!
//! Only clones that the operator names are recorded, so that no cell can slow others down or spy on them through traces.

use super::page::PageAccess;
use crate::limits::TRACE_PAGES;
use serde::{Deserialize, Serialize};

/// The pages that one clone has accessed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrainingTrace {
    pub(in crate::memory) accesses: Vec<PageAccess>,
    /// Number of accesses before the clone's first output or wait.
    pub(in crate::memory) pause: Option<u32>,
}

impl TrainingTrace {
    /// Whether a cell could have made all these accesses.
    pub(in crate::memory) fn is_possible(&self) -> bool {
        self.accesses.len() <= TRACE_PAGES && self.accesses.iter().all(|access| access.page.is_possible())
    }
}
