// SPDX-License-Identifier: MIT OR Apache-2.0
//! Training traces: the pages that a clone accesses, in order. Later clones of the same template find them present
//! ([`super::prefetch_set`]).
//!
//! Only clones that the operator names are recorded, so that no cell can slow others down or spy on them through traces. A template
//! keeps several traces, and prefetches the pages that most of them contain.

use super::prefetch_set::{PrefetchSet, PrefetchState};
use crate::limits::{TRACE_PAGES, TRACES};
use crate::memory::frames::frame_table::Frames;
use crate::memory::paging::fault::Access;
use crate::memory::spaces::set::{PageSpan, SpaceSet};
use crate::memory::tree::entry::View;
use crate::memory::tree::handle::{TREE_PAGES, span};
use pando_abi::layout::SLOTS;
use pando_abi::limits::MAX_SPACES;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// A page that a clone has accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageAccess {
    /// The space that was running.
    pub(in crate::memory) space: u32,
    pub(in crate::memory) slot: u32,
    /// Pages from the start of the slot.
    pub(in crate::memory) page: u64,
    /// Whether it was written, not only read.
    pub(in crate::memory) is_written: bool,
}

impl PageAccess {
    /// Whether a cell could have accessed it.
    pub(in crate::memory) fn is_possible(&self) -> bool {
        self.space < MAX_SPACES && (self.slot as usize) < SLOTS && self.page < TREE_PAGES
    }

    /// The large page that contains it.
    pub(in crate::memory) fn large(&self) -> (u32, u32, u64) {
        (self.space, self.slot, self.page / span(2))
    }

    /// Its space, slot and page.
    pub(in crate::memory) fn place(&self) -> (u32, u32, u64) {
        (self.space, self.slot, self.page)
    }
}

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
        self.accesses.len() <= TRACE_PAGES && self.accesses.iter().all(PageAccess::is_possible)
    }
}

/// The last training traces of a template, and the prefetch set computed from them.
#[derive(Debug, Default)]
pub(crate) struct TrainingTraces {
    all: VecDeque<Arc<TrainingTrace>>,
    /// Number of traces that were ever added.
    recorded: u64,
    /// Number of traces that `prefetch_set` takes into account.
    merged: u64,
    prefetch_set: PrefetchSet,
}

impl TrainingTraces {
    /// A single trace and its prefetch set; nothing if the trace is empty. O(n log n) in the number of accesses.
    pub(crate) fn of(trace: TrainingTrace) -> TrainingTraces {
        if trace.accesses.is_empty() {
            return TrainingTraces::default();
        }
        let all = [Arc::new(trace)];
        TrainingTraces { prefetch_set: PrefetchSet::of(&all), all: all.into(), recorded: 1, merged: 1 }
    }

    /// Adds a trace, and drops the oldest if there are too many. O(1): the prefetch set is computed later, without a lock.
    pub(crate) fn add(&mut self, trace: TrainingTrace) {
        if self.all.len() == TRACES {
            self.all.pop_front();
        }
        self.all.push_back(Arc::new(trace));
        self.recorded += 1;
    }

    /// All traces with their number, if some are not yet in the prefetch set.
    pub(crate) fn unmerged(&self) -> Option<(u64, Vec<Arc<TrainingTrace>>)> {
        (self.merged < self.recorded).then(|| (self.recorded, self.all.iter().cloned().collect()))
    }

    /// Stores the prefetch set of `recorded` traces, if it is newer.
    pub(crate) fn set_prefetch(&mut self, recorded: u64, prefetch_set: PrefetchSet) {
        if self.merged < recorded {
            (self.merged, self.prefetch_set) = (recorded, prefetch_set);
        }
    }

    /// The prefetch set as it was last computed.
    pub(crate) fn prefetch_set(&self) -> &PrefetchSet {
        &self.prefetch_set
    }
}

impl SpaceSet {
    /// Starts recording accesses, as far as there is room. Disables prefetching, because accesses to prefetched pages could not be
    /// seen.
    pub(crate) fn begin_training(&mut self) {
        (self.trace, self.prefetch) = (Some(TrainingTrace::default()), PrefetchState::default());
    }

    /// Ends the recording, and returns the trace.
    pub(crate) fn end_training(&mut self) -> Option<TrainingTrace> {
        self.trace.take()
    }

    /// Records a page that is present now. A page that became the cell's own on a read counts as written, because a later write
    /// causes no fault.
    pub(in crate::memory) fn note_touched(&mut self, frames: &Frames, page: &PageSpan, access: Access) {
        if self.trace.as_ref().is_none_or(|trace| trace.accesses.len() >= TRACE_PAGES) {
            return;
        }
        let first = page.pages.start;
        let found = self.tree(page.space, page.slot).map(|tree| tree.find(frames, first));
        let is_own = found.is_some_and(|found| found.owned && matches!(found.view, View::Page { writable: true, .. }));
        let touch = PageAccess { space: page.space.0, slot: page.slot as u32, page: first, is_written: access == Access::Write || is_own };
        self.trace.iter_mut().for_each(|trace| trace.accesses.push(touch));
    }

    /// Records that the cell has written output, or waits.
    pub(crate) fn note_pause(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.pause.get_or_insert(trace.accesses.len() as u32);
        }
    }
}
