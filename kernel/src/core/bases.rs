// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bases of cells: the memory of which clones were made, kept for as long as a clone lives.
//!
//! A base is a clone of the memory of the cell that was cloned, so that later changes of that cell do not change it. All clones of a cell
//! share one base, also after the cell has ended. It takes no frames of its own, except for tables that an eviction of blocks copies.

use crate::memory::{AccountId, ClockHand, Frames, SpaceSet};
use pando_machine::PageCount;

/// The index of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BaseId(u32);

struct Base {
    memory: SpaceSet,
    account: AccountId,
    /// Number of cells that refer to it.
    users: u64,
}

/// All bases.
#[derive(Default)]
pub(super) struct Bases {
    slots: Vec<Option<Base>>,
    /// Indices of empty slots.
    free: Vec<u32>,
}

impl Bases {
    /// Makes a base of the memory of a cell, with one user.
    pub(super) fn add(&mut self, memory: &mut SpaceSet, frames: &mut Frames) -> BaseId {
        // All cells need the tables that evictions copy.
        let account = frames.open_account(PageCount(u64::MAX >> 1), None);
        let base = Base { memory: memory.clone_set(frames, account), account, users: 1 };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(base);
                BaseId(index)
            }
            None => {
                self.slots.push(Some(base));
                BaseId(self.slots.len() as u32 - 1)
            }
        }
    }

    /// Adds a user.
    pub(super) fn hold(&mut self, id: BaseId) {
        self.slots[id.0 as usize].as_mut().expect("a base with a user is there").users += 1;
    }

    /// Removes a user. A base without users is released.
    pub(super) fn release(&mut self, id: BaseId, frames: &mut Frames) {
        let slot = &mut self.slots[id.0 as usize];
        // A canary may have released it.
        let Some(base) = slot.as_mut() else { return };
        base.users -= 1;
        if base.users == 0
            && let Some(base) = slot.take()
        {
            base.memory.release(frames);
            frames.close_account(base.account);
            self.free.push(id.0);
        }
    }

    /// The memory of a base. `None`: it was released.
    pub(super) fn memory(&mut self, id: BaseId) -> Option<(&mut SpaceSet, AccountId)> {
        self.slots.get_mut(id.0 as usize)?.as_mut().map(|base| (&mut base.memory, base.account))
    }

    /// Evicts some blocks from a base, as [`SpaceSet::evict`] does.
    pub(super) fn evict(&mut self, index: usize, frames: &mut Frames, hand: &mut ClockHand, budget: &mut u64) -> bool {
        let base = self.slots.get_mut(index).and_then(Option::as_mut);
        base.is_some_and(|base| base.memory.evict(frames, hand, budget))
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }
}
