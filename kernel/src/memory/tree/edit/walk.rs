// SPDX-License-Identifier: MIT OR Apache-2.0
//! The walk of an edit: applies a change to each entry of a range, in place or on a fresh path.

use super::tables::Edit;
use crate::memory::frames::{AccountId, Frames};
use crate::memory::rules::OmittedRules;
use crate::memory::tree::entry::{DecodedEntry, Entry};
use crate::memory::tree::handle::Tree;
use crate::memory::tree::level::{TOP, TREE_PAGES, index, span};
use pando_machine::{EntryIndex, FrameId};
use std::ops::Range;

/// A change of page-table entries.
pub(super) trait EntryChange: Copy {
    /// Whether the tables on the path to a page become fresh although its entry stays the same.
    fn renews_path(self) -> bool {
        false
    }

    /// Whether the change is the answer to a write fault: rule 1 then permits more in place.
    fn is_write_fault(self) -> bool {
        false
    }

    /// The entry that replaces the visited one. Releases the page or table of the old entry, unless the new entry still holds it.
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry;
}

/// An entry that the walk has reached.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// The entry.
    pub(super) old: Entry,
    /// The decoded entry.
    pub(super) decoded: DecodedEntry,
    /// The level of the entry's table.
    pub(super) level: u8,
    /// The pages of the edit that the entry spans.
    pub(super) pages: Range<u64>,
}

impl Visit {
    /// Whether the edit covers all pages that the entry spans.
    pub(super) fn is_whole(&self) -> bool {
        self.pages.end - self.pages.start == span(self.level)
    }
}

impl Tree {
    /// Applies a change to a range of pages. Returns the shared page that the answer to a write fault has replaced and that a CPU may
    /// still read.
    pub(super) fn edit(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>, change: impl EntryChange) -> Option<FrameId> {
        self.edit_each(frames, account, std::iter::once(pages), change)
    }

    /// Applies a change to several ranges of pages.
    pub(super) fn edit_each(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        ranges: impl IntoIterator<Item = Range<u64>>,
        change: impl EntryChange,
    ) -> Option<FrameId> {
        let before = self.link();
        let mut edit = Edit { frames, account, is_unmapped: !self.is_mapped.get(), fresh: self.fresh.take(), replaced: None };
        let mut top = match self.top {
            None => edit.table_of(Entry::EMPTY, TOP + 1),
            Some(top) if self.is_sealed => edit.copy_shared(top, TOP),
            Some(top) => top,
        };
        for pages in ranges {
            debug_assert!(pages.start < pages.end && pages.end <= TREE_PAGES);
            edit.walk(&mut top, TOP, pages, change);
        }
        let Edit { replaced, fresh, .. } = edit;
        self.set_fresh(fresh);
        self.top = Some(top);
        self.is_sealed = false;
        if self.link() != before {
            self.version = frames.next_number();
        }
        replaced
    }
}

impl Edit<'_> {
    /// Changes the entries of `table`, which the edit owns, that cover `pages`. The table moves if a change is not allowed in place.
    fn walk(&mut self, table: &mut FrameId, level: u8, pages: Range<u64>, change: impl EntryChange) {
        let size = span(level);
        let mut page = pages.start;
        while page < pages.end {
            let end = (page / size + 1) * size;
            let position = index(page, level);
            let old = Entry(self.frames.arena().load(*table, position));
            let visit = Visit { old, decoded: old.decode(level), level, pages: page..end.min(pages.end) };
            let new = change.new_entry(self, &visit);
            if new != old || (change.renews_path() && matches!(visit.decoded, DecodedEntry::Page { .. })) {
                self.put(table, position, &visit, new, change);
            }
            page = end;
        }
    }

    /// Continues in the table that the visited entry links to: in `table` if the link owns it, in a fresh copy otherwise.
    pub(super) fn descend(&mut self, visit: &Visit, (table, is_owned): (FrameId, bool), change: impl EntryChange) -> Entry {
        let below = if is_owned { table } else { self.copy_shared(table, visit.level - 1) };
        self.walk_below(visit, below, change)
    }

    /// Continues in a fresh table that is equivalent to the visited entry, which links to no table.
    pub(super) fn descend_into_split(&mut self, visit: &Visit, change: impl EntryChange) -> Entry {
        let below = self.split(visit.old, visit.level);
        self.walk_below(visit, below, change)
    }

    /// Changes the entries of `below`, and returns the link to it.
    fn walk_below(&mut self, visit: &Visit, mut below: FrameId, change: impl EntryChange) -> Entry {
        self.walk(&mut below, visit.level - 1, visit.pages.clone(), change);
        Entry::table(below, true)
    }

    /// Stores an entry in a table: in place if rule 1 allows it, in a fresh table otherwise (rule 2).
    fn put(&mut self, table: &mut FrameId, position: EntryIndex, visit: &Visit, new: Entry, change: impl EntryChange) {
        let rules = self.frames.rules();
        let is_unlimited = rules.omits(OmittedRules::WITHOUT_IN_PLACE_LIMITS) && !matches!(visit.decoded, DecodedEntry::Table { .. });
        let is_unknown = self.is_unmapped || self.fresh.contains(table);
        let in_place = is_unknown || is_unlimited || may_change_in_place(visit, new, change);
        if !in_place && !rules.omits(OmittedRules::WITHOUT_FRESH_PATHS) {
            *table = self.renew_table(*table);
        }
        self.frames.arena().store(*table, position, new.0);
    }
}

/// Rule 1. A present link never changes in place, not even to become writable: machines cache links, and re-read only leaves when
/// they fault.
fn may_change_in_place(visit: &Visit, new: Entry, change: impl EntryChange) -> bool {
    let Visit { old, decoded, level, .. } = visit;
    if !old.is_present() {
        return true;
    }
    let are_leaves = matches!((*decoded, new.decode(*level)), (DecodedEntry::Page { .. }, DecodedEntry::Page { .. }));
    are_leaves && change.is_write_fault() && (new.only_adds_write(*old) || new.only_changes_frame(*old))
}
