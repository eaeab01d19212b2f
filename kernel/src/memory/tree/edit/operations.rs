// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations that edit a tree. Each reserves the frames that its edit can need.

use super::changes::{BuildTaken, Collapse, Evict, Give, MapResident, Populate, Protect, RenewPath, Replace, Take, Unshare};
use super::tables::PATH_TABLES;
use crate::memory::frames::{AccountId, Frames, Shortage};
use crate::memory::swapped_page::SwapNumber;
use crate::memory::tree::entry::{DecodedEntry, Entry};
use crate::memory::tree::handle::Tree;
use crate::memory::tree::level::span;
use crate::memory::tree::lookup::Lookup;
use pando_abi::Permissions;
use pando_machine::FrameId;
use std::ops::Range;

/// Tables that an edit can copy at the edges of a range: one at the top, two at each level below.
const EDGE_TABLES: u64 = 5;

impl Tree {
    /// Replaces the content of `pages` by a non-present entry: lazy memory, blocks of which it names the first, or nothing. Releases
    /// the earlier content. Bounded: a few tables, whatever the range.
    ///
    /// # Errors
    /// Not enough memory for the tables; nothing has changed.
    pub fn replace(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>, entry: Entry) -> Result<(), Shortage> {
        if self.top.is_none() && entry == Entry::EMPTY {
            return Ok(());
        }
        frames.ensure(account, EDGE_TABLES)?;
        let change = Replace { start: pages.start, first: entry };
        self.edit(frames, account, pages, change);
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
        if found.level > 1 && found.decoded == DecodedEntry::Empty {
            return Ok(());
        }
        frames.ensure(account, PATH_TABLES)?;
        self.edit(frames, account, pages, Protect(permissions));
        Ok(())
    }

    /// Makes lazy memory in `pages` present, blocks if they are in memory, and for a `write` exclusive to the tree. The pages must lie
    /// within one large page's span. Large lazy memory becomes a 2 MiB page if a huge frame is free.
    ///
    /// If a copy has replaced a shared page, that page is returned, and the caller takes over its hold: a CPU may still read the
    /// page until the write is confirmed.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn populate(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        pages: Range<u64>,
        write: bool,
    ) -> Result<Option<FrameId>, Shortage> {
        frames.ensure(account, PATH_TABLES + (pages.end - pages.start))?;
        Ok(self.edit(frames, account, pages, Populate { write }))
    }

    /// Makes the blocks in `pages` present that are in memory; the pages must lie within one large page's span.
    ///
    /// # Errors
    /// Not enough memory for the tables; nothing has changed.
    pub(in crate::memory) fn map_resident(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES)?;
        self.edit(frames, account, pages, MapResident);
        Ok(())
    }

    /// Makes `page` present and exclusive to this tree.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub(in crate::memory) fn unshare(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES + 1)?;
        self.edit(frames, account, page..page + 1, Unshare);
        Ok(())
    }

    /// Whether a write to `page` copies it: it may be written, and is a present page that has or may have other holders, or a block that
    /// is in memory.
    pub(in crate::memory) fn is_copied_on_write(&self, frames: &Frames, page: u64) -> bool {
        let Lookup { decoded, is_owned, .. } = self.find(frames, page);
        match decoded {
            DecodedEntry::Page { permissions, writable, .. } => permissions.writable() && !(is_owned && writable),
            DecodedEntry::Block { permissions, block } => permissions.writable() && frames.frame_of(block).is_some(),
            _ => false,
        }
    }

    /// Makes those of `pages` exclusive to this tree that may be written and are shared pages or blocks in memory. The pages must lie
    /// within one large page's span. A whole span of 4 KiB pages with the same permissions is collapsed into a large page, if a huge frame
    /// is free.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub(in crate::memory) fn unshare_cluster(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        pages: Range<u64>,
    ) -> Result<(), Shortage> {
        if pages.end - pages.start == span(2) && self.has_writable_large_page(frames, pages.start) {
            return self.unshare_large(frames, account, pages.start);
        }
        if self.collapse(frames, account, &pages) {
            return Ok(());
        }
        let shared = pages.filter(|page| self.is_copied_on_write(frames, *page)).map(|page| page..page + 1);
        let shared: Vec<Range<u64>> = shared.collect();
        frames.ensure(account, PATH_TABLES + shared.len() as u64)?;
        self.edit_each(frames, account, shared, Unshare);
        Ok(())
    }

    /// Collapses a whole span of writable 4 KiB pages into a large page: copies them all, also those that are exclusive already. `false`:
    /// nothing has changed, because they are not all present with the same permissions, or there is no room.
    fn collapse(&mut self, frames: &mut Frames, account: AccountId, pages: &Range<u64>) -> bool {
        if pages.end - pages.start != span(2) || frames.ensure(account, PATH_TABLES + span(2)).is_err() {
            return false;
        }
        let mut common = None;
        let source = |page: u64| match self.find(frames, page) {
            Lookup { decoded: DecodedEntry::Page { frame, permissions, .. }, level: 1, .. }
                if permissions.writable() && *common.get_or_insert(permissions) == permissions =>
            {
                Some(frame)
            }
            _ => None,
        };
        let Some(sources) = pages.clone().map(source).collect::<Option<Vec<FrameId>>>() else { return false };
        let Some(permissions) = common else { return false };
        let Ok(huge_frame) = frames.allocate_large(account) else { return false };
        for (from, to) in sources.into_iter().zip(huge_frame.frames()) {
            frames.arena().copy(from, to);
        }
        self.edit(frames, account, pages.clone(), Collapse { huge_frame, permissions });
        true
    }

    /// Makes those of `pages` exclusive to this tree that may be written and are present, or lazy but not large. O(pages).
    ///
    /// # Errors
    /// There may not be enough memory for all; nothing has changed.
    pub(in crate::memory) fn unshare_each(&mut self, frames: &mut Frames, account: AccountId, pages: &[u64]) -> Result<(), Shortage> {
        let would_fault = |page: &&u64| match self.find(frames, **page) {
            Lookup { decoded: DecodedEntry::Page { permissions, writable, .. }, is_owned, .. } => {
                permissions.writable() && !(is_owned && writable)
            }
            Lookup { decoded: DecodedEntry::Lazy { permissions, large: false }, .. } => permissions.writable(),
            _ => false,
        };
        let pages: Vec<Range<u64>> = pages.iter().filter(would_fault).map(|page| *page..page + 1).collect();
        if !pages.is_empty() {
            frames.ensure(account, pages.len() as u64 * (PATH_TABLES + 1))?;
            self.edit_each(frames, account, pages, Unshare);
        }
        Ok(())
    }

    /// Whether `page` is part of a large page that may be written, present or lazy.
    pub(in crate::memory) fn has_writable_large_page(&self, frames: &Frames, page: u64) -> bool {
        match self.find(frames, page) {
            Lookup { decoded: DecodedEntry::Page { permissions, .. }, level: 2, .. }
            | Lookup { decoded: DecodedEntry::Lazy { permissions, large: true }, .. } => permissions.writable(),
            _ => false,
        }
    }

    /// Makes the large page that contains `page` exclusive to this tree, as a whole if there is room for it.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub(in crate::memory) fn unshare_large(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES + span(2))?;
        let start = page - page % span(2);
        self.edit(frames, account, start..start + span(2), Unshare);
        Ok(())
    }

    /// Replaces the registry's pages in `pages` by the entries of their blocks. The pages must lie within one entry of the top table,
    /// and begin and end at large-page boundaries. The account may be full: its cell must not keep blocks from others.
    ///
    /// # Errors
    /// The machine has not enough memory for the tables, or copies of shared tables have exceeded the quota before; nothing has changed.
    pub(in crate::memory) fn evict(&mut self, frames: &mut Frames, account: AccountId, pages: Range<u64>) -> Result<(), Shortage> {
        let tables = PATH_TABLES - 1 + (pages.end - pages.start).div_ceil(span(2));
        frames.charge_beyond_quota(account, tables, |frames| {
            self.edit(frames, account, pages, Evict);
        })
    }

    /// Replaces the pages from `start` on that are these frames by entries with the numbers from `first` on. The pages must lie within one
    /// large page's span. The caller has reserved [`PATH_TABLES`] frames.
    pub(in crate::memory) fn take(&mut self, frames: &mut Frames, account: AccountId, start: u64, taken: &[FrameId], first: SwapNumber) {
        self.edit(frames, account, start..start + taken.len() as u64, Take { start, taken, first });
    }

    /// Makes those of `pages` present that were taken, with copies of these frames. The pages must lie within one large page's span.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub(in crate::memory) fn give(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        pages: Range<u64>,
        sources: &[Option<FrameId>],
    ) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES + (pages.end - pages.start))?;
        self.edit(frames, account, pages.clone(), Give { start: pages.start, sources });
        Ok(())
    }

    /// Marks pages as taken, with the numbers from `first` on, where nothing is mapped. The pages must lie within one large page's span.
    ///
    /// # Errors
    /// Not enough memory for the tables; nothing has changed.
    pub(in crate::memory) fn build_taken(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        pages: Range<u64>,
        (first, permissions): (SwapNumber, Permissions),
    ) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES)?;
        let change = BuildTaken { start: pages.start, first, permissions };
        self.edit(frames, account, pages, change);
        Ok(())
    }

    /// Moves the path to `page` into fresh tables although the account may be full: its cell waits for memory, and its parent may change
    /// its tables meanwhile.
    ///
    /// # Errors
    /// The machine has not enough memory, or copies of shared tables have exceeded the quota before; nothing has changed.
    pub(in crate::memory) fn renew_path_beyond_quota(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        page: u64,
    ) -> Result<(), Shortage> {
        frames.charge_beyond_quota(account, PATH_TABLES, |frames| {
            self.edit(frames, account, page..page + 1, RenewPath);
        })
    }

    /// Moves the path to `page` into fresh tables, which no CPU has seen.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn renew_path(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), Shortage> {
        frames.ensure(account, PATH_TABLES)?;
        self.edit(frames, account, page..page + 1, RenewPath);
        Ok(())
    }
}
