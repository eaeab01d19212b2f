// SPDX-License-Identifier: MIT OR Apache-2.0
//! Training traces: the pages that one clone accesses, in order.
//!
//! Only clones that the operator names are recorded, so that no cell can slow others down or spy on them through traces.

use super::page::{CellPage, PageAccess};
use crate::limits::TRACE_PAGES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The pages that one clone has accessed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrainingTrace {
    pub(in crate::memory) accesses: Vec<PageAccess>,
    /// Number of accesses before the clone's first output or wait.
    pub(in crate::memory) pause: Option<u32>,
}

impl TrainingTrace {
    /// The same trace with writes to these pages before its pause.
    pub(in crate::memory) fn with_written(mut self, mut pages: BTreeSet<CellPage>) -> TrainingTrace {
        let pause = self.pause.map_or(self.accesses.len(), |pause| self.accesses.len().min(pause as usize));
        let late = self.accesses.split_off(pause);
        for access in self.accesses.iter().filter(|access| access.is_written) {
            pages.remove(&access.page);
        }
        self.accesses.extend(pages.iter().map(|page| PageAccess { page: *page, is_written: true }));
        self.pause = Some(self.accesses.len() as u32);
        self.accesses.extend(late.into_iter().filter(|access| !(access.is_written && pages.contains(&access.page))));
        self.accesses.truncate(TRACE_PAGES);
        self
    }

    /// Whether a cell could have made all these accesses.
    pub(in crate::memory) fn is_possible(&self) -> bool {
        self.accesses.len() <= TRACE_PAGES && self.accesses.iter().all(|access| access.page.is_possible())
    }
}
