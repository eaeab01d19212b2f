// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clones of a template are expected to touch: they find it made, because a fault costs more than a copy (REAP's and FaaSnap's idea, at 4 KiB and without a disk).
//!
//! What is read stands in the template, for all. What is written is copied for each clone, in *bursts*, in the order in which it was written and never far ahead of the clone: the first before it runs, which is what it writes until
//! it has first said something or waits; each other when it writes a page of it, and half as large as all before. So a clone that does all that others did faults a few times, and one that stops half way has
//! copied half as much again as it needed at most.
//!
//! A page counts if most of the clones wrote it that taught ([`super::lesson`]), or if one read it. What is expected wrongly costs a copy of a page, and never the last memory of the cell or the machine.

use super::account::{AccountId, Usage};
use super::edit::PATH_TABLES;
use super::fault::{Access, Fault};
use super::frames::Frames;
use super::lesson::{Lesson, Touch};
use super::obstacle::Obstacle;
use super::spaces::SpaceSet;
use super::tree::span;
use crate::limits::{FORESEEN_LEAST, FORESEEN_PIECE, LESSON_PAGES};
use pando_abi::{PAGE_SIZE, SpaceIndex};
use pando_machine::PageCount;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// What clones of a template are expected to touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected(Arc<Touches>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Touches {
    /// What is written, burst after burst, and in each in the order of where it is, so that each table is met once; behind it what is read, perhaps before it is written.
    all: Vec<Touch>,
    /// Where each burst ends.
    ends: Vec<usize>,
    /// Positions of those that are written, in the order of where they are.
    by_place: Vec<u32>,
}

/// Pages that are to be copied for a clone: what is left of a burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    expected: Expected,
    left: Range<usize>,
}

/// What a clone is expected to write, and which bursts of it have been copied.
#[derive(Debug, Default)]
pub(crate) struct Foreseen {
    expected: Expected,
    copied: Vec<bool>,
}

impl Expected {
    /// What lessons let expect. O(n log n) of all that was touched: nothing to do under a lock.
    pub(crate) fn of(lessons: &[Arc<Lesson>]) -> Expected {
        let mut all = common(lessons);
        all.sort_unstable_by_key(|(moment, touch)| (!touch.is_written, *moment, touch.place()));
        all.truncate(LESSON_PAGES);
        let written = all.partition_point(|(_, touch)| touch.is_written);
        let first = all[..written].partition_point(|(moment, _)| !moment.is_late);
        let mut all: Vec<Touch> = all.into_iter().map(|(_, touch)| touch).collect();
        let ends = ends(first, written);
        let mut start = 0;
        for end in &ends {
            all[start..*end].sort_unstable_by_key(Touch::place);
            start = *end;
        }
        let mut by_place: Vec<u32> = (0..written as u32).collect();
        by_place.sort_unstable_by_key(|position| all[*position as usize].place());
        Expected(Arc::new(Touches { all, ends, by_place }))
    }

    /// A lesson that lets expect the same. O(pages).
    fn lesson(&self) -> Lesson {
        Lesson { touches: self.0.all.clone(), pause: Some(self.0.ends.first().map_or(0, |end| *end as u32)) }
    }

    /// All of it: first what is written.
    pub(crate) fn touches(&self) -> &[Touch] {
        &self.0.all
    }

    fn burst(&self, index: usize) -> Burst {
        let start = if index == 0 { 0 } else { self.0.ends[index - 1] };
        Burst { expected: self.clone(), left: start..self.0.ends[index] }
    }

    /// The burst in which a page is written, if that is expected at all. O(log n).
    fn burst_of(&self, place: (u32, u32, u64)) -> Option<usize> {
        let Touches { all, ends, by_place } = &*self.0;
        let found = by_place.binary_search_by_key(&place, |position| all[*position as usize].place()).ok()?;
        Some(ends.partition_point(|end| *end <= by_place[found] as usize))
    }
}

/// When a page was touched: before the clone first said something or waited, or after, and as which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    is_late: bool,
    position: usize,
}

/// What most of the lessons write, and what any reads, and when: in the middle of when they do.
fn common(lessons: &[Arc<Lesson>]) -> Vec<(Moment, Touch)> {
    let mut moments: HashMap<Touch, Vec<Moment>> = HashMap::new();
    for lesson in lessons {
        let pause = lesson.pause.map_or(usize::MAX, |pause| pause as usize);
        let mut seen = HashSet::new();
        for (position, touch) in lesson.touches.iter().enumerate() {
            if seen.insert(*touch) {
                moments.entry(*touch).or_default().push(Moment { is_late: position >= pause, position });
            }
        }
    }
    // What one has read stands in the template from then on, and the next ones read it unseen.
    let counts = |(touch, moments): &(Touch, Vec<Moment>)| !touch.is_written || 2 * moments.len() > lessons.len();
    moments
        .into_iter()
        .filter(counts)
        .map(|(touch, mut moments)| {
            moments.sort_unstable();
            (moments[(moments.len() - 1) / 2], touch)
        })
        .collect()
}

/// Where bursts end: the first, and each that follows half as large as all before, but of a few pages at least.
fn ends(first: usize, written: usize) -> Vec<usize> {
    let next = |end: &usize| (*end < written).then(|| written.min(end + (end / 2).max(FORESEEN_LEAST)));
    if written == 0 { Vec::new() } else { std::iter::successors(Some(first), next).collect() }
}

impl Foreseen {
    /// Nothing of what is expected has been copied.
    pub(super) fn new(expected: Expected) -> Foreseen {
        Foreseen { copied: vec![false; expected.0.ends.len()], expected }
    }

    /// A lesson that lets expect the same. O(pages).
    pub(super) fn lesson(&self) -> Lesson {
        self.expected.lesson()
    }

    /// What a clone writes before it says anything or waits.
    pub(crate) fn first(&mut self) -> Option<Burst> {
        self.take(0)
    }

    /// What a clone writes soon if it has written a page, once.
    fn after(&mut self, place: (u32, u32, u64)) -> Option<Burst> {
        self.expected.burst_of(place).and_then(|index| self.take(index))
    }

    fn take(&mut self, index: usize) -> Option<Burst> {
        let is_new = !std::mem::replace(self.copied.get_mut(index)?, true);
        is_new.then(|| self.expected.burst(index))
    }
}

impl Burst {
    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn touches(&self) -> &[Touch] {
        &self.expected.0.all[self.left.clone()]
    }
}

/// How many frames may go into what may turn out wrong: up to three quarters of the quota, and all but a sixty-fourth of the machine.
fn room(frames: &Frames, account: AccountId) -> PageCount {
    let Usage { quota, used, .. } = frames.usage(account);
    let reserve = u64::from(frames.arena().frames()) / 64;
    PageCount((quota.0 / 4 * 3).saturating_sub(used.0).min(frames.free().0.saturating_sub(reserve)))
}

impl SpaceSet {
    /// Reads the first of those pages, so that clones from now on share them, and takes them off the front.
    ///
    /// # Errors
    /// The very next one is a block to be read, or there is not enough memory.
    pub(crate) fn read_expected(&mut self, frames: &mut Frames, expected: &mut &[Touch]) -> Result<(), Obstacle> {
        let account = self.account();
        for _ in 0..FORESEEN_PIECE {
            let Some((touch, rest)) = expected.split_first() else { break };
            if let Some(tree) = self.tree(SpaceIndex(touch.space), touch.slot as usize)
                && let Fault::Absent(wanted) = tree.resolve(frames, account, touch.page, Access::Read)?
            {
                return Err(Obstacle::Absent(wanted));
            }
            *expected = rest;
        }
        Ok(())
    }

    /// What the running space is expected to write after a page that it has written.
    pub(crate) fn expected_after(&mut self, address: u64) -> Option<Burst> {
        let range = self.check(self.current, address & !(PAGE_SIZE - 1), 1).ok()?;
        self.foreseen.after((range.space.0, range.slot as u32, range.pages.start))
    }

    /// Makes the first pages of a burst its own that are there, and takes them off the front; large ones whole where most of one is expected and there is room for it. All of them where there is no
    /// [`room`]. O(a piece).
    pub(crate) fn own_expected(&mut self, frames: &mut Frames, burst: &mut Burst) {
        let (account, touches) = (self.account(), burst.touches());
        let room = room(frames, self.account()).0;
        let Some(first) = touches.first().copied() else { return };
        let mut parts = touches.chunk_by(|one, next| one.large() == next.large());
        let mut piece = parts.next().unwrap_or_default().len();
        let owned = self.tree(SpaceIndex(first.space), first.slot as usize).is_some_and(|tree| {
            let is_large = |part: &[Touch]| part.len() as u64 * 2 >= span(2) && tree.has_large(frames, part[0].page);
            if is_large(&touches[..piece]) && room >= span(2) + PATH_TABLES {
                return tree.own_large(frames, account, first.page).is_ok();
            }
            let mut needed = piece as u64 + PATH_TABLES;
            for part in parts.take_while(|part| (part[0].space, part[0].slot) == (first.space, first.slot) && !is_large(part)) {
                if piece + part.len() > FORESEEN_PIECE {
                    break;
                }
                (piece, needed) = (piece + part.len(), needed + part.len() as u64 + PATH_TABLES);
            }
            let pages: Vec<u64> = touches[..piece].iter().map(|touch| touch.page).collect();
            needed <= room && tree.own_each(frames, account, &pages).is_ok()
        });
        burst.left.start = if owned { burst.left.start + piece } else { burst.left.end };
    }
}

#[cfg(test)]
mod tests {
    use super::{Expected, FORESEEN_LEAST, Foreseen, Lesson, Touch};
    use std::sync::Arc;

    fn touch(page: u64, is_written: bool) -> Touch {
        Touch { space: 0, slot: 3, page, is_written }
    }

    /// What one clone teaches that has written these pages.
    fn lesson(pages: impl IntoIterator<Item = u64>, pause: Option<u32>) -> Arc<Lesson> {
        Arc::new(Lesson { touches: pages.into_iter().map(|page| touch(page, true)).collect(), pause })
    }

    /// Where the pages of a burst lie.
    fn pages(burst: Option<super::Burst>) -> Vec<u64> {
        burst.map_or(Vec::new(), |burst| burst.touches().iter().map(|touch| touch.page).collect())
    }

    #[test]
    fn what_is_written_comes_first_and_each_page_once() {
        let touched = [(7, false), (9, true), (5, true), (6, false), (6, true), (7, false), (5, true)];
        let touches = touched.map(|(page, is_written)| touch(page, is_written));
        let expected = Expected::of(&[Arc::new(Lesson { touches: touches.into(), pause: Some(4) })]);
        assert_eq!(expected.touches(), [touch(5, true), touch(9, true), touch(6, true), touch(7, false), touch(6, false)]);
        assert_eq!(pages(Foreseen::new(expected.clone()).first()), [5, 9]);
        assert_eq!(Expected::of(&[Arc::new(expected.lesson())]), expected);
    }

    #[test]
    fn a_page_counts_that_most_have_written_when_most_had() {
        let lessons = [lesson([1, 2, 3, 4], Some(1)), lesson([9, 3, 1, 8], Some(2)), lesson([3, 1, 2, 7], Some(1))];
        let expected = Expected::of(&lessons);
        assert_eq!(expected.touches(), [3, 1, 2].map(|page| touch(page, true)));
        assert_eq!(pages(Foreseen::new(expected).first()), [3], "1 and 2 come after most have paused");
        assert_eq!(Expected::of(&lessons[..2]).touches().len(), 2, "of two, both");
        assert_eq!(Expected::of(&[]), Expected::default());
    }

    #[test]
    fn who_writes_all_of_it_faults_seldom_and_nobody_is_far_ahead() {
        const PAGES: usize = 4000;
        for pause in [None, Some(0), Some(100), Some(1000)] {
            let expected = Expected::of(&[lesson((0..PAGES as u64).rev(), pause)]);
            let mut foreseen = Foreseen::new(expected);
            let first = pages(foreseen.first());
            assert_eq!(first.len(), pause.map_or(PAGES, |pause| pause as usize));
            let (mut made, mut faults) = (first.len(), 0);
            while made < PAGES {
                let place = (0, 3, (PAGES - 1 - made) as u64);
                let burst = pages(foreseen.after(place));
                assert!((1..=FORESEEN_LEAST.max(made / 2)).contains(&burst.len()));
                assert!(burst.is_sorted() && burst.contains(&place.2));
                assert!(foreseen.after(place).is_none(), "each is copied once");
                (made, faults) = (made + burst.len(), faults + 1);
            }
            assert!(faults <= 14, "{faults} faults");
            assert!(foreseen.after((0, 3, PAGES as u64)).is_none() && foreseen.after((1, 3, 0)).is_none());
        }
    }
}
