// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages charged to an account: in a clone, those that it has written.

use super::entry::{DecodedEntry, Entry};
use super::handle::Tree;
use super::level::{TOP, TREE_PAGES, index, span};
use crate::memory::frames::{AccountId, Frames};

impl Tree {
    /// Passes the present pages for which this account pays to `note`, from `page` on, and moves `page` on. Tables for which it does
    /// not pay are not examined: they are as they were in the cell that it is a clone of. `true`: all were passed; `false`: `budget`, a
    /// number of entries that do not link to a further table, and of last-level tables, is used up.
    pub(in crate::memory) fn list_charged(
        &self,
        frames: &Frames,
        account: AccountId,
        page: &mut u64,
        budget: &mut u64,
        note: &mut dyn FnMut(u64),
    ) -> bool {
        let Some(top) = self.top.filter(|top| frames.is_paid_by(*top, account)) else { return true };
        while *page < TREE_PAGES {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let (mut table, mut level) = (top, TOP);
            while level > 1
                && let DecodedEntry::Table { table: below, .. } = Entry(frames.arena().load(table, index(*page, level))).decode(level)
                && frames.is_paid_by(below, account)
            {
                (table, level) = (below, level - 1);
            }
            let size = span(level.max(2));
            let start = *page / size * size;
            if level == 1 {
                for (page, entry) in (start..).zip(frames.arena().load_table(table)) {
                    if let DecodedEntry::Page { frame, .. } = Entry(entry).decode(1)
                        && frames.is_paid_by(frame, account)
                    {
                        note(page);
                    }
                }
            } else if let DecodedEntry::Page { frame, .. } = Entry(frames.arena().load(table, index(*page, level))).decode(level)
                && frames.is_paid_by(frame, account)
            {
                (start..start + size).for_each(&mut *note);
            }
            *page = start + size;
        }
        true
    }
}
