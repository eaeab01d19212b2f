// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks that the CPU has accessed, by the accessed bits of their entries.
//!
//! Entries usually have this bit from the start, which spares the CPU setting it. While [accesses are
//! tracked](Frames::begin_access_tracking), new entries of blocks come without it.

use super::entry::{DecodedEntry, Entry};
use super::handle::Tree;
use super::level::{TOP, index, span};
use crate::memory::frames::Frames;
use pando_machine::{EntryIndex, FrameId};

impl Frames {
    /// Records the block that an entry of a last-level table maps, if the CPU has accessed it. `true`: it has.
    pub(super) fn note_accessed_entry(&mut self, entry: Entry) -> bool {
        match entry.decode(1) {
            DecodedEntry::Page { frame, .. } if entry.is_accessed() => self.note_accessed_frame(frame),
            _ => false,
        }
    }

    /// Records the blocks that a last-level table maps and the CPU has accessed. `true`: there are some. O(1) while accesses are not
    /// tracked.
    pub(super) fn note_accessed_entries(&mut self, table: FrameId) -> bool {
        if !self.tracks_accesses() {
            return false;
        }
        let mut is_accessed = false;
        for entry in self.arena().load_table(table) {
            is_accessed |= self.note_accessed_entry(Entry(entry));
        }
        is_accessed
    }
}

impl Tree {
    /// Records the blocks that the CPU has accessed through this tree. Returns the first pages of the tables with such blocks. Examines at
    /// most `budget` tables, and takes them from it.
    pub(in crate::memory) fn note_accessed(&self, frames: &mut Frames, budget: &mut u64) -> Vec<u64> {
        let (mut page, mut tables) = (0, Vec::new());
        while self.find_blocks(frames, &mut page, budget) {
            if let Some(table) = self.last_level_table(frames, page)
                && frames.note_accessed_entries(table)
            {
                tables.push(page);
            }
            page += span(2);
        }
        tables
    }

    /// The table that contains the entry of a page, if there is one.
    fn last_level_table(&self, frames: &Frames, page: u64) -> Option<FrameId> {
        let mut table = self.top?;
        for level in (2..=TOP).rev() {
            let entry: EntryIndex = index(page, level);
            let DecodedEntry::Table { table: below, .. } = Entry(frames.arena().load(table, entry)).decode(level) else { return None };
            table = below;
        }
        Some(table)
    }
}
