// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees: copy-on-write radix trees of tables, each spanning one slot of 512 GiB.

use super::entry::{Entry, View};
use crate::memory::frames::frame_table::{Frames, Garbage};
use pando_abi::Permissions;
use pando_machine::{EntryIndex, FrameId};
use std::cell::Cell;
use std::ops::Range;

/// The level of a tree's top table, whose entries span 1 GiB each.
pub(in crate::memory) const TOP: u8 = 3;

/// Pages that one entry of a table of `level` spans.
pub(in crate::memory) const fn span(level: u8) -> u64 {
    1 << (9 * (level as u32 - 1))
}

/// Pages that a tree spans.
pub const TREE_PAGES: u64 = span(TOP + 1);

/// The index of `page` in a table of `level`.
pub(in crate::memory) const fn index(page: u64, level: u8) -> EntryIndex {
    EntryIndex::of(page << 12, level)
}

/// A tree: the description of 512 GiB of memory. Pages are counted from the start of its slot.
///
/// A handle; dropping it without [`Tree::release`] leaks its frames, which the accounting tests would show.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub(in crate::memory) top: Option<FrameId>,
    /// Whether the top may be shared: then its content must not change.
    pub(in crate::memory) sealed: bool,
    /// Increases whenever a root that shows the tree must be built anew.
    pub(in crate::memory) version: u64,
    /// Whether a root has shown it since it was made or sealed: until then no CPU knows any table that it owns.
    pub(in crate::memory) is_shown: Cell<bool>,
}

/// The result of looking up a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The entry; for blocks, that of the requested page.
    pub view: View,
    /// The level of the table that contains it: 1 for a 4 KiB page, 2 for a large one; lazy memory and blocks at any.
    pub level: u8,
    /// Whether every link on the way, and the tree itself, is owned.
    pub owned: bool,
}

impl Lookup {
    /// The program's permissions there; `None`: nothing is mapped.
    #[must_use]
    pub fn permissions(&self) -> Option<Permissions> {
        match self.view {
            View::Lazy { permissions, .. } | View::Block { permissions, .. } | View::Page { permissions, .. } => Some(permissions),
            View::Empty | View::Table { .. } => None,
        }
    }

    /// The 4 KiB frame of `page`, if it is present.
    #[must_use]
    pub fn frame(&self, page: u64) -> Option<FrameId> {
        match self.view {
            View::Page { frame, .. } => Some(frame.offset((page % span(self.level)) as u32)),
            _ => None,
        }
    }
}

/// Numbers of present pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All present pages.
    pub resident: u64,
    /// Those without another holder.
    pub own: u64,
}

impl Tree {
    /// The tree's version: two readings differ if a root must be built anew.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The entry with which a root shows the tree. Marks the tree as shown.
    pub(in crate::memory) fn show(&self) -> Entry {
        self.is_shown.set(true);
        self.link()
    }

    /// The entry that links to it.
    pub(in crate::memory) fn link(&self) -> Entry {
        self.top.map_or(Entry::EMPTY, |top| Entry::table(top, !self.sealed))
    }

    /// Looks `page` up. O(levels), changes nothing.
    #[must_use]
    pub fn find(&self, frames: &Frames, page: u64) -> Lookup {
        let mut owned = !self.sealed;
        let Some(mut table) = self.top else { return Lookup { view: View::Empty, level: TOP, owned } };
        let mut level = TOP;
        loop {
            let view = Entry(frames.arena().load(table, index(page, level))).view(level);
            match view {
                View::Table { table: next, owned: link } => {
                    owned &= link;
                    table = next;
                    level -= 1;
                }
                View::Block { block, permissions } => {
                    let block = block.further(page % span(level));
                    return Lookup { view: View::Block { block, permissions }, level, owned };
                }
                _ => return Lookup { view, level, owned },
            }
        }
    }

    /// Counts the present pages at the front of `pages`: to the end of the first one's table, or of an entry above. Returns the
    /// page behind them. O(pages of a table), changes nothing.
    #[must_use]
    pub fn count(&self, frames: &Frames, pages: Range<u64>, count: &mut Count) -> u64 {
        let Some(mut table) = self.top else { return pages.end };
        let view = |table, page, level| Entry(frames.arena().load(table, index(page, level))).view(level);
        let (mut level, mut is_alone) = (TOP, frames.is_last_holder(table));
        while let View::Table { table: below, .. } = view(table, pages.start, level) {
            (table, level) = (below, level - 1);
            is_alone &= frames.is_last_holder(table);
        }
        let (size, told) = (span(level), span(level.max(2)));
        let end = ((pages.start / told + 1) * told).min(pages.end);
        for page in (pages.start..end).step_by(size as usize) {
            if let View::Page { frame, .. } = view(table, page, level) {
                let here = size.min(end - page);
                let is_own = if level == 1 { frames.is_exclusive(frame) } else { frames.is_exclusive_large(frame.huge_frame()) };
                count.resident += here;
                count.own += if is_alone && is_own { here } else { 0 };
            }
        }
        end
    }

    /// Clones the tree: another handle on the same memory, copy-on-write on both sides. Both are sealed, and a sealed tree owns
    /// nothing: a write copies the top first. O(1).
    pub fn clone_tree(&mut self, frames: &mut Frames) -> Tree {
        if let Some(top) = self.top {
            frames.hold(top);
            if !self.sealed {
                self.sealed = true;
                self.version = frames.next_number();
            }
        }
        // A sealed tree has no table of its own that a CPU could know.
        self.is_shown.set(false);
        Tree { top: self.top, sealed: self.sealed, version: frames.next_number(), is_shown: Cell::new(false) }
    }

    /// Releases the tree, in steps that [`Frames::reap`] works through.
    pub fn release(self, frames: &mut Frames) {
        if let Some(top) = self.top {
            frames.discard(Garbage::Table(top, TOP));
        }
    }
}
