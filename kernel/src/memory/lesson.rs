// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages clones of a template touch: later clones find them made, because a fault costs more than a copy (REAP's and FaaSnap's idea, at 4 KiB and without a disk).
//!
//! What is read stands in the template, for all. What is written is copied for each clone, in the order in which it was written first and never far ahead of the clone: before it runs, what it writes until it has first said
//! something or waits; then, whenever it writes a page that is not its own yet, those that come next, half as many as came before. So a clone that does all that the first one did faults a few times, and one that stops half way has
//! copied half as much again as it needed at most.
//!
//! Only clones that the operator names teach, so that none can slow others or learn of them through it. What is expected wrongly costs a copy of a page.

use super::account::Usage;
use super::fault::{Access, Fault};
use super::frames::Frames;
use super::obstacle::Obstacle;
use super::spaces::SpaceSet;
use super::tree::{TREE_PAGES, span};
use crate::limits::{FORESEEN_LEAST, FORESEEN_PIECE, LESSON_PAGES};
use pando_abi::layout::SLOTS;
use pando_abi::limits::MAX_SPACES;
use pando_abi::{PAGE_SIZE, SpaceIndex};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// A page that a clone has touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Touch {
    /// The space that ran.
    pub(super) space: u32,
    pub(super) slot: u32,
    /// Pages from the start of the slot.
    pub(super) page: u64,
    /// It was written, not only read.
    pub(super) is_written: bool,
}

impl Touch {
    /// Whether a cell could have touched it.
    pub(super) fn is_possible(&self) -> bool {
        self.space < MAX_SPACES && (self.slot as usize) < SLOTS && self.page < TREE_PAGES
    }

    /// The large page that it is a part of.
    fn large(&self) -> (u32, u32, u64) {
        (self.space, self.slot, self.page / span(2))
    }

    /// Where it is.
    fn place(&self) -> (u32, u32, u64) {
        (self.space, self.slot, self.page)
    }
}

/// What one clone has touched, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lesson {
    pub(super) touches: Vec<Touch>,
    /// How many until it first said something, or waited.
    pause: Option<u32>,
}

impl Lesson {
    /// Whether a cell could have touched all this.
    pub(super) fn is_possible(&self) -> bool {
        self.touches.len() <= LESSON_PAGES && self.touches.iter().all(Touch::is_possible)
    }
}

/// What clones of a template are expected to touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected(Arc<Touches>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Touches {
    /// What is written, in order, each page once; behind it what is read, perhaps before it is written.
    all: Vec<Touch>,
    /// How many are written.
    written: usize,
    /// How many of those before a clone first says something or waits.
    first: usize,
    /// Positions of those that are written, in the order of where they are.
    by_place: Vec<u32>,
}

impl Expected {
    /// What a lesson lets expect.
    pub(crate) fn new(lesson: Lesson) -> Expected {
        let mut seen = HashSet::new();
        let early = lesson.pause.map_or(usize::MAX, |pause| pause as usize);
        let touches = (0..).zip(lesson.touches).filter(|(_, touch)| seen.insert(*touch));
        let (written, read): (Vec<(usize, Touch)>, Vec<_>) = touches.partition(|(_, touch)| touch.is_written);
        let first = written.iter().filter(|(position, _)| *position < early).count();
        let mut by_place: Vec<u32> = (0..written.len() as u32).collect();
        by_place.sort_unstable_by_key(|position| written[*position as usize].1.place());
        let count = written.len();
        let all = written.into_iter().chain(read).map(|(_, touch)| touch).collect();
        Expected(Arc::new(Touches { all, written: count, first, by_place }))
    }

    /// A lesson that lets expect the same.
    pub(super) fn lesson(&self) -> Lesson {
        Lesson { touches: self.0.all.clone(), pause: Some(self.0.first as u32) }
    }

    /// All of it: first what is written.
    pub(crate) fn touches(&self) -> &[Touch] {
        &self.0.all
    }

    /// What a clone writes before it says anything or waits.
    pub(crate) fn first(&self) -> Vec<Touch> {
        self.window(0, self.0.first)
    }

    /// What a clone writes soon after a page, if that is expected at all: half as many pages as until then, or a few.
    pub(super) fn after(&self, space: SpaceIndex, slot: usize, page: u64) -> Vec<Touch> {
        let Touches { all, by_place, .. } = &*self.0;
        let place = (space.0, slot as u32, page);
        match by_place.binary_search_by_key(&place, |position| all[*position as usize].place()) {
            Ok(found) => {
                let before = by_place[found] as usize + 1;
                self.window(before, (before / 2).max(FORESEEN_LEAST))
            }
            Err(_) => Vec::new(),
        }
    }

    /// So many of the pages that are written, in the order of where they are, so that each table is met once.
    fn window(&self, start: usize, length: usize) -> Vec<Touch> {
        let Touches { all, written, .. } = &*self.0;
        let mut window = all[start..(start + length).min(*written)].to_vec();
        window.sort_unstable_by_key(Touch::place);
        window
    }
}

impl SpaceSet {
    /// Takes note of what is touched from now on, as far as there is room for it.
    pub(crate) fn begin_lesson(&mut self) {
        self.lesson = Some(Lesson::default());
    }

    /// What was touched since.
    pub(crate) fn end_lesson(&mut self) -> Option<Lesson> {
        self.lesson.take()
    }

    /// Takes note of a page of the running space.
    pub(super) fn note_touched(&mut self, slot: usize, page: u64, is_written: bool) {
        let space = self.current().0;
        if let Some(lesson) = self.lesson.as_mut().filter(|lesson| lesson.touches.len() < LESSON_PAGES) {
            lesson.touches.push(Touch { space, slot: slot as u32, page, is_written });
        }
    }

    /// Takes note that the cell has said something, or waits.
    pub(crate) fn note_pause(&mut self) {
        if let Some(lesson) = &mut self.lesson {
            lesson.pause.get_or_insert(lesson.touches.len() as u32);
        }
    }

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
    pub(crate) fn expected_after(&mut self, address: u64) -> Vec<Touch> {
        match self.check(self.current, address & !(PAGE_SIZE - 1), 1) {
            Ok(range) => self.foreseen.after(range.space, range.slot, range.pages.start),
            Err(_) => Vec::new(),
        }
    }

    /// Makes the first of those pages its own that are there, and takes them off the front; large ones whole where most of one is expected. None once three quarters of the quota are used, because what it is not
    /// expected to do takes memory too.
    pub(crate) fn own_expected(&mut self, frames: &mut Frames, expected: &mut Vec<Touch>) {
        let account = self.account();
        let Some(first) = expected.first().copied() else { return };
        let Usage { quota, used, .. } = frames.usage(account);
        let Some(tree) = self.tree(SpaceIndex(first.space), first.slot as usize).filter(|_| used.0 <= quota.0 / 4 * 3) else {
            return expected.clear();
        };
        let is_large = |part: &[Touch]| part.len() as u64 * 2 >= span(2) && tree.has_large(frames, part[0].page);
        let mut parts = expected.chunk_by(|one, next| one.large() == next.large());
        let mut piece = parts.next().unwrap_or_default().len();
        let owned = if is_large(&expected[..piece]) {
            tree.own_large(frames, account, first.page)
        } else {
            let rest = parts.take_while(|part| (part[0].space, part[0].slot) == (first.space, first.slot) && !is_large(part));
            for part in rest {
                if piece + part.len() > FORESEEN_PIECE {
                    break;
                }
                piece += part.len();
            }
            let pages: Vec<u64> = expected[..piece].iter().map(|touch| touch.page).collect();
            tree.own_each(frames, account, &pages)
        };
        expected.drain(..if owned.is_ok() { piece } else { expected.len() });
    }
}

#[cfg(test)]
mod tests {
    use super::{Expected, FORESEEN_LEAST, Lesson, SpaceIndex, Touch};

    fn touch(page: u64, is_written: bool) -> Touch {
        Touch { space: 0, slot: 3, page, is_written }
    }

    #[test]
    fn what_is_written_comes_first_and_in_order() {
        let touched = [(7, false), (9, true), (5, true), (6, false), (6, true), (7, false), (5, true)];
        let touches = touched.map(|(page, is_written)| touch(page, is_written));
        let expected = Expected::new(Lesson { touches: touches.into(), pause: Some(4) });
        assert_eq!(expected.touches(), [touch(9, true), touch(5, true), touch(6, true), touch(7, false), touch(6, false)]);
        assert_eq!(expected.first(), [touch(5, true), touch(9, true)]);
        assert_eq!(Expected::new(expected.lesson()), expected);
    }

    #[test]
    fn who_writes_all_of_it_faults_seldom_and_nobody_is_far_ahead() {
        const PAGES: usize = 4000;
        for pause in [None, Some(0), Some(100), Some(1000)] {
            let expected = Expected::new(Lesson { touches: (0..PAGES as u64).rev().map(|page| touch(page, true)).collect(), pause });
            let mut made = expected.first().len();
            assert_eq!(made, pause.map_or(PAGES, |pause| pause as usize));
            let mut faults = 0;
            while made < PAGES {
                let next = expected.after(SpaceIndex(0), 3, (PAGES - 1 - made) as u64);
                assert!(next.len() <= FORESEEN_LEAST.max(made.div_ceil(2)));
                assert!(next.iter().is_sorted_by_key(|touch| touch.page));
                (made, faults) = (made + 1 + next.len(), faults + 1);
            }
            assert!(made == PAGES && faults <= 14, "{faults} faults");
            assert!(expected.after(SpaceIndex(0), 3, PAGES as u64).is_empty() && expected.after(SpaceIndex(1), 3, 0).is_empty());
        }
    }
}
