// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages a clone touches, in order: what later clones of the same template find made ([`super::expected`]).
//!
//! Only clones that the operator names teach, so that none can slow others or learn of them through it. A template remembers several, and lets expect what most of them did.

use super::entry::View;
use super::expected::{Expected, Foreseen};
use super::fault::Access;
use super::frames::Frames;
use super::spaces::{SpaceSet, Stretch};
use super::tree::{TREE_PAGES, span};
use crate::limits::{LESSON_PAGES, LESSONS};
use pando_abi::layout::SLOTS;
use pando_abi::limits::MAX_SPACES;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
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
    pub(super) fn large(&self) -> (u32, u32, u64) {
        (self.space, self.slot, self.page / span(2))
    }

    /// Where it is.
    pub(super) fn place(&self) -> (u32, u32, u64) {
        (self.space, self.slot, self.page)
    }
}

/// What one clone has touched, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lesson {
    pub(super) touches: Vec<Touch>,
    /// How many until it first said something, or waited.
    pub(super) pause: Option<u32>,
}

impl Lesson {
    /// Whether a cell could have touched all this.
    pub(super) fn is_possible(&self) -> bool {
        self.touches.len() <= LESSON_PAGES && self.touches.iter().all(Touch::is_possible)
    }
}

/// The last lessons of a template, and what they let expect.
#[derive(Debug, Default)]
pub(crate) struct Lessons {
    all: VecDeque<Arc<Lesson>>,
    /// How many there ever were.
    heard: u64,
    /// How many there were when `expected` was worked out.
    weighed: u64,
    expected: Expected,
}

impl Lessons {
    /// One lesson, weighed; none if it says nothing. O(n log n) of what was touched.
    pub(crate) fn of(lesson: Lesson) -> Lessons {
        if lesson.touches.is_empty() {
            return Lessons::default();
        }
        let all = [Arc::new(lesson)];
        Lessons { expected: Expected::of(&all), all: all.into(), heard: 1, weighed: 1 }
    }

    /// One more; of too many the first is forgotten. O(1): what it lets expect is worked out later, without a lock.
    pub(crate) fn add(&mut self, lesson: Lesson) {
        if self.all.len() == LESSONS {
            self.all.pop_front();
        }
        self.all.push_back(Arc::new(lesson));
        self.heard += 1;
    }

    /// All of them with their number, if there are some that nobody has weighed.
    pub(crate) fn unweighed(&self) -> Option<(u64, Vec<Arc<Lesson>>)> {
        (self.weighed < self.heard).then(|| (self.heard, self.all.iter().cloned().collect()))
    }

    /// Takes what so many let expect, if it is news.
    pub(crate) fn conclude(&mut self, heard: u64, expected: Expected) {
        if self.weighed < heard {
            (self.weighed, self.expected) = (heard, expected);
        }
    }

    /// What those let expect that were weighed.
    pub(crate) fn expected(&self) -> &Expected {
        &self.expected
    }
}

impl SpaceSet {
    /// Takes note of what is touched from now on, as far as there is room for it. Nothing is made before that, for nobody would see whether it is touched.
    pub(crate) fn begin_lesson(&mut self) {
        (self.lesson, self.foreseen) = (Some(Lesson::default()), Foreseen::default());
    }

    /// What was touched since.
    pub(crate) fn end_lesson(&mut self) -> Option<Lesson> {
        self.lesson.take()
    }

    /// Takes note of a page that is there now. One that has become the cell's own when it was read is taken as written: whether it ever is, no fault would tell.
    pub(super) fn note_touched(&mut self, frames: &Frames, page: &Stretch, access: Access) {
        if self.lesson.as_ref().is_none_or(|lesson| lesson.touches.len() >= LESSON_PAGES) {
            return;
        }
        let first = page.pages.start;
        let found = self.tree(page.space, page.slot).map(|tree| tree.find(frames, first));
        let is_own = found.is_some_and(|found| found.owned && matches!(found.view, View::Page { writable: true, .. }));
        let touch = Touch { space: page.space.0, slot: page.slot as u32, page: first, is_written: access == Access::Write || is_own };
        self.lesson.iter_mut().for_each(|lesson| lesson.touches.push(touch));
    }

    /// Takes note that the cell has said something, or waits.
    pub(crate) fn note_pause(&mut self) {
        if let Some(lesson) = &mut self.lesson {
            lesson.pause.get_or_insert(lesson.touches.len() as u32);
        }
    }
}
