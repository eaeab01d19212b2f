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

use super::training_trace::{PageAccess, TrainingTrace};
use crate::limits::{PREFETCH_LEAST, PREFETCH_PIECE, TRACE_PAGES};
use crate::memory::frames::account::{AccountId, Usage};
use crate::memory::frames::frame_table::Frames;
use crate::memory::paging::error::MemoryError;
use crate::memory::paging::fault::{Access, Fault};
use crate::memory::spaces::set::SpaceSet;
use crate::memory::tree::edit::PATH_TABLES;
use crate::memory::tree::handle::span;
use pando_abi::{PAGE_SIZE, SpaceIndex};
use pando_machine::PageCount;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// The prefetch set of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefetchSet(Arc<PrefetchPages>);

#[derive(Debug, Default, PartialEq, Eq)]
struct PrefetchPages {
    /// The written pages batch by batch, each batch in address order, so that each table is visited once; behind them the read
    /// pages, some of which are also written.
    all: Vec<PageAccess>,
    /// End of each batch in `all`.
    ends: Vec<usize>,
    /// Positions of the written pages in `all`, in address order.
    by_place: Vec<u32>,
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
        let mut all = common(traces);
        all.sort_unstable_by_key(|(moment, touch)| (!touch.is_written, *moment, touch.place()));
        all.truncate(TRACE_PAGES);
        let written = all.partition_point(|(_, touch)| touch.is_written);
        let first = all[..written].partition_point(|(moment, _)| !moment.is_late);
        let mut all: Vec<PageAccess> = all.into_iter().map(|(_, touch)| touch).collect();
        let ends = ends(first, written);
        let mut start = 0;
        for end in &ends {
            all[start..*end].sort_unstable_by_key(PageAccess::place);
            start = *end;
        }
        let mut by_place: Vec<u32> = (0..written as u32).collect();
        by_place.sort_unstable_by_key(|position| all[*position as usize].place());
        PrefetchSet(Arc::new(PrefetchPages { all, ends, by_place }))
    }

    /// A training trace with the same prefetch set. O(pages).
    fn trace(&self) -> TrainingTrace {
        TrainingTrace { accesses: self.0.all.clone(), pause: Some(self.0.ends.first().map_or(0, |end| *end as u32)) }
    }

    /// All pages, the written ones first.
    pub(crate) fn accesses(&self) -> &[PageAccess] {
        &self.0.all
    }

    fn batch(&self, index: usize) -> PrefetchBatch {
        let start = if index == 0 { 0 } else { self.0.ends[index - 1] };
        PrefetchBatch { prefetch_set: self.clone(), left: start..self.0.ends[index] }
    }

    /// The batch that contains a written page, if the page is in the set. O(log n).
    fn batch_of(&self, place: (u32, u32, u64)) -> Option<usize> {
        let PrefetchPages { all, ends, by_place } = &*self.0;
        let found = by_place.binary_search_by_key(&place, |position| all[*position as usize].place()).ok()?;
        Some(ends.partition_point(|end| *end <= by_place[found] as usize))
    }
}

/// The time of an access: whether it came after the clone's first output or wait, and its position in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AccessTime {
    is_late: bool,
    position: usize,
}

/// The pages that most traces write or any trace reads, each with its median time.
fn common(traces: &[Arc<TrainingTrace>]) -> Vec<(AccessTime, PageAccess)> {
    let mut moments: HashMap<PageAccess, Vec<AccessTime>> = HashMap::new();
    for trace in traces {
        let pause = trace.pause.map_or(usize::MAX, |pause| pause as usize);
        let mut seen = HashSet::new();
        for (position, touch) in trace.accesses.iter().enumerate() {
            if seen.insert(*touch) {
                moments.entry(*touch).or_default().push(AccessTime { is_late: position >= pause, position });
            }
        }
    }
    // A page that was read once is present in the template from then on, so later traces do not show its reads.
    let counts = |(touch, moments): &(PageAccess, Vec<AccessTime>)| !touch.is_written || 2 * moments.len() > traces.len();
    moments
        .into_iter()
        .filter(counts)
        .map(|(touch, mut moments)| {
            moments.sort_unstable();
            (moments[(moments.len() - 1) / 2], touch)
        })
        .collect()
}

/// Ends of the batches: the first, and each further one half as large as all before it, but of some pages at least.
fn ends(first: usize, written: usize) -> Vec<usize> {
    let next = |end: &usize| (*end < written).then(|| written.min(end + (end / 2).max(PREFETCH_LEAST)));
    if written == 0 { Vec::new() } else { std::iter::successors(Some(first), next).collect() }
}

impl PrefetchState {
    /// The state of a clone for which no batch was copied.
    pub(in crate::memory) fn new(prefetch_set: PrefetchSet) -> PrefetchState {
        PrefetchState { copied: vec![false; prefetch_set.0.ends.len()], prefetch_set }
    }

    /// A training trace with the same prefetch set. O(pages).
    pub(in crate::memory) fn trace(&self) -> TrainingTrace {
        self.prefetch_set.trace()
    }

    /// Takes the first batch: the pages that a clone writes before its first output or wait.
    pub(crate) fn first(&mut self) -> Option<PrefetchBatch> {
        self.take(0)
    }

    /// Takes the batch that contains a page that the clone has written, unless it was taken before.
    fn after(&mut self, place: (u32, u32, u64)) -> Option<PrefetchBatch> {
        self.prefetch_set.batch_of(place).and_then(|index| self.take(index))
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

    fn accesses(&self) -> &[PageAccess] {
        &self.prefetch_set.0.all[self.left.clone()]
    }
}

/// Number of frames that may be spent on predictions: up to three quarters of the quota, and all but a sixty-fourth of the machine.
fn room(frames: &Frames, account: AccountId) -> PageCount {
    let Usage { quota, used, .. } = frames.usage(account);
    let reserve = u64::from(frames.arena().frames()) / 64;
    PageCount((quota.0 / 4 * 3).saturating_sub(used.0).min(frames.free().0.saturating_sub(reserve)))
}

impl SpaceSet {
    /// Makes the first of these pages present for reading, so that later clones share them, and removes them from the front.
    ///
    /// # Errors
    /// The very next page is a block that must be read, or there is not enough memory.
    pub(crate) fn read_prefetched(&mut self, frames: &mut Frames, prefetch_set: &mut &[PageAccess]) -> Result<(), MemoryError> {
        let account = self.account();
        for _ in 0..PREFETCH_PIECE {
            let Some((touch, rest)) = prefetch_set.split_first() else { break };
            if let Some(tree) = self.tree(SpaceIndex(touch.space), touch.slot as usize)
                && let Fault::Absent(wanted) = tree.resolve(frames, account, touch.page, Access::Read)?
            {
                return Err(MemoryError::Absent(wanted));
            }
            *prefetch_set = rest;
        }
        Ok(())
    }

    /// The batch to copy after the running space has written a page.
    pub(crate) fn expected_after(&mut self, address: u64) -> Option<PrefetchBatch> {
        let range = self.check(self.current, address & !(PAGE_SIZE - 1), 1).ok()?;
        self.prefetch.after((range.space.0, range.slot as u32, range.pages.start))
    }

    /// Makes the first pages of a batch the cell's own if they are present, and removes them from the front. A large page is copied
    /// as a whole if most of it is in the batch and there is room. Without [`room`] the whole batch is dropped. O(one step).
    pub(crate) fn copy_prefetched(&mut self, frames: &mut Frames, batch: &mut PrefetchBatch) {
        let (account, accesses) = (self.account(), batch.accesses());
        let room = room(frames, self.account()).0;
        let Some(first) = accesses.first().copied() else { return };
        let mut parts = accesses.chunk_by(|one, next| one.large() == next.large());
        let mut piece = parts.next().unwrap_or_default().len();
        let owned = self.tree(SpaceIndex(first.space), first.slot as usize).is_some_and(|tree| {
            let is_large = |part: &[PageAccess]| part.len() as u64 * 2 >= span(2) && tree.has_large(frames, part[0].page);
            if is_large(&accesses[..piece]) && room >= span(2) + PATH_TABLES {
                return tree.own_large(frames, account, first.page).is_ok();
            }
            let mut needed = piece as u64 + PATH_TABLES;
            for part in parts.take_while(|part| (part[0].space, part[0].slot) == (first.space, first.slot) && !is_large(part)) {
                if piece + part.len() > PREFETCH_PIECE {
                    break;
                }
                (piece, needed) = (piece + part.len(), needed + part.len() as u64 + PATH_TABLES);
            }
            let pages: Vec<u64> = accesses[..piece].iter().map(|touch| touch.page).collect();
            needed <= room && tree.own_each(frames, account, &pages).is_ok()
        });
        batch.left.start = if owned { batch.left.start + piece } else { batch.left.end };
    }
}

#[cfg(test)]
mod tests {
    use super::{PREFETCH_LEAST, PageAccess, PrefetchSet, PrefetchState, TrainingTrace};
    use std::sync::Arc;

    fn touch(page: u64, is_written: bool) -> PageAccess {
        PageAccess { space: 0, slot: 3, page, is_written }
    }

    /// The training trace of a clone that has written these pages.
    fn trace(pages: impl IntoIterator<Item = u64>, pause: Option<u32>) -> Arc<TrainingTrace> {
        Arc::new(TrainingTrace { accesses: pages.into_iter().map(|page| touch(page, true)).collect(), pause })
    }

    /// The pages of a batch.
    fn pages(batch: Option<super::PrefetchBatch>) -> Vec<u64> {
        batch.map_or(Vec::new(), |batch| batch.accesses().iter().map(|touch| touch.page).collect())
    }

    #[test]
    fn what_is_written_comes_first_and_each_page_once() {
        let touched = [(7, false), (9, true), (5, true), (6, false), (6, true), (7, false), (5, true)];
        let accesses = touched.map(|(page, is_written)| touch(page, is_written));
        let prefetch_set = PrefetchSet::of(&[Arc::new(TrainingTrace { accesses: accesses.into(), pause: Some(4) })]);
        assert_eq!(prefetch_set.accesses(), [touch(5, true), touch(9, true), touch(6, true), touch(7, false), touch(6, false)]);
        assert_eq!(pages(PrefetchState::new(prefetch_set.clone()).first()), [5, 9]);
        assert_eq!(PrefetchSet::of(&[Arc::new(prefetch_set.trace())]), prefetch_set);
    }

    #[test]
    fn a_page_counts_that_most_have_written_when_most_had() {
        let traces = [trace([1, 2, 3, 4], Some(1)), trace([9, 3, 1, 8], Some(2)), trace([3, 1, 2, 7], Some(1))];
        let prefetch_set = PrefetchSet::of(&traces);
        assert_eq!(prefetch_set.accesses(), [3, 1, 2].map(|page| touch(page, true)));
        assert_eq!(pages(PrefetchState::new(prefetch_set).first()), [3], "1 and 2 come after most have paused");
        assert_eq!(PrefetchSet::of(&traces[..2]).accesses().len(), 2, "of two, both");
        assert_eq!(PrefetchSet::of(&[]), PrefetchSet::default());
    }

    #[test]
    fn who_writes_all_of_it_faults_seldom_and_nobody_is_far_ahead() {
        const PAGES: usize = 4000;
        for pause in [None, Some(0), Some(100), Some(1000)] {
            let prefetch_set = PrefetchSet::of(&[trace((0..PAGES as u64).rev(), pause)]);
            let mut prefetch = PrefetchState::new(prefetch_set);
            let first = pages(prefetch.first());
            assert_eq!(first.len(), pause.map_or(PAGES, |pause| pause as usize));
            let (mut made, mut faults) = (first.len(), 0);
            while made < PAGES {
                let place = (0, 3, (PAGES - 1 - made) as u64);
                let batch = pages(prefetch.after(place));
                assert!((1..=PREFETCH_LEAST.max(made / 2)).contains(&batch.len()));
                assert!(batch.is_sorted() && batch.contains(&place.2));
                assert!(prefetch.after(place).is_none(), "each is copied once");
                (made, faults) = (made + batch.len(), faults + 1);
            }
            assert!(faults <= 14, "{faults} faults");
            assert!(prefetch.after((0, 3, PAGES as u64)).is_none() && prefetch.after((1, 3, 0)).is_none());
        }
    }
}
