// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of an edit: fresh ones, and copies of shared ones.

use crate::memory::frames::{AccountId, Frames};
use crate::memory::tree::entry::{DecodedEntry, Entry};
use crate::memory::tree::level::{TOP, span};
use pando_machine::{EntryIndex, FrameId};

/// Tables that an edit within one entry of level 2 can copy or make.
pub(in crate::memory) const PATH_TABLES: u64 = TOP as u64;

/// An edit in progress.
pub(super) struct Edit<'a> {
    pub(super) frames: &'a mut Frames,
    /// The account that pays for new tables and pages.
    pub(super) account: AccountId,
    /// Whether no root has mapped the tree: then no CPU knows any of its own tables.
    pub(super) is_unmapped: bool,
    /// Tables that the edit has made, or earlier ones since the cell was last entered. No CPU knows them.
    pub(super) fresh: Vec<FrameId>,
    /// The shared page that the answer to a write fault has replaced by a copy. The edit still holds it.
    pub(super) replaced: Option<FrameId>,
}

impl Edit<'_> {
    /// A fresh table with arbitrary content.
    pub(super) fn fresh_table(&mut self) -> FrameId {
        let table = self.frames.allocate_table(self.account, false).expect("the operation has reserved it");
        self.fresh.push(table);
        table
    }

    /// A fresh table of the next level, equivalent to a non-present `entry` of `level`.
    pub(super) fn table_of(&mut self, entry: Entry, level: u8) -> FrameId {
        let table = self.fresh_table();
        for position in 0..512 {
            let part = entry.offset(position * span(level - 1));
            self.frames.arena().store(table, EntryIndex::new(position as usize), part.0);
        }
        table
    }

    /// A fresh table of the next level, equivalent to an `entry` of `level` that links to no table. Splits a large page.
    pub(super) fn split(&mut self, entry: Entry, level: u8) -> FrameId {
        let DecodedEntry::Page { frame, permissions, .. } = entry.decode(level) else { return self.table_of(entry, level) };
        let huge_frame = frame.huge_frame();
        let table = self.fresh_table();
        self.frames.split(huge_frame);
        for (position, part) in huge_frame.frames().enumerate() {
            let is_exclusive = self.frames.is_exclusive(part);
            self.frames.arena().store(table, EntryIndex::new(position), Entry::page(part, permissions, is_exclusive).0);
        }
        table
    }

    /// A fresh copy of a table that a sealed link reaches, with all its entries sealed. Releases the original. If this was its last
    /// holder, the copy takes over the holds of its entries.
    pub(super) fn copy_shared(&mut self, table: FrameId, level: u8) -> FrameId {
        let copy = self.fresh_table();
        let is_last = self.frames.is_last_holder(table);
        let mut entries = self.frames.arena().load_table(table);
        for entry in entries.iter_mut().filter(|entry| **entry != Entry::EMPTY.0) {
            let old = Entry(*entry);
            if !is_last {
                self.frames.hold_decoded(old.decode(level), level);
            }
            *entry = old.sealed().0;
        }
        self.frames.arena().store_table(copy, &entries);
        if is_last {
            self.frames.retire(table);
        } else {
            self.frames.drop_table(table);
        }
        copy
    }

    /// Moves an own table to a fresh frame and retires the old one (rules 2 and 3).
    pub(super) fn renew_table(&mut self, table: FrameId) -> FrameId {
        let moved = self.fresh_table();
        self.frames.arena().copy(table, moved);
        self.frames.retire(table);
        moved
    }
}
