// SPDX-License-Identifier: MIT OR Apache-2.0
//! The training traces of a template: it keeps several, and prefetches the pages that most of them contain.

use super::prefetch_set::PrefetchSet;
use super::training_trace::TrainingTrace;
use crate::limits::TRACES;
use std::collections::VecDeque;
use std::sync::Arc;

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
