// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of pages that a clone of a template, or a clone of a space, is expected to access.

use super::page_span::PageSpan;
use super::set::SpaceSet;
use super::space::MountSource;
use crate::limits::PREFETCH_STEP;
use crate::memory::frames::{AccountId, Frames, Usage};
use crate::memory::paging::{Access, FaultOutcome, MemoryError};
use crate::memory::prefetch::{CellPage, PageAccess, PrefetchBatch, VirtualPage};
use crate::memory::tree::{PATH_TABLES, span};
use pando_abi::{PAGE_SIZE, SpaceIndex};
use pando_machine::PageCount;
use std::collections::BTreeSet;

/// Number of frames that may be spent on predictions: up to three quarters of the quota, and all but a sixty-fourth of the machine.
fn room(frames: &Frames, account: AccountId) -> PageCount {
    let Usage { quota, used, .. } = frames.tightest(account);
    let reserve = u64::from(frames.arena().frames()) / 64;
    PageCount((quota.0 / 4 * 3).saturating_sub(used.0).min(frames.free().0.saturating_sub(reserve)))
}

/// Number of frames that may be spent on clusters: as many as the cell's use is below a quarter of its quota, and all but an eighth of the
/// machine. No trace shows that the cell writes these pages. Copies that it never writes waste its memory, at most that quarter.
fn cluster_room(frames: &Frames, account: AccountId) -> PageCount {
    let Usage { quota, used, .. } = frames.tightest(account);
    let reserve = u64::from(frames.arena().frames()) / 8;
    PageCount((quota.0 / 4).saturating_sub(used.0).min(frames.free().0.saturating_sub(reserve)))
}

impl SpaceSet {
    /// Makes the first of these pages present for reading, so that later clones share them, and removes them from the front.
    ///
    /// # Errors
    /// The very next page is a block that must be read, or there is not enough memory.
    pub(crate) fn read_prefetched(&mut self, frames: &mut Frames, prefetch_set: &mut &[PageAccess]) -> Result<(), MemoryError> {
        let account = self.account();
        for _ in 0..PREFETCH_STEP {
            let Some((PageAccess { page, .. }, rest)) = prefetch_set.split_first() else { break };
            if let Some(tree) = self.tree(SpaceIndex(page.space), page.at.slot as usize)
                && let FaultOutcome::Absent(wanted) = tree.resolve(frames, account, page.at.number, Access::Read)?
            {
                return Err(MemoryError::Absent(wanted));
            }
            *prefetch_set = rest;
        }
        Ok(())
    }

    /// The batch to copy after the running space has written a page.
    pub(crate) fn prefetch_batch_after(&mut self, address: u64) -> Option<PrefetchBatch> {
        let range = self.check(self.current, address & !(PAGE_SIZE - 1), 1).ok()?;
        self.prefetch.after(range.first())
    }

    /// Makes the first pages of a batch exclusive to the cell if they are present, and removes them from the front. A large page is copied
    /// as a whole if most of it is in the batch and there is room. Without [`room`] the whole batch is dropped. O(one step).
    pub(crate) fn copy_prefetched(&mut self, frames: &mut Frames, batch: &mut PrefetchBatch) {
        let (account, accesses) = (self.account(), batch.accesses());
        let room = room(frames, self.account()).0;
        let Some(first) = accesses.first().copied() else { return };
        let mut parts = accesses.chunk_by(|one, next| one.page.large() == next.page.large());
        let mut piece = parts.next().unwrap_or_default().len();
        let is_copied = self.tree(SpaceIndex(first.page.space), first.page.at.slot as usize).is_some_and(|tree| {
            let is_large =
                |part: &[PageAccess]| part.len() as u64 * 2 >= span(2) && tree.has_writable_large_page(frames, part[0].page.at.number);
            if is_large(&accesses[..piece]) && room >= span(2) + PATH_TABLES {
                return tree.unshare_large(frames, account, first.page.at.number).is_ok();
            }
            let is_same_tree = |page: CellPage| (page.space, page.at.slot) == (first.page.space, first.page.at.slot);
            let mut needed = piece as u64 + PATH_TABLES;
            for part in parts.take_while(|part| is_same_tree(part[0].page) && !is_large(part)) {
                if piece + part.len() > PREFETCH_STEP {
                    break;
                }
                (piece, needed) = (piece + part.len(), needed + part.len() as u64 + PATH_TABLES);
            }
            let pages: Vec<u64> = accesses[..piece].iter().map(|access| access.page.at.number).collect();
            needed <= room && tree.unshare_each(frames, account, &pages).is_ok()
        });
        batch.advance(if is_copied { piece } else { accesses.len() });
    }

    /// Copies the shared page of a write fault together with those around it, if faults are dense there and there is [`cluster_room`].
    /// `false`: nothing has changed, and the page itself must be copied. During training it is always `false`, because each page of a
    /// trace comes from a fault.
    pub(super) fn copy_cluster(&mut self, frames: &mut Frames, page: &PageSpan) -> bool {
        if self.training_trace.is_some() {
            return false;
        }
        let cluster = self.clusters.after_fault(page.first());
        let (account, pages) = (self.account(), cluster.end - cluster.start);
        if pages == 1 || pages + PATH_TABLES > cluster_room(frames, account).0 {
            return false;
        }
        self.tree(page.space, page.slot).is_some_and(|tree| tree.unshare_cluster(frames, account, cluster).is_ok())
    }

    /// Makes pages exclusive to a space, if there is [`room`] for all.
    pub(super) fn unshare_each(&mut self, frames: &mut Frames, index: SpaceIndex, pages: &BTreeSet<VirtualPage>) {
        let account = self.account();
        if pages.len() as u64 * (PATH_TABLES + 1) > room(frames, account).0 {
            return;
        }
        let Ok(space) = self.space(index) else { return };
        for mount in &mut space.mounts {
            let MountSource::Private(tree) = &mut mount.source else { continue };
            let pages: Vec<u64> = pages.iter().filter(|page| page.slot as usize == mount.slot).map(|page| page.number).collect();
            if !pages.is_empty() && tree.unshare_each(frames, account, &pages).is_err() {
                return;
            }
        }
    }
}
