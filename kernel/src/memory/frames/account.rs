// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounts: quotas of frames. Each frame is charged to the account that allocated it.
//!
//! Sharing costs the sharer nothing; a copy is charged to the writer. An account lives until its owner has closed it *and* its last
//! frame is gone.

use pando_machine::PageCount;

/// Identifier of an account, valid until its owner has closed it and no frame carries it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountId(pub(in crate::memory) u32);

/// Memory use of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Largest number of frames that it may have.
    pub quota: PageCount,
    /// Frames in use, including tables and retired tables.
    pub used: PageCount,
    /// Tables in use among them.
    pub tables: PageCount,
    /// Retired tables among them.
    pub retired: PageCount,
    /// Highest value of `used`.
    pub peak: PageCount,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    usage: Usage,
    is_open: bool,
}

/// All accounts.
#[derive(Debug, Default)]
pub(in crate::memory) struct Accounts {
    accounts: Vec<Account>,
    /// Indices of forgotten accounts.
    unused: Vec<u32>,
}

impl Accounts {
    pub(in crate::memory) fn open(&mut self, quota: PageCount) -> AccountId {
        let account = Account { usage: Usage { quota, ..Usage::default() }, is_open: true };
        match self.unused.pop() {
            Some(index) => {
                self.accounts[index as usize] = account;
                AccountId(index)
            }
            None => {
                self.accounts.push(account);
                AccountId(u32::try_from(self.accounts.len() - 1).expect("fewer accounts than frames"))
            }
        }
    }

    pub(in crate::memory) fn close(&mut self, id: AccountId) {
        self.accounts[id.0 as usize].is_open = false;
        self.forget_if_empty(id);
    }

    pub(in crate::memory) fn usage(&self, id: AccountId) -> Usage {
        self.accounts[id.0 as usize].usage
    }

    /// Whether `count` more frames are within the quota.
    pub(in crate::memory) fn covers(&self, id: AccountId, count: u64) -> bool {
        let Usage { quota, used, .. } = self.usage(id);
        used.0.saturating_add(count) <= quota.0
    }

    /// Changes a quota. Returns the old one.
    pub(in crate::memory) fn set_quota(&mut self, id: AccountId, quota: PageCount) -> PageCount {
        std::mem::replace(&mut self.accounts[id.0 as usize].usage.quota, quota)
    }

    pub(in crate::memory) fn charge(&mut self, id: AccountId, count: u64) {
        let usage = &mut self.accounts[id.0 as usize].usage;
        usage.used += PageCount(count);
        usage.peak = usage.peak.max(usage.used);
    }

    pub(in crate::memory) fn discharge(&mut self, id: AccountId, count: u64) {
        self.accounts[id.0 as usize].usage.used -= PageCount(count);
        self.forget_if_empty(id);
    }

    pub(in crate::memory) fn note_table(&mut self, id: AccountId) {
        self.accounts[id.0 as usize].usage.tables += PageCount(1);
    }

    pub(in crate::memory) fn note_retired(&mut self, id: AccountId) {
        let usage = &mut self.accounts[id.0 as usize].usage;
        usage.tables -= PageCount(1);
        usage.retired += PageCount(1);
    }

    pub(in crate::memory) fn note_flushed(&mut self, id: AccountId) {
        self.accounts[id.0 as usize].usage.retired -= PageCount(1);
    }

    fn forget_if_empty(&mut self, id: AccountId) {
        let account = &self.accounts[id.0 as usize];
        if !account.is_open && account.usage.used.0 == 0 {
            self.unused.push(id.0);
        }
    }
}
