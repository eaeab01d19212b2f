// SPDX-License-Identifier: MIT OR Apache-2.0
//! The prefetch set of a template: the pages that its clones are expected to access. Clones find them present, because a fault
//! costs more than a copy (REAP's and FaaSnap's idea, at 4 KiB and without a disk).
//!
//! Pages that are read are made present in the template, for all clones. Pages that are written are copied for each clone in
//! *batches*, in the order of their writes and never far ahead of the clone. The first batch is copied before the clone runs: the
//! pages that it writes until its first output or wait. Each other batch is copied when the clone writes one of its pages, and is
//! half as large as all before it. So a clone that does all that the training clones did faults a few times. A clone that stops
//! half way has copied at most half as much again as it needed.
//!
//! A page is in the set if most training clones wrote it, or if one read it. A wrong prediction costs a copy of a page, and never
//! the last memory of the cell or the machine.

use super::page::{CellPage, PageAccess};
use super::training_trace::TrainingTrace;
use crate::limits::{PREFETCH_MIN, TRACE_PAGES};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// The prefetch set of a template. An empty one takes no allocation: each cell has two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefetchSet(Option<Arc<PrefetchPages>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct PrefetchPages {
    /// The written pages batch by batch, each batch in address order, so that each table is visited once; behind them the read
    /// pages, some of which are also written.
    all: Vec<PageAccess>,
    /// End of each batch in `all`.
    ends: Vec<usize>,
    /// Positions of the written pages in `all`, in address order.
    by_page: Vec<u32>,
}

/// Pages to copy for a clone: the rest of a prefetch batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefetchBatch {
    prefetch_set: PrefetchSet,
    left: Range<usize>,
}

/// The prefetch state of a clone: the prefetch set, and the batches that were copied.
#[derive(Debug, Default)]
pub(crate) struct PrefetchState {
    prefetch_set: PrefetchSet,
    copied: Vec<bool>,
}

impl PrefetchSet {
    /// Computes the prefetch set from training traces. O(n log n) in the number of accesses: not to be called under a lock.
    pub(crate) fn of(traces: &[Arc<TrainingTrace>]) -> PrefetchSet {
        let mut all = predicted(traces);
        all.sort_unstable_by_key(|(time, access)| (!access.is_written, *time, access.page));
        all.truncate(TRACE_PAGES);
        let written = all.partition_point(|(_, access)| access.is_written);
        let first = all[..written].partition_point(|(time, _)| !time.is_late);
        let mut all: Vec<PageAccess> = all.into_iter().map(|(_, access)| access).collect();
        let ends = ends(first, written);
        let mut start = 0;
        for end in &ends {
            all[start..*end].sort_unstable_by_key(|access| access.page);
            start = *end;
        }
        let mut by_page: Vec<u32> = (0..written as u32).collect();
        by_page.sort_unstable_by_key(|position| all[*position as usize].page);
        if all.is_empty() {
            return PrefetchSet::default();
        }
        PrefetchSet(Some(Arc::new(PrefetchPages { all, ends, by_page })))
    }

    /// A training trace that yields this prefetch set. O(pages).
    fn trace(&self) -> TrainingTrace {
        TrainingTrace { accesses: self.accesses().to_vec(), pause: Some(self.ends().first().map_or(0, |end| *end as u32)) }
    }

    /// All pages, the written ones first.
    pub(crate) fn accesses(&self) -> &[PageAccess] {
        self.0.as_ref().map_or(&[], |pages| &pages.all)
    }

    /// End of each batch.
    fn ends(&self) -> &[usize] {
        self.0.as_ref().map_or(&[], |pages| &pages.ends)
    }

    fn batch(&self, index: usize) -> PrefetchBatch {
        let start = if index == 0 { 0 } else { self.ends()[index - 1] };
        PrefetchBatch { prefetch_set: self.clone(), left: start..self.ends()[index] }
    }

    /// The batch that contains a written page, if the page is in the set. O(log n).
    fn batch_of(&self, page: CellPage) -> Option<usize> {
        let PrefetchPages { all, ends, by_page } = &**self.0.as_ref()?;
        let found = by_page.binary_search_by_key(&page, |position| all[*position as usize].page).ok()?;
        Some(ends.partition_point(|end| *end <= by_page[found] as usize))
    }
}

/// The time of an access: whether it came after the clone's first output or wait, and its position in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AccessTime {
    is_late: bool,
    position: usize,
}

/// The pages that most traces write or any trace reads, each with its median time.
fn predicted(traces: &[Arc<TrainingTrace>]) -> Vec<(AccessTime, PageAccess)> {
    let mut times: HashMap<PageAccess, Vec<AccessTime>> = HashMap::new();
    for trace in traces {
        let pause = trace.pause.map_or(usize::MAX, |pause| pause as usize);
        let mut seen = HashSet::new();
        for (position, access) in trace.accesses.iter().enumerate() {
            if seen.insert(*access) {
                times.entry(*access).or_default().push(AccessTime { is_late: position >= pause, position });
            }
        }
    }
    // A page that was read once is present in the template from then on, so later traces do not show its reads.
    let counts = |(access, times): &(PageAccess, Vec<AccessTime>)| !access.is_written || 2 * times.len() > traces.len();
    times
        .into_iter()
        .filter(counts)
        .map(|(access, mut times)| {
            times.sort_unstable();
            (times[(times.len() - 1) / 2], access)
        })
        .collect()
}

/// Ends of the batches: the first, and each later one half as large as all before it, but of some pages at least.
fn ends(first: usize, written: usize) -> Vec<usize> {
    let next = |end: &usize| (*end < written).then(|| written.min(end + (end / 2).max(PREFETCH_MIN)));
    if written == 0 { Vec::new() } else { std::iter::successors(Some(first), next).collect() }
}

impl PrefetchState {
    /// The state of a clone for which no batch was copied.
    pub(in crate::memory) fn new(prefetch_set: PrefetchSet) -> PrefetchState {
        PrefetchState { copied: vec![false; prefetch_set.ends().len()], prefetch_set }
    }

    /// A training trace that yields this prefetch set. O(pages).
    pub(in crate::memory) fn trace(&self) -> TrainingTrace {
        self.prefetch_set.trace()
    }

    /// Takes the first batch: the pages that a clone writes before its first output or wait.
    pub(crate) fn first(&mut self) -> Option<PrefetchBatch> {
        self.take(0)
    }

    /// Takes the batch that contains a page that the clone has written, unless it was taken before.
    pub(in crate::memory) fn after(&mut self, page: CellPage) -> Option<PrefetchBatch> {
        self.prefetch_set.batch_of(page).and_then(|index| self.take(index))
    }

    fn take(&mut self, index: usize) -> Option<PrefetchBatch> {
        let is_new = !std::mem::replace(self.copied.get_mut(index)?, true);
        is_new.then(|| self.prefetch_set.batch(index))
    }
}

impl PrefetchBatch {
    /// Whether no pages are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The pages that are left, in address order.
    pub(in crate::memory) fn accesses(&self) -> &[PageAccess] {
        &self.prefetch_set.accesses()[self.left.clone()]
    }

    /// Removes the first `count` pages.
    pub(in crate::memory) fn advance(&mut self, count: usize) {
        self.left.start += count;
    }
}

#[cfg(test)]
mod tests {
    use super::{PREFETCH_MIN, PageAccess, PrefetchBatch, PrefetchSet, PrefetchState, TrainingTrace};
    use crate::memory::prefetch::page::{CellPage, VirtualPage};
    use std::sync::Arc;

    fn page(number: u64) -> CellPage {
        CellPage { space: 0, at: VirtualPage { slot: 3, number } }
    }

    fn access(number: u64, is_written: bool) -> PageAccess {
        PageAccess { page: page(number), is_written }
    }

    /// The training trace of a clone that has written these pages.
    fn trace(pages: impl IntoIterator<Item = u64>, pause: Option<u32>) -> Arc<TrainingTrace> {
        Arc::new(TrainingTrace { accesses: pages.into_iter().map(|number| access(number, true)).collect(), pause })
    }

    /// The numbers of a batch's pages.
    fn numbers(batch: Option<PrefetchBatch>) -> Vec<u64> {
        batch.map_or(Vec::new(), |batch| batch.accesses().iter().map(|access| access.page.at.number).collect())
    }

    #[test]
    fn written_pages_come_first_and_each_page_once() {
        let accessed = [(7, false), (9, true), (5, true), (6, false), (6, true), (7, false), (5, true)];
        let accesses = accessed.map(|(number, is_written)| access(number, is_written));
        let prefetch_set = PrefetchSet::of(&[Arc::new(TrainingTrace { accesses: accesses.into(), pause: Some(4) })]);
        assert_eq!(prefetch_set.accesses(), [access(5, true), access(9, true), access(6, true), access(7, false), access(6, false)]);
        assert_eq!(numbers(PrefetchState::new(prefetch_set.clone()).first()), [5, 9]);
        assert_eq!(PrefetchSet::of(&[Arc::new(prefetch_set.trace())]), prefetch_set);
    }

    #[test]
    fn a_page_counts_if_most_traces_write_it_at_its_median_time() {
        let traces = [trace([1, 2, 3, 4], Some(1)), trace([9, 3, 1, 8], Some(2)), trace([3, 1, 2, 7], Some(1))];
        let prefetch_set = PrefetchSet::of(&traces);
        assert_eq!(prefetch_set.accesses(), [3, 1, 2].map(|number| access(number, true)));
        assert_eq!(numbers(PrefetchState::new(prefetch_set).first()), [3], "1 and 2 come after most have paused");
        assert_eq!(PrefetchSet::of(&traces[..2]).accesses().len(), 2, "of two, both");
        assert_eq!(PrefetchSet::of(&[]), PrefetchSet::default());
    }

    #[test]
    fn a_clone_that_writes_all_pages_faults_seldom_and_no_batch_is_far_ahead() {
        const PAGES: usize = 4000;
        for pause in [None, Some(0), Some(100), Some(1000)] {
            let prefetch_set = PrefetchSet::of(&[trace((0..PAGES as u64).rev(), pause)]);
            let mut prefetch = PrefetchState::new(prefetch_set);
            let first = numbers(prefetch.first());
            assert_eq!(first.len(), pause.map_or(PAGES, |pause| pause as usize));
            let (mut made, mut faults) = (first.len(), 0);
            while made < PAGES {
                let number = (PAGES - 1 - made) as u64;
                let batch = numbers(prefetch.after(page(number)));
                assert!((1..=PREFETCH_MIN.max(made / 2)).contains(&batch.len()));
                assert!(batch.is_sorted() && batch.contains(&number));
                assert!(prefetch.after(page(number)).is_none(), "each is copied once");
                (made, faults) = (made + batch.len(), faults + 1);
            }
            assert!(faults <= 14, "{faults} faults");
            assert!(prefetch.after(page(PAGES as u64)).is_none());
            assert!(prefetch.after(CellPage { space: 1, ..page(0) }).is_none());
        }
    }
}
