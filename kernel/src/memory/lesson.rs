// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages clones of a template touch first: later clones get them made before they run, in one pass, because a fault costs more than a copy (REAP's and FaaSnap's idea, at 4 KiB and without a disk).
//!
//! Only clones that the operator names teach, so that none can slow others or learn of them through it. What is expected wrongly costs a copy of a page.

use super::account::Usage;
use super::frames::Frames;
use super::spaces::{SpaceSet, Stretch};
use super::tree::TREE_PAGES;
use crate::limits::LESSON_PAGES;
use pando_abi::SpaceIndex;
use pando_abi::layout::SLOTS;
use pando_abi::limits::MAX_SPACES;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A page that a clone has touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Touch {
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

    fn follows(&self, other: &Touch) -> bool {
        (self.space, self.slot) == (other.space, other.slot) && self.page == other.page + 1
    }
}

/// What clones of a template are expected to touch, in order, each page once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected(Arc<[Touch]>);

impl Expected {
    /// What was touched, in any order.
    pub(crate) fn new(mut touches: Vec<Touch>) -> Expected {
        // What was written may have been read before: of the two the write counts.
        touches.sort_unstable_by_key(|touch| (touch.space, touch.slot, touch.page, !touch.is_written));
        touches.dedup_by_key(|touch| (touch.space, touch.slot, touch.page));
        Expected(touches.into())
    }

    /// All of it.
    pub(crate) fn touches(&self) -> &[Touch] {
        &self.0
    }

    /// The pages, in runs.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Stretch> {
        let runs = self.0.chunk_by(|one, next| next.follows(one));
        runs.map(|run| Stretch {
            space: SpaceIndex(run[0].space),
            slot: run[0].slot as usize,
            pages: run[0].page..run[0].page + run.len() as u64,
        })
    }
}

impl SpaceSet {
    /// Takes note of what is touched from now on, as far as there is room for it.
    pub(crate) fn begin_lesson(&mut self) {
        self.lesson = Some(Vec::new());
    }

    /// What was touched since.
    pub(crate) fn end_lesson(&mut self) -> Option<Vec<Touch>> {
        self.lesson.take()
    }

    /// Takes note of a page of the running space.
    pub(super) fn note_touched(&mut self, slot: usize, page: u64, is_written: bool) {
        let space = self.current().0;
        if let Some(lesson) = self.lesson.as_mut().filter(|lesson| lesson.len() < LESSON_PAGES) {
            lesson.push(Touch { space, slot: slot as u32, page, is_written });
        }
    }

    /// Makes those pages of its own that are expected to be written and are there, as far as half of the quota goes: what it is not expected to do takes memory too. O(pages).
    pub(crate) fn own_expected(&mut self, frames: &mut Frames, expected: &[Touch]) {
        let account = self.account();
        for run in expected.chunk_by(|one, next| (one.space, one.slot) == (next.space, next.slot)) {
            let pages: Vec<u64> = run.iter().filter(|touch| touch.is_written).map(|touch| touch.page).collect();
            let Usage { quota, used, .. } = frames.usage(account);
            if used.0 > quota.0 / 2 {
                return;
            }
            let Some(tree) = self.tree(SpaceIndex(run[0].space), run[0].slot as usize).filter(|_| !pages.is_empty()) else { continue };
            if tree.own_each(frames, account, &pages).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Expected, Touch};

    #[test]
    fn a_page_is_expected_once_and_pages_in_a_row_together() {
        let touch = |page, is_written| Touch { space: 0, slot: 3, page, is_written };
        let expected =
            Expected::new(vec![touch(7, false), touch(5, true), touch(6, false), touch(6, true), touch(9, false), touch(5, true)]);
        assert_eq!(expected.touches(), [touch(5, true), touch(6, true), touch(7, false), touch(9, false)]);
        let ranges: Vec<_> = expected.ranges().map(|range| range.pages).collect();
        assert_eq!(ranges, [5..8, 9..10]);
    }
}
