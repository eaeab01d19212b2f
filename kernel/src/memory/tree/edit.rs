// SPDX-License-Identifier: MIT OR Apache-2.0
//! Edits of a tree: implements rules 1 and 2 of the page-table discipline.
//!
//! An edit walks down the tables of a range. On the way down it copies tables that it does not own. On the way up, a change that
//! rule 1 forbids in place moves the table to a fresh frame; since that changes the entry above, the path up to the root becomes
//! fresh. Every table is copied at most once: afterwards it is *fresh*, unknown to any CPU, and may be written freely. So may all
//! own tables of a tree that no root has shown.
//!
//! Callers reserve the frames that an edit can need ([`Frames::ensure`]), so it never stops half way.

use super::entry::{Entry, View};
use super::handle::{Lookup, TOP, TREE_PAGES, Tree, index, span};
use crate::memory::block::Block;
use crate::memory::frames::account::AccountId;
use crate::memory::frames::frame_table::{Frames, Shortage};
use crate::memory::rules::Rules;
use pando_abi::Permissions;
use pando_machine::{EntryIndex, FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame};
use std::ops::Range;

/// Tables that an edit can copy at the edges of a range: one at the top, two at each level below.
const EDGE_TABLES: u64 = 5;
/// Tables that an edit within one entry of level 2 can copy or make.
pub(in crate::memory) const PATH_TABLES: u64 = TOP as u64;

/// New content of a range: nothing, lazy memory, or consecutive blocks of a disk.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The first page, and its entry.
    first: (u64, Entry),
}

impl Run {
    /// The entry that begins at `page`.
    fn at(self, page: u64) -> Entry {
        self.first.1.further(page - self.first.0)
    }
}

/// The change that an edit makes to a range.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Stores the entries of a run, at the highest level that fits.
    Set(Run),
    /// Changes the permissions of mapped pages.
    Protect(Permissions),
    /// Makes pages present; for a write fault also the tree's own.
    Touch { write: bool },
    /// Makes blocks present that are in memory, shared; leaves all other entries.
    Reveal,
    /// Replaces the registry's pages by block entries.
    Forget,
    /// Moves the path to a page into fresh tables and changes nothing.
    Renew,
    /// Makes pages present and the tree's own, regardless of their permissions: the kernel is about to write.
    Own,
}

/// The state of an edit.
struct Edit<'a> {
    frames: &'a mut Frames,
    account: AccountId,
    /// Whether no CPU knows any of the tree's own tables yet.
    is_unseen: bool,
    /// Tables that no CPU knows yet.
    fresh: Vec<FrameId>,
    /// The shared page that a write fault has replaced by a copy; still held.
    replaced: Option<FrameId>,
}

impl Tree {
    /// Stores a non-present entry for `pages`: lazy memory, blocks of which it names the first, or nothing. Releases the earlier
    /// content. Bounded: a few tables, whatever the range.
    ///
    /// # Errors
    /// Not enough memory for the tables; nothing has changed.
    pub fn set(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>, entry: Entry) -> Result<(), Shortage> {
        if self.top.is_none() && entry == Entry::EMPTY {
            return Ok(());
        }
        frames.ensure(account, EDGE_TABLES)?;
        let run = Run { first: (pages.start, entry) };
        self.edit(frames, account, pages, Change::Set(run));
        Ok(())
    }

    /// Sets the permissions of the mapped pages in `pages`, which must lie within one large page's span.
    ///
    /// # Errors
    /// Not enough memory for the tables; nothing has changed.
    pub fn protect(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        pages: Range<u64>,
        permissions: Permissions,
    ) -> Result<(), Shortage> {
        let found = self.find(frames, pages.start);
        if found.level > 1 && found.view == View::Empty {
            return Ok(());
        }
        frames.ensure(account, PATH_TABLES)?;
        self.edit(frames, account, pages, Change::Protect(permissions));
        Ok(())
    }

    /// Makes lazy memory in `pages` present, blocks if they are in memory, and for a `write` the tree's own. The pages must lie
    /// within one large page's span. Large lazy memory becomes a 2 MiB page if a huge frame is free.
    ///
    /// If a copy has replaced a shared page, that page is returned, and the caller takes over its hold: a CPU may still read the
    /// page until the write is confirmed.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn touch(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>, write: bool) -> Result<Option<FrameId>, Shortage> {
        frames.ensure(account, PATH_TABLES + (pages.end - pages.start))?;
        Ok(self.edit(frames, account, pages, Change::Touch { write }))
    }

    /// Makes the blocks in `pages` present that are in memory; the pages must lie within one large page's span.
    ///
    /// # Errors
    /// Not enough memory for the tables; nothing has changed.
    pub(in crate::memory) fn reveal(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES)?;
        self.edit(frames, account, pages, Change::Reveal);
        Ok(())
    }

    /// Makes `page` present and this tree's own.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub(in crate::memory) fn own(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES + 1)?;
        self.edit(frames, account, page..page + 1, Change::Own);
        Ok(())
    }

    /// Makes each of `pages` this tree's own that may be written and is present, or is lazy but not large. O(pages).
    ///
    /// # Errors
    /// There may not be enough memory for all; nothing has changed.
    pub(in crate::memory) fn own_each(&mut self, frames: &mut Frames, account: AccountId, pages: &[u64]) -> Result<(), Shortage> {
        let is_there = |page: &&u64| match self.find(frames, **page) {
            Lookup { view: View::Page { permissions, writable, .. }, owned, .. } => permissions.writable() && !(owned && writable),
            Lookup { view: View::Lazy { permissions, large: false }, .. } => permissions.writable(),
            _ => false,
        };
        let pages: Vec<Range<u64>> = pages.iter().filter(is_there).map(|page| *page..page + 1).collect();
        if !pages.is_empty() {
            frames.ensure(account, pages.len() as u64 * (PATH_TABLES + 1))?;
            self.edit_each(frames, account, pages, Change::Own);
        }
        Ok(())
    }

    /// Whether `page` is part of a large page that may be written, present or lazy.
    pub(in crate::memory) fn has_large(&self, frames: &Frames, page: u64) -> bool {
        match self.find(frames, page) {
            Lookup { view: View::Page { permissions, .. }, level: 2, .. }
            | Lookup { view: View::Lazy { permissions, large: true }, .. } => permissions.writable(),
            _ => false,
        }
    }

    /// Makes the large page that contains `page` this tree's own, as a whole if there is room for it.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub(in crate::memory) fn own_large(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES + span(2))?;
        let start = page - page % span(2);
        self.edit(frames, account, start..start + span(2), Change::Own);
        Ok(())
    }

    /// Replaces the registry's pages in `pages` by block entries. The pages must lie within one entry of the top table, and begin
    /// and end at large-page boundaries.
    ///
    /// # Errors
    /// Not enough memory for the tables; nothing has changed.
    pub(in crate::memory) fn forget(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES - 1 + (pages.end - pages.start).div_ceil(span(2)))?;
        self.edit(frames, account, pages, Change::Forget);
        Ok(())
    }

    /// Moves the path to `page` into fresh tables, which no CPU has seen.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn renew(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES)?;
        self.edit(frames, account, page..page + 1, Change::Renew);
        Ok(())
    }

    /// Makes the change. Returns a page that a copy has replaced and that a CPU may still read.
    fn edit(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>, change: Change) -> Option<FrameId> {
        self.edit_each(frames, account, [pages], change)
    }

    /// Makes the change in several ranges.
    fn edit_each(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        ranges: impl IntoIterator<Item = Range<u64>>,
        change: Change,
    ) -> Option<FrameId> {
        let before = self.link();
        let mut edit = Edit { frames, account, is_unseen: !self.is_shown.get(), fresh: Vec::new(), replaced: None };
        let mut top = match self.top {
            None => edit.table_of(Entry::EMPTY, TOP + 1),
            Some(top) if self.sealed => edit.copy_shared(top, TOP),
            Some(top) => top,
        };
        for pages in ranges {
            debug_assert!(pages.start < pages.end && pages.end <= TREE_PAGES);
            edit.walk(&mut top, TOP, pages, change);
        }
        let replaced = edit.replaced;
        self.top = Some(top);
        self.sealed = false;
        if self.link() != before {
            self.version = frames.next_number();
        }
        replaced
    }
}

impl Edit<'_> {
    /// Changes the entries of `table`, which the edit owns, that cover `pages`. The table moves if the change is not allowed in
    /// place.
    fn walk(&mut self, table: &mut FrameId, level: u8, pages: Range<u64>, change: Change) {
        let size = span(level);
        let mut page = pages.start;
        while page < pages.end {
            let end = (page / size + 1) * size;
            let part = page..end.min(pages.end);
            let position = index(page, level);
            let old = Entry(self.frames.arena().load(*table, position));
            let whole = part.end - part.start == size;
            let new = self.changed(old, level, part, whole, change);
            if new != old || matches!((change, new.view(level)), (Change::Renew, View::Page { .. })) {
                self.put(table, position, [old, new], level, change);
            }
            page = end;
        }
    }

    /// The entry that replaces `old`. Releases the page or table that `old` held, unless the new entry still holds it.
    fn changed(&mut self, old: Entry, level: u8, part: Range<u64>, whole: bool, change: Change) -> Entry {
        let view = old.view(level);
        match (change, view) {
            (Change::Set(run), _) if old.further(part.start % span(level)) == run.at(part.start) => old,
            (Change::Set(run), _) if whole => {
                self.frames.release_view(view, level);
                run.at(part.start)
            }
            (Change::Forget, View::Table { table, .. }) if level == 2 && !self.frames.maps_blocks(table) => old,
            (Change::Forget, View::Table { table, .. })
                if level == 2
                    && let Some(folded_entry) = self.frames.folded_entry(table) =>
            {
                self.frames.release_view(view, level);
                folded_entry
            }
            (_, View::Table { table, owned }) => {
                let below = if owned { table } else { self.copy_shared(table, level - 1) };
                self.descend(below, level, part, change)
            }
            (Change::Set(_), _) => self.expanded(old, level, part, change),
            (Change::Forget, View::Page { frame, .. })
                if level == 1
                    && let Some(block) = self.frames.forgotten(old) =>
            {
                self.frames.release(frame);
                block
            }
            (_, View::Empty) | (Change::Renew | Change::Forget, _) | (Change::Reveal, View::Lazy { .. } | View::Page { .. }) => old,
            (Change::Protect(permissions), View::Lazy { large, .. }) if whole => Entry::lazy(permissions, large),
            (Change::Protect(permissions), View::Page { frame, .. }) if whole => self.page(frame, level, permissions),
            (Change::Protect(permissions), View::Block { block, .. }) if whole => Entry::block(block, permissions),
            (Change::Protect(_), _) => self.expanded(old, level, part, change),
            (_, View::Block { .. }) if level > 1 => self.expanded(old, level, part, change),
            (_, View::Block { block, permissions }) => self.resident_frame(block, permissions, change).unwrap_or(old),
            (Change::Touch { .. } | Change::Own, View::Lazy { permissions, large }) => {
                self.made(permissions, level, large).unwrap_or_else(|| self.expanded(old, level, part, change))
            }
            (Change::Touch { write: false }, View::Page { .. }) => old,
            (Change::Touch { write: true }, View::Page { permissions, writable, .. }) if writable || !permissions.writable() => old,
            (Change::Own, View::Page { frame, permissions, .. }) if level > 1 && whole => {
                self.copied_large(frame.huge_frame(), permissions).unwrap_or_else(|| self.expanded(old, level, part, change))
            }
            (Change::Touch { .. } | Change::Own, View::Page { frame, permissions, .. }) => {
                self.owned(frame, level, permissions, change).unwrap_or_else(|| self.expanded(old, level, part, change))
            }
        }
    }

    /// Continues in the table that an entry of `level` links to.
    fn descend(&mut self, mut below: FrameId, level: u8, part: Range<u64>, change: Change) -> Entry {
        self.walk(&mut below, level - 1, part, change);
        Entry::table(below, true)
    }

    /// Continues in a fresh table that is equivalent to an entry of `level`.
    fn expanded(&mut self, old: Entry, level: u8, part: Range<u64>, change: Change) -> Entry {
        let below = self.expand(old, level);
        self.descend(below, level, part, change)
    }

    /// Makes a lazy page. `None`: not possible as one page at this level.
    fn made(&mut self, permissions: Permissions, level: u8, large: bool) -> Option<Entry> {
        if level == 1 {
            let frame = self.frames.take(self.account, true).expect("reserved");
            return Some(Entry::page(frame, permissions, true));
        }
        // The path's tables were reserved along with the page; a large page must leave room for them.
        let needed = u64::from(FRAMES_PER_HUGE_FRAME) + PATH_TABLES;
        let fits = large && level == 2 && self.frames.ensure(self.account, needed).is_ok();
        let huge_frame = if fits { self.frames.take_large(self.account).ok()? } else { return None };
        Some(Entry::large_page(huge_frame, permissions, true))
    }

    /// The page of a block: the registry's, or a copy for a write. `None`: it is not in memory.
    fn resident_frame(&mut self, block: Block, permissions: Permissions, change: Change) -> Option<Entry> {
        let frame = self.frames.hold_block(block)?;
        let shared = Entry::page(frame, permissions, false);
        match change {
            // No CPU has seen the shared page here.
            Change::Own => self.owned(frame, 1, permissions, Change::Own),
            Change::Touch { write: true } if permissions.writable() => self.owned(frame, 1, permissions, Change::Own),
            _ => Some(shared),
        }
    }

    /// The tree's own copy of a page: the page itself if it has no other holder. `None`: a large page with other holders, which
    /// must be split first.
    fn owned(&mut self, frame: FrameId, level: u8, permissions: Permissions, change: Change) -> Option<Entry> {
        if level > 1 {
            return self.frames.is_exclusive_large(frame.huge_frame()).then(|| Entry::large_page(frame.huge_frame(), permissions, true));
        }
        if self.frames.is_exclusive(frame) {
            return Some(Entry::page(frame, permissions, true));
        }
        let copy = self.frames.take(self.account, false).expect("reserved");
        self.frames.arena().copy(frame, copy);
        let unneeded = if matches!(change, Change::Touch { .. }) { self.replaced.replace(frame) } else { Some(frame) };
        if let Some(frame) = unneeded {
            self.frames.release(frame);
        }
        Some(Entry::page(copy, permissions, true))
    }

    /// The tree's own copy of a large page: the page itself if it has no other holder. `None`: no huge frame is available.
    fn copied_large(&mut self, huge_frame: HugeFrame, permissions: Permissions) -> Option<Entry> {
        if self.frames.is_exclusive_large(huge_frame) {
            return Some(Entry::large_page(huge_frame, permissions, true));
        }
        let copy = self.frames.take_large(self.account).ok()?;
        for (from, to) in huge_frame.frames().zip(copy.frames()) {
            self.frames.arena().copy(from, to);
        }
        let entry = Entry::large_page(huge_frame, permissions, false);
        self.frames.release_view(entry.view(2), 2);
        Some(Entry::large_page(copy, permissions, true))
    }

    /// The page with other permissions; writable at once if it has no other holder.
    fn page(&self, frame: FrameId, level: u8, permissions: Permissions) -> Entry {
        if level == 1 {
            Entry::page(frame, permissions, self.frames.is_exclusive(frame))
        } else {
            Entry::large_page(frame.huge_frame(), permissions, self.frames.is_exclusive_large(frame.huge_frame()))
        }
    }

    /// A table of the next level that is equivalent to an entry of `level`.
    fn expand(&mut self, entry: Entry, level: u8) -> FrameId {
        let View::Page { frame, permissions, .. } = entry.view(level) else { return self.table_of(entry, level) };
        let huge_frame = frame.huge_frame();
        let table = self.take_table();
        self.frames.split(huge_frame);
        for (position, part) in huge_frame.frames().enumerate() {
            let owned = self.frames.is_exclusive(part);
            self.frames.arena().store(table, EntryIndex::new(position), Entry::page(part, permissions, owned).0);
        }
        table
    }

    /// A fresh table that is equivalent to `entry`, of `level` and not present.
    fn table_of(&mut self, entry: Entry, level: u8) -> FrameId {
        let table = self.take_table();
        for position in 0..512 {
            let part = entry.further(position * span(level - 1));
            self.frames.arena().store(table, EntryIndex::new(position as usize), part.0);
        }
        table
    }

    fn take_table(&mut self) -> FrameId {
        let table = self.frames.take_table(self.account, false).expect("reserved");
        self.fresh.push(table);
        table
    }

    /// A fresh copy of a table that a sealed link reaches, with all its entries sealed. Releases the original; if this was its last
    /// holder, the copy takes over the holds of its entries.
    fn copy_shared(&mut self, table: FrameId, level: u8) -> FrameId {
        let copy = self.take_table();
        let last = self.frames.is_last_holder(table);
        let mut entries = self.frames.arena().load_table(table);
        for entry in entries.iter_mut().filter(|entry| **entry != Entry::EMPTY.0) {
            let old = Entry(*entry);
            if !last {
                self.frames.hold_view(old.view(level), level);
            }
            *entry = old.sealed().0;
        }
        self.frames.arena().store_table(copy, &entries);
        if last {
            self.frames.retire(table);
        } else {
            self.frames.drop_table(table);
        }
        copy
    }

    /// Stores an entry in a table: in place if rule 1 allows it, in a fresh table otherwise (rule 2).
    fn put(&mut self, table: &mut FrameId, position: EntryIndex, [old, new]: [Entry; 2], level: u8, change: Change) {
        let rules = self.frames.rules();
        let unlimited = rules.contains_rule(Rules::WITHOUT_LIMITS) && !matches!(old.view(level), View::Table { .. });
        let in_place = self.is_unseen || self.fresh.contains(table) || unlimited || may_change_in_place([old, new], level, change);
        if !in_place && !rules.contains_rule(Rules::WITHOUT_FRESH_PATHS) {
            let moved = self.take_table();
            self.frames.arena().copy(*table, moved);
            self.frames.retire(*table);
            *table = moved;
        }
        self.frames.arena().store(*table, position, new.0);
    }
}

/// Rule 1. A present link never changes in place, not even to become writable: machines cache links, and re-read only leaves when
/// they fault.
fn may_change_in_place([old, new]: [Entry; 2], level: u8, change: Change) -> bool {
    if !old.is_present() {
        return true;
    }
    let leaves = [old, new].iter().all(|entry| matches!(entry.view(level), View::Page { .. }));
    leaves && matches!(change, Change::Touch { write: true }) && (new.only_adds_write(old) || new.only_moves(old))
}
