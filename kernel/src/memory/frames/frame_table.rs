// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame table: the holders and the payer of every frame.
//!
//! The life of a frame:
//! 1. *free*: it has no holder.
//! 2. *allocated* as a page or a table for one holder, and charged to an account.
//! 3. *shared*: it has more holders. A 2 MiB page has a count of its own besides those of its parts: splitting one mapping of it
//!    adds one to each of the 512 parts and takes one from the whole.
//! 4. no holder left: a page is free again at once, a table is *retired* and free after the machine's next flush (rule 3).

use super::account::{AccountId, Accounts, Usage};
use super::allocator::{Allocation, FrameAllocator, HugeAllocation};
use super::block_index::BlockIndex;
use super::file_page::FilePage;
use crate::limits::RECLAIM_BLOCKS;
use crate::memory::rules::OmittedRules;
use pando_machine::{Arena, FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame, Machine, PageCount};
use std::sync::Arc;

/// Why no frame is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// The account has reached its quota.
    #[error("the memory quota is used up")]
    Quota,
    /// The machine has no free frame.
    #[error("the machine has no memory left")]
    Machine,
}

/// A table or large page that loses a holder.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) enum Garbage {
    /// A table of this level.
    Table(FrameId, u8),
    /// A large page.
    Large(HugeFrame),
}

/// All frames of a machine, with the accounts that pay for them.
pub struct Frames {
    pub(super) machine: Arc<dyn Machine>,
    pub(super) allocator: FrameAllocator,
    /// Number of holders of each frame.
    pub(super) holders: Vec<u32>,
    /// Number of holders of each huge frame as one large page.
    large_holders: Vec<u32>,
    /// Account that pays for each frame.
    payers: Vec<u32>,
    pub(super) accounts: Accounts,
    /// Retired tables that wait for a flush.
    pub(super) quarantine: Vec<FrameId>,
    /// Number of tables made since the last flush began.
    pub(super) tables_since_flush: usize,
    /// Holders to be released in steps.
    garbage: Vec<Garbage>,
    counter: u64,
    rules: OmittedRules,
    /// The quotas do not count: other cells need the edit.
    ignores_quotas: bool,
    /// Frames that were filled with pages of the program's file, and these pages.
    pub(super) file_pages: Vec<FilePage>,
    /// Blocks of disks that are in memory.
    pub(super) registry: BlockIndex,
}

impl Frames {
    /// All frames of `machine` except huge frame 0, which the machine uses. `registry`: number of frames that may hold blocks of
    /// disks.
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>, rules: OmittedRules, registry: PageCount) -> Frames {
        let mut accounts = Accounts::default();
        let registry = BlockIndex::new(accounts.open(registry, None));
        let frames = machine.arena().frames() as usize;
        let huge_frames = machine.arena().huge_frames();
        Frames {
            machine,
            allocator: FrameAllocator::new(huge_frames),
            holders: vec![0; frames],
            large_holders: vec![0; huge_frames as usize],
            payers: vec![0; frames],
            accounts,
            quarantine: Vec::new(),
            tables_since_flush: 0,
            garbage: Vec::new(),
            counter: 0,
            rules,
            ignores_quotas: false,
            file_pages: Vec::new(),
            registry,
        }
    }

    /// Physical memory.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        self.machine.arena()
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Arc<dyn Machine> {
        &self.machine
    }

    /// The rules of the page-table discipline that are left out.
    pub(in crate::memory) fn rules(&self) -> OmittedRules {
        self.rules
    }

    /// The next number of a counter: for versions of trees and stamps of roots.
    pub(in crate::memory) fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Number of free frames.
    #[must_use]
    pub fn free(&self) -> PageCount {
        PageCount(self.allocator.free_count())
    }

    /// Number of frames that are not free.
    pub(crate) fn used(&self) -> PageCount {
        PageCount(u64::from(self.arena().frames()).saturating_sub(self.allocator.free_with_withheld()))
    }

    /// Withholds this many frames: they do not count as free, and are not allocated. There may be fewer free ones, until others become
    /// free.
    pub(crate) fn withhold(&mut self, count: PageCount) {
        self.allocator.withhold(count.0);
    }

    /// Frees some idle frames of the registry if fewer frames are free than are withheld. `true`: it has freed some.
    pub(crate) fn reclaim_deficit(&mut self) -> bool {
        let idle = self.registry.idle();
        self.reclaim(self.allocator.deficit().min(RECLAIM_BLOCKS));
        self.registry.idle() < idle
    }

    /// Opens an account with a quota: below `parent`, which then pays as well, or as one of the operator's.
    pub fn open_account(&mut self, quota: PageCount, parent: Option<AccountId>) -> AccountId {
        self.accounts.open(quota, parent)
    }

    /// Changes the quota of an account.
    pub(crate) fn set_quota(&mut self, id: AccountId, quota: PageCount) {
        self.accounts.set_quota(id, quota);
    }

    /// How many cells an account may pay for.
    pub(crate) fn cell_quota(&self, id: AccountId) -> u32 {
        self.accounts.cell_quota(id)
    }

    /// Sets how many cells an account may pay for.
    pub(crate) fn set_cell_quota(&mut self, id: AccountId, cells: u32) {
        self.accounts.set_cell_quota(id, cells);
    }

    /// Charges an account and its ancestors for a cell. `false`: one of them may not have another.
    pub(crate) fn charge_cell(&mut self, id: AccountId) -> bool {
        self.accounts.charge_cell(id)
    }

    /// Discharges an account and its ancestors of a cell.
    pub(crate) fn discharge_cell(&mut self, id: AccountId) {
        self.accounts.discharge_cell(id);
    }

    /// Closes an account: it is forgotten once its last frame is gone.
    pub fn close_account(&mut self, id: AccountId) {
        self.accounts.close(id);
    }

    /// Memory use of the account with the least room among this one and its ancestors.
    pub(in crate::memory) fn tightest(&self, id: AccountId) -> Usage {
        self.accounts.tightest(id)
    }

    /// Memory use of an account.
    #[must_use]
    pub fn usage(&self, id: AccountId) -> Usage {
        self.accounts.usage(id)
    }

    /// Makes sure that `account` and the machine have `count` frames, so that allocations of single frames under the same lock cannot
    /// fail. If the machine has too few, or the host refuses it more, blocks that no cell maps are reclaimed.
    ///
    /// # Errors
    /// The account or the machine has too few.
    pub fn ensure(&mut self, account: AccountId, count: u64) -> Result<(), Shortage> {
        if !self.is_covered(account, count) {
            return Err(Shortage::Quota);
        }
        let lacking = self.allocator.provide(&*self.machine, count);
        if lacking == 0 {
            return Ok(());
        }
        // The deficit that withheld frames have left is large, and is made up for in later steps.
        self.reclaim(lacking.min(count.saturating_add(RECLAIM_BLOCKS)));
        if self.allocator.provide(&*self.machine, count) > 0 { Err(Shortage::Machine) } else { Ok(()) }
    }

    /// Lets an edit take up to `count` frames for an account even if that exceeds its quota or an ancestor's.
    ///
    /// Other cells need such an edit, and the next flush uncharges the tables that the edit replaces. Copies of shared tables
    /// stay charged, and could be as many as the cell has clones of spaces. So an account gets nothing if it, or one of its ancestors,
    /// exceeds its quota without its retired tables.
    ///
    /// # Errors
    /// The machine has too few, or the account or an ancestor exceeds its quota already.
    pub(in crate::memory) fn charge_beyond_quota<T>(
        &mut self,
        account: AccountId,
        count: u64,
        edit: impl FnOnce(&mut Frames) -> T,
    ) -> Result<T, Shortage> {
        if self.accounts.is_exceeded(account) {
            return Err(Shortage::Quota);
        }
        self.ignores_quotas = true;
        let result = self.ensure(account, count).map(|()| edit(self));
        self.ignores_quotas = false;
        result
    }

    /// Whether `count` more frames are within the quotas of an account and its ancestors, or these do not count now.
    fn is_covered(&self, account: AccountId, count: u64) -> bool {
        self.ignores_quotas || self.accounts.covers(account, count)
    }

    /// Whether an account or one of its ancestors has retired tables: a flush will uncharge them.
    #[must_use]
    pub(crate) fn has_retired(&mut self, account: AccountId) -> bool {
        self.accounts.has_retired(account)
    }

    /// Frees up to `count` frames that only the registry holds, the longest idle first.
    pub(in crate::memory) fn reclaim(&mut self, count: u64) {
        for _ in 0..count.min(self.registry.idle()) {
            let Frames { registry, holders, .. } = self;
            let Some(frame) = registry.remove_idle(|frame| holders[frame.0 as usize] == 1) else { return };
            self.release(frame);
        }
    }

    /// Allocates a frame. O(1). It keeps its earlier content unless `zeroed`.
    ///
    /// # Errors
    /// The account or the machine is full.
    pub fn allocate(&mut self, account: AccountId, zeroed: bool) -> Result<FrameId, Shortage> {
        self.ensure(account, 1)?;
        let Allocation { frame, is_fresh } = self.allocator.allocate(&*self.machine).ok_or(Shortage::Machine)?;
        self.accounts.charge(account, 1);
        self.holders[frame.0 as usize] = 1;
        self.payers[frame.0 as usize] = account.0;
        if zeroed && !is_fresh {
            self.arena().zero(frame, 1);
        }
        Ok(frame)
    }

    /// Allocates a frame for a table, counted as one until it is retired.
    ///
    /// # Errors
    /// The account or the machine is full.
    pub(in crate::memory) fn allocate_table(&mut self, account: AccountId, zeroed: bool) -> Result<FrameId, Shortage> {
        let table = self.allocate(account, zeroed)?;
        self.accounts.note_table(account);
        self.tables_since_flush += 1;
        Ok(table)
    }

    /// Allocates a whole huge frame as one large page of zeros.
    ///
    /// # Errors
    /// The account is full, or no whole huge frame is free.
    pub fn allocate_large(&mut self, account: AccountId) -> Result<HugeFrame, Shortage> {
        if !self.is_covered(account, u64::from(FRAMES_PER_HUGE_FRAME)) {
            return Err(Shortage::Quota);
        }
        let HugeAllocation { huge_frame, used } = self.allocator.allocate_huge(&*self.machine).ok_or(Shortage::Machine)?;
        self.large_holders[huge_frame.0 as usize] = 1;
        let first = huge_frame.first().0 as usize;
        self.payers[first..first + FRAMES_PER_HUGE_FRAME as usize].fill(account.0);
        self.accounts.charge(account, u64::from(FRAMES_PER_HUGE_FRAME));
        if used != 0 {
            self.arena().zero(huge_frame.first(), u32::from(used));
        }
        Ok(huge_frame)
    }

    /// Takes out a wholly free huge frame with memory of the host behind it, if there are more than `keep` of them. The caller
    /// gives that memory back without the lock, and then calls [`Frames::end_decommit`].
    pub(crate) fn begin_decommit(&mut self, keep: usize) -> Option<HugeFrame> {
        self.allocator.withdraw(&*self.machine, keep)
    }

    /// Puts back a huge frame that reads zero.
    pub(crate) fn end_decommit(&mut self, huge_frame: HugeFrame) {
        self.allocator.put_back(huge_frame);
    }

    /// Adds a holder to a frame.
    pub(in crate::memory) fn hold(&mut self, frame: FrameId) {
        let holders = &mut self.holders[frame.0 as usize];
        *holders += 1;
        if *holders == 2 && self.is_registered(frame) {
            self.registry.mark_mapped();
        }
    }

    /// Adds a holder to a large page.
    pub(in crate::memory) fn hold_large(&mut self, huge_frame: HugeFrame) {
        self.large_holders[huge_frame.0 as usize] += 1;
    }

    /// Whether the registry holds a frame: only the registry charges that account.
    pub(in crate::memory) fn is_registered(&self, frame: FrameId) -> bool {
        self.payers[frame.0 as usize] == self.registry.account.0
    }

    /// Whether a table, or a page that is no part of a large one, has only one holder.
    pub(in crate::memory) fn is_last_holder(&self, frame: FrameId) -> bool {
        self.holders[frame.0 as usize] == 1
    }

    /// Whether a page has only one holder.
    pub(in crate::memory) fn is_exclusive(&self, frame: FrameId) -> bool {
        self.holders[frame.0 as usize] == 1 && self.large_holders[frame.huge_frame().0 as usize] == 0
    }

    /// Whether a large page has only one holder, and its parts none.
    pub(in crate::memory) fn is_exclusive_large(&self, huge_frame: HugeFrame) -> bool {
        self.large_holders[huge_frame.0 as usize] == 1 && huge_frame.frames().all(|frame| self.holders[frame.0 as usize] == 0)
    }

    /// Removes a holder from a table; `true` if it was the last. The caller then releases the table's entries and retires it.
    pub(in crate::memory) fn drop_table(&mut self, table: FrameId) -> bool {
        let holders = &mut self.holders[table.0 as usize];
        *holders -= 1;
        *holders == 0
    }

    /// Removes the last holder of a table that is retired.
    pub(super) fn clear_holders(&mut self, table: FrameId) {
        self.holders[table.0 as usize] = 0;
    }

    /// Removes a holder from a page, which is free at once if it was the last.
    pub fn release(&mut self, frame: FrameId) {
        self.holders[frame.0 as usize] -= 1;
        match self.holders[frame.0 as usize] {
            0 if self.large_holders[frame.huge_frame().0 as usize] == 0 => self.free_frame(frame),
            1 if self.is_registered(frame) => self.registry.mark_idle(frame),
            _ => {}
        }
    }

    /// Removes a holder from a large page. If it was the last, parts without other holders are free at once.
    pub(in crate::memory) fn release_large(&mut self, huge_frame: HugeFrame) {
        let holders = &mut self.large_holders[huge_frame.0 as usize];
        *holders -= 1;
        if *holders == 0 {
            for frame in huge_frame.frames() {
                if self.holders[frame.0 as usize] == 0 {
                    self.free_frame(frame);
                }
            }
        }
    }

    /// Turns one holder of a large page into one holder of each of its parts.
    pub(in crate::memory) fn split(&mut self, huge_frame: HugeFrame) {
        for frame in huge_frame.frames() {
            self.hold(frame);
        }
        self.release_large(huge_frame);
    }

    /// Whether an account pays for a frame.
    pub(in crate::memory) fn is_paid_by(&self, frame: FrameId, account: AccountId) -> bool {
        self.payer(frame) == account
    }

    /// The account that pays for a frame.
    pub(super) fn payer(&self, frame: FrameId) -> AccountId {
        AccountId(self.payers[frame.0 as usize])
    }

    /// Frees a frame without holders, and uncharges its payer.
    pub(super) fn free_frame(&mut self, frame: FrameId) {
        self.accounts.discharge(self.payer(frame), 1);
        self.allocator.free(frame);
    }

    /// Takes over a holder, to be released in steps.
    pub(in crate::memory) fn discard(&mut self, garbage: Garbage) {
        self.garbage.push(garbage);
    }

    /// The next holder to release.
    pub(in crate::memory) fn next_garbage(&mut self) -> Option<Garbage> {
        self.garbage.pop()
    }

    /// Whether holders are left to be released.
    #[must_use]
    pub fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }
}
