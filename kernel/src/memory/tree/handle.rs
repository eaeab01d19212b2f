// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handle of a tree: cloning, mapping in a root, release.

use super::entry::Entry;
use super::level::TOP;
use crate::memory::frames::{Frames, Garbage};
use crate::memory::rules::OmittedRules;
use pando_machine::FrameId;
use std::cell::{Cell, RefCell};

/// A tree: the description of 512 GiB of memory. Pages are counted from the start of its slot.
///
/// A handle; dropping it without [`Tree::release`] leaks its frames, which the accounting tests would show.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub(super) top: Option<FrameId>,
    /// Whether the top may be shared: then its content must not change.
    pub(super) is_sealed: bool,
    /// Changes whenever a root that maps the tree must be built anew; never decreases.
    pub(super) version: u64,
    /// Whether a root has mapped the tree since it was created or sealed. Until then no CPU knows any table that it owns.
    pub(super) is_mapped: Cell<bool>,
    /// Tables that were made since a root with the tree was last entered, or some of them: no CPU knows them.
    pub(super) fresh: RefCell<Vec<FrameId>>,
}

/// Tables that a tree remembers as fresh: the paths to pages in some large pages.
const FRESH_MAX: usize = 32;

impl Tree {
    /// The tree's version: two readings differ if a root must be built anew.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The entry with which a root maps the tree. Marks the tree as mapped.
    pub(in crate::memory) fn map_in_root(&self) -> Entry {
        self.is_mapped.set(true);
        self.link()
    }

    /// Notes that a CPU is about to run on a root that maps the tree.
    pub(in crate::memory) fn note_entry(&self, frames: &Frames) {
        if !frames.rules().omits(OmittedRules::WITHOUT_ENTRIES) {
            self.fresh.take();
        }
    }

    /// Remembers tables as fresh, from the first ones on: they are the upper ones of a path, which further edits need most. All tables of
    /// an unmapped tree are unknown to CPUs.
    pub(super) fn set_fresh(&mut self, mut fresh: Vec<FrameId>) {
        if self.is_mapped.get() {
            fresh.truncate(FRESH_MAX);
            fresh.shrink_to(FRESH_MAX);
            *self.fresh.get_mut() = fresh;
        }
    }

    /// The entry that links to the tree.
    pub(super) fn link(&self) -> Entry {
        self.top.map_or(Entry::EMPTY, |top| Entry::table(top, !self.is_sealed))
    }

    /// Clones the tree: another handle on the same memory, copy-on-write on both sides. Both are sealed, and a sealed tree owns
    /// nothing: a write copies the top first. O(1).
    pub fn clone_tree(&mut self, frames: &mut Frames) -> Tree {
        if let Some(top) = self.top {
            frames.hold(top);
            if !self.is_sealed {
                self.is_sealed = true;
                self.version = frames.next_number();
            }
        }
        // A sealed tree has no table of its own that a CPU could know.
        self.is_mapped.set(false);
        self.fresh.take();
        Tree { top: self.top, is_sealed: self.is_sealed, version: frames.next_number(), ..Tree::default() }
    }

    /// Releases the tree, in steps that [`Frames::reap`] works through.
    pub fn release(self, frames: &mut Frames) {
        if let Some(top) = self.top {
            frames.discard(Garbage::Table(top, TOP));
        }
    }
}
