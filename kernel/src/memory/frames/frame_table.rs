// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames: their accounts, their holders, and the free ones.
//!
//! The life of a frame:
//! 1. *free*: it has no holder.
//! 2. *taken* as a page or a table by one holder, charged to an account.
//! 3. *shared*: it has more holders. A 2 MiB page has a count of its own besides those of its parts: splitting one mapping of it
//!    adds one to each of the 512 parts and takes one from the whole.
//! 4. no holder left: a page is free again at once, a table is *retired* and free after the machine's next flush (rule 3).
//!
//! Frames are handed out densely, lowest first within a huge frame, so that huge frames stay whole for large pages.

use super::account::{AccountId, Accounts, Usage};
use super::block_index::Registry;
use crate::memory::rules::Rules;
use crate::memory::tree::entry::View;
use pando_machine::{Arena, FRAMES_PER_HUGE_FRAME, FrameId, HostError, HugeFrame, Machine, PageCount};
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

/// The state of a huge frame.
#[derive(Clone, Copy, Debug)]
struct HugeFrameState {
    /// A set bit: the frame is free.
    free: [u64; 8],
    free_count: u16,
    /// Frames from here on were never handed out, and so read zero.
    fresh_from: u16,
    /// Number of holders of the huge frame as one large page.
    large: u32,
    /// Whether the list of huge frames with some free frames contains it.
    in_partial: bool,
    /// Whether one of the two lists of wholly free huge frames contains it.
    in_whole: bool,
}

impl HugeFrameState {
    const UNUSED: HugeFrameState = HugeFrameState {
        free: [u64::MAX; 8],
        free_count: FRAMES_PER_HUGE_FRAME as u16,
        fresh_from: 0,
        large: 0,
        in_partial: false,
        in_whole: true,
    };

    fn is_whole(&self) -> bool {
        u32::from(self.free_count) == FRAMES_PER_HUGE_FRAME
    }
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
    machine: Arc<dyn Machine>,
    /// Number of holders of each frame.
    holders: Vec<u32>,
    /// Account that pays for each frame.
    payers: Vec<u32>,
    huge_frames: Vec<HugeFrameState>,
    /// Huge frames with some free frames: all that were ever used, and stale entries without free frames.
    partial: Vec<u32>,
    /// Wholly free huge frames that have been used: all of them, and stale entries.
    whole: Vec<u32>,
    /// Huge frames that read zero and have no memory of the host behind them: all of them, and stale entries that are not wholly
    /// free any more.
    unused: Vec<u32>,
    free: u64,
    accounts: Accounts,
    quarantine: Vec<FrameId>,
    /// Tables that were made since the last flush began.
    made: usize,
    /// Holders to be released in steps.
    garbage: Vec<Garbage>,
    counter: u64,
    rules: Rules,
    /// Blocks of disks that are in memory.
    pub(in crate::memory) registry: Registry,
}

impl Frames {
    /// All frames of `machine` except huge frame 0, which the machine uses. `registry`: number of frames that may hold blocks of
    /// disks.
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>, rules: Rules, registry: PageCount) -> Frames {
        let mut accounts = Accounts::default();
        let registry = Registry::new(accounts.open(registry));
        let frames = machine.arena().frames() as usize;
        let huge_frames = machine.arena().huge_frames();
        Frames {
            machine,
            holders: vec![0; frames],
            payers: vec![0; frames],
            huge_frames: vec![HugeFrameState::UNUSED; huge_frames as usize],
            partial: Vec::new(),
            whole: Vec::new(),
            unused: (1..huge_frames).rev().collect(),
            free: (frames as u64).saturating_sub(u64::from(FRAMES_PER_HUGE_FRAME)),
            accounts,
            quarantine: Vec::new(),
            made: 0,
            garbage: Vec::new(),
            counter: 0,
            rules,
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

    /// The rules that are left out.
    pub(in crate::memory) fn rules(&self) -> Rules {
        self.rules
    }

    /// A number that was never used before: for versions of trees and stamps of roots.
    pub(in crate::memory) fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Number of free frames.
    #[must_use]
    pub fn free(&self) -> PageCount {
        PageCount(self.free)
    }

    /// Opens an account with a quota.
    pub fn open_account(&mut self, quota: PageCount) -> AccountId {
        self.accounts.open(quota)
    }

    /// Closes an account: it is forgotten once its last frame is gone.
    pub fn close_account(&mut self, id: AccountId) {
        self.accounts.close(id);
    }

    /// Memory use of an account.
    #[must_use]
    pub fn usage(&self, id: AccountId) -> Usage {
        self.accounts.usage(id)
    }

    /// Makes sure that `account` and the machine have `count` frames, so that allocations under the same lock cannot fail. If the
    /// machine has too few, blocks that no cell maps are given up.
    ///
    /// # Errors
    /// The account or the machine has too few.
    pub fn ensure(&mut self, account: AccountId, count: u64) -> Result<(), Shortage> {
        if self.free < count && self.accounts.covers(account, count) {
            self.give_up(count - self.free);
        }
        self.check(account, count)
    }

    /// Whether `account` and the machine have `count` frames now.
    pub(in crate::memory) fn check(&self, account: AccountId, count: u64) -> Result<(), Shortage> {
        if !self.accounts.covers(account, count) {
            return Err(Shortage::Quota);
        }
        if self.free < count { Err(Shortage::Machine) } else { Ok(()) }
    }

    /// Takes a frame. O(1). It keeps its earlier content unless `zeroed`.
    ///
    /// # Errors
    /// The account or the machine is full.
    pub fn take(&mut self, account: AccountId, zeroed: bool) -> Result<FrameId, Shortage> {
        self.ensure(account, 1)?;
        let (frame, fresh) = self.pick().ok_or(Shortage::Machine)?;
        self.accounts.charge(account, 1);
        self.holders[frame.0 as usize] = 1;
        self.payers[frame.0 as usize] = account.0;
        self.free -= 1;
        if zeroed && !fresh {
            self.arena().zero(frame, 1);
        }
        Ok(frame)
    }

    /// Takes a frame for a table, counted as one until it is retired.
    ///
    /// # Errors
    /// The account or the machine is full.
    pub(in crate::memory) fn take_table(&mut self, account: AccountId, zeroed: bool) -> Result<FrameId, Shortage> {
        let table = self.take(account, zeroed)?;
        self.accounts.note_table(account);
        self.made += 1;
        Ok(table)
    }

    /// Takes a whole huge frame as one large page of zeros.
    ///
    /// # Errors
    /// The account is full, or no whole huge frame is free.
    pub fn take_large(&mut self, account: AccountId) -> Result<HugeFrame, Shortage> {
        if !self.accounts.covers(account, u64::from(FRAMES_PER_HUGE_FRAME)) {
            return Err(Shortage::Quota);
        }
        let index = self.whole_huge_frame().ok_or(Shortage::Machine)?;
        let huge_frame = HugeFrame(index);
        let state = &mut self.huge_frames[index as usize];
        let used = state.fresh_from;
        *state = HugeFrameState { free: [0; 8], free_count: 0, fresh_from: FRAMES_PER_HUGE_FRAME as u16, large: 1, ..*state };
        let first = huge_frame.first().0 as usize;
        self.payers[first..first + FRAMES_PER_HUGE_FRAME as usize].fill(account.0);
        self.accounts.charge(account, u64::from(FRAMES_PER_HUGE_FRAME));
        self.free -= u64::from(FRAMES_PER_HUGE_FRAME);
        if used != 0 {
            self.arena().zero(huge_frame.first(), u32::from(used));
        }
        Ok(huge_frame)
    }

    /// Takes a wholly free huge frame, if possible one that was used before, because the host has memory behind it already.
    /// Amortised O(1). `None` also if the host cannot provide another.
    fn whole_huge_frame(&mut self) -> Option<u32> {
        while let Some(index) = self.whole.pop().or_else(|| self.unused.pop()) {
            if self.machine.provide(HugeFrame(index)).is_err() {
                self.unused.push(index);
                return None;
            }
            let state = &mut self.huge_frames[index as usize];
            state.in_whole = false;
            if state.is_whole() {
                return Some(index);
            }
        }
        None
    }

    /// Takes out a wholly free huge frame with memory of the host behind it, if there are more than `keep` of them. The caller
    /// gives that memory back without the lock, and then calls [`Frames::given_back`].
    pub(crate) fn begin_giving_back(&mut self, keep: usize) -> Option<HugeFrame> {
        if self.whole.len() <= keep {
            return None;
        }
        let index = self.whole_huge_frame()?;
        let state = &mut self.huge_frames[index as usize];
        *state = HugeFrameState { free: [0; 8], free_count: 0, ..*state };
        self.free -= u64::from(FRAMES_PER_HUGE_FRAME);
        Some(HugeFrame(index))
    }

    /// Puts back a huge frame that reads zero.
    pub(crate) fn given_back(&mut self, huge_frame: HugeFrame) {
        let state = &mut self.huge_frames[huge_frame.0 as usize];
        *state = HugeFrameState { in_partial: state.in_partial, ..HugeFrameState::UNUSED };
        self.unused.push(huge_frame.0);
        self.free += u64::from(FRAMES_PER_HUGE_FRAME);
    }

    /// Takes a free frame. The second value is `true` if it was never handed out.
    fn pick(&mut self) -> Option<(FrameId, bool)> {
        let index = loop {
            match self.partial.last() {
                Some(index) if self.huge_frames[*index as usize].free_count > 0 => break *index,
                Some(index) => {
                    self.huge_frames[*index as usize].in_partial = false;
                    self.partial.pop();
                }
                None => {
                    let index = self.whole_huge_frame()?;
                    self.huge_frames[index as usize].in_partial = true;
                    self.partial.push(index);
                }
            }
        };
        let state = &mut self.huge_frames[index as usize];
        let word = state.free.iter().position(|word| *word != 0)?;
        let bit = state.free[word].trailing_zeros();
        state.free[word] &= !(1 << bit);
        state.free_count -= 1;
        let number = word as u32 * 64 + bit;
        let fresh = number >= u32::from(state.fresh_from);
        if fresh {
            state.fresh_from = number as u16 + 1;
        }
        Some((HugeFrame(index).first().offset(number), fresh))
    }

    /// Adds a holder to a frame.
    pub(in crate::memory) fn hold(&mut self, frame: FrameId) {
        let holders = &mut self.holders[frame.0 as usize];
        *holders += 1;
        if *holders == 2 && self.is_registered(frame) {
            self.registry.wake();
        }
    }

    /// Whether the registry holds a frame: only the registry charges that account.
    pub(in crate::memory) fn is_registered(&self, frame: FrameId) -> bool {
        self.payers[frame.0 as usize] == self.registry.account.0
    }

    /// Adds a holder to the table or page of an entry in a table of `level`.
    pub(in crate::memory) fn hold_view(&mut self, view: View, level: u8) {
        match view {
            View::Table { table, .. } => self.hold(table),
            View::Page { frame, .. } if level == 1 => self.hold(frame),
            View::Page { frame, .. } => self.huge_frames[frame.huge_frame().0 as usize].large += 1,
            View::Empty | View::Lazy { .. } | View::Block { .. } => {}
        }
    }

    /// Whether a table, or a page that is no part of a large one, has only one holder.
    pub(in crate::memory) fn is_last_holder(&self, frame: FrameId) -> bool {
        self.holders[frame.0 as usize] == 1
    }

    /// Whether a page has only one holder.
    pub(in crate::memory) fn is_exclusive(&self, frame: FrameId) -> bool {
        self.holders[frame.0 as usize] == 1 && self.huge_frames[frame.huge_frame().0 as usize].large == 0
    }

    /// Whether a large page has only one holder, and its parts none.
    pub(in crate::memory) fn is_exclusive_large(&self, huge_frame: HugeFrame) -> bool {
        self.huge_frames[huge_frame.0 as usize].large == 1 && huge_frame.frames().all(|frame| self.holders[frame.0 as usize] == 0)
    }

    /// Removes a holder from a table; `true` if it was the last. The caller then releases the table's entries and retires it.
    pub(in crate::memory) fn drop_table(&mut self, table: FrameId) -> bool {
        let holders = &mut self.holders[table.0 as usize];
        *holders -= 1;
        *holders == 0
    }

    /// Removes a holder from a page, which is free at once if it was the last.
    pub fn release(&mut self, frame: FrameId) {
        self.holders[frame.0 as usize] -= 1;
        match self.holders[frame.0 as usize] {
            0 if self.huge_frames[frame.huge_frame().0 as usize].large == 0 => self.set_free(frame),
            1 if self.is_registered(frame) => self.registry.rest(frame),
            _ => {}
        }
    }

    /// Removes a holder from a large page. If it was the last, parts without other holders are free at once.
    pub(in crate::memory) fn release_large(&mut self, huge_frame: HugeFrame) {
        let state = &mut self.huge_frames[huge_frame.0 as usize];
        state.large -= 1;
        if state.large == 0 {
            for frame in huge_frame.frames() {
                if self.holders[frame.0 as usize] == 0 {
                    self.set_free(frame);
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

    /// Retires a table without holders: it stays charged, and its frame unused, until the machine has flushed.
    pub(in crate::memory) fn retire(&mut self, table: FrameId) {
        self.holders[table.0 as usize] = 0;
        let payer = AccountId(self.payers[table.0 as usize]);
        self.accounts.note_retired(payer);
        if self.rules.contains_rule(Rules::WITHOUT_QUARANTINE) {
            self.accounts.note_flushed(payer);
            return self.set_free(table);
        }
        self.quarantine.push(table);
    }

    fn set_free(&mut self, frame: FrameId) {
        self.accounts.discharge(AccountId(self.payers[frame.0 as usize]), 1);
        let huge_frame = frame.huge_frame().0;
        let number = frame.0 - HugeFrame(huge_frame).first().0;
        let state = &mut self.huge_frames[huge_frame as usize];
        state.free[number as usize / 64] |= 1 << (number % 64);
        state.free_count += 1;
        self.free += 1;
        if state.is_whole() && !state.in_whole {
            state.in_whole = true;
            self.whole.push(huge_frame);
        }
        if !state.in_partial && !state.is_whole() {
            state.in_partial = true;
            // Below the top: the huge frame on top continues to be filled first.
            let below = self.partial.len().saturating_sub(1);
            self.partial.insert(below, huge_frame);
        }
    }

    /// Number of tables that wait for a flush.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.quarantine.len()
    }

    /// Number of tables made since the last flush began: the machine may have cached each of them.
    #[must_use]
    pub fn made_since_flush(&self) -> usize {
        self.made
    }

    /// Takes out the retired tables. The caller flushes the machine without the lock, and then calls [`Frames::flushed`].
    #[must_use]
    pub fn begin_flush(&mut self) -> Vec<FrameId> {
        self.made = 0;
        std::mem::take(&mut self.quarantine)
    }

    /// Frees tables that were retired before the machine's flush, or keeps them if it failed.
    pub fn flushed(&mut self, tables: Vec<FrameId>, outcome: &Result<(), HostError>) {
        if outcome.is_err() {
            self.quarantine.extend(tables);
            return;
        }
        for table in tables {
            self.accounts.note_flushed(AccountId(self.payers[table.0 as usize]));
            self.set_free(table);
        }
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

#[cfg(test)]
mod tests {
    use super::Frames;
    use crate::memory::rules::Rules;
    use crate::memory::tree::entry::Entry;
    use crate::memory::tree::handle::Tree;
    use pando_abi::Permissions;
    use pando_machine::sim::{Sim, SimConfig};
    use pando_machine::{Machine, PageCount};
    use std::sync::Arc;

    #[test]
    fn an_account_tells_tables_from_pages_from_birth_to_flush() {
        let machine = Sim::new(SimConfig { arena: PageCount(2048), ..SimConfig::default() }).expect("a small machine");
        let mut frames = Frames::new(machine as Arc<dyn Machine>, Rules::ALL_KEPT, PageCount(0));
        let account = frames.open_account(PageCount(100));
        let counts = |frames: &Frames| {
            let usage = frames.usage(account);
            (usage.used.0, usage.tables.0, usage.retired.0)
        };
        let mut tree = Tree::default();
        tree.set(&mut frames, account, 0..2, Entry::lazy(Permissions::READ_WRITE, false)).expect("room");
        tree.touch(&mut frames, account, 0..2, true).expect("room");
        assert_eq!(counts(&frames), (5, 3, 0), "a path of three tables and two pages");
        tree.release(&mut frames);
        while !frames.reap(1) {}
        assert_eq!(counts(&frames), (3, 0, 3), "the pages are free, the tables wait");
        assert_eq!(frames.made_since_flush(), 3);
        let tables = frames.begin_flush();
        assert_eq!(frames.made_since_flush(), 0);
        frames.flushed(tables, &Ok(()));
        assert_eq!(counts(&frames), (0, 0, 0));
    }
}
