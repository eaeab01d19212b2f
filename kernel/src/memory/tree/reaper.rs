// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reaper: releases the tables and pages of trees in bounded steps.

use super::entry::{DecodedEntry, Entry};
use crate::memory::frames::{Frames, Garbage};

impl Frames {
    /// Releases up to `pieces` tables or large pages of the garbage; `true` once nothing is left. Each frees at most 512 frames.
    pub fn reap(&mut self, pieces: usize) -> bool {
        for _ in 0..pieces {
            match self.next_garbage() {
                None => return true,
                Some(Garbage::Large(huge_frame)) => self.release_large(huge_frame),
                Some(Garbage::Table(table, level)) => {
                    if self.drop_table(table) {
                        if level == 1 {
                            self.note_accessed_entries(table);
                        }
                        for entry in self.arena().load_table(table) {
                            self.release_decoded(Entry(entry).decode(level), level);
                        }
                        self.retire(table);
                    }
                }
            }
        }
        !self.has_garbage()
    }

    /// Adds a holder to the table or page of an entry in a table of `level`.
    pub(in crate::memory) fn hold_decoded(&mut self, decoded: DecodedEntry, level: u8) {
        match decoded {
            DecodedEntry::Table { table, .. } => self.hold(table),
            DecodedEntry::Page { frame, .. } if level == 1 => self.hold(frame),
            DecodedEntry::Page { frame, .. } => self.hold_large(frame.huge_frame()),
            DecodedEntry::Empty | DecodedEntry::Lazy { .. } | DecodedEntry::Block { .. } | DecodedEntry::Taken { .. } => {}
        }
    }

    /// Releases the page or table of an entry in a table of `level`: a 4 KiB page at once, anything larger in steps.
    pub(in crate::memory) fn release_decoded(&mut self, decoded: DecodedEntry, level: u8) {
        match decoded {
            DecodedEntry::Table { table, .. } => self.discard(Garbage::Table(table, level - 1)),
            DecodedEntry::Page { frame, .. } if level == 1 => self.release(frame),
            DecodedEntry::Page { frame, .. } => self.discard(Garbage::Large(frame.huge_frame())),
            DecodedEntry::Empty | DecodedEntry::Lazy { .. } | DecodedEntry::Block { .. } | DecodedEntry::Taken { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::frames::Frames;
    use crate::memory::rules::OmittedRules;
    use crate::memory::tree::entry::Entry;
    use crate::memory::tree::handle::Tree;
    use pando_abi::Permissions;
    use pando_machine::sim::{Sim, SimConfig};
    use pando_machine::{Machine, PageCount};
    use std::sync::Arc;

    #[test]
    fn an_account_tells_tables_from_pages_from_birth_to_flush() {
        let machine = Sim::new(SimConfig { arena: PageCount(2048), ..SimConfig::default() }).expect("a small machine");
        let mut frames = Frames::new(machine as Arc<dyn Machine>, OmittedRules::NONE, PageCount(0));
        let account = frames.open_account(PageCount(100), None);
        let counts = |frames: &Frames| {
            let usage = frames.usage(account);
            (usage.used.0, usage.tables.0, usage.retired.0)
        };
        let mut tree = Tree::default();
        tree.replace(&mut frames, account, 0..2, Entry::lazy(Permissions::READ_WRITE, false)).expect("room");
        tree.populate(&mut frames, account, 0..2, true).expect("room");
        assert_eq!(counts(&frames), (5, 3, 0), "a path of three tables and two pages");
        tree.release(&mut frames);
        while !frames.reap(1) {}
        assert_eq!(counts(&frames), (3, 0, 3), "the pages are free, the tables wait");
        assert_eq!(frames.tables_since_flush(), 3);
        let tables = frames.begin_flush();
        assert_eq!(frames.tables_since_flush(), 0);
        frames.end_flush(tables, &Ok(()));
        assert_eq!(counts(&frames), (0, 0, 0));
    }
}
