// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounts: quotas of frames. Each frame is charged to the account that allocated it.
//!
//! Sharing costs the sharer nothing; a copy is charged to the writer. An account lives until its owner has closed it *and* its last
//! frame is gone. The account of a nested cell lies below its parent's, which pays for it as well, and so on upwards.

use pando_machine::PageCount;

/// Identifier of an account, valid until its owner has closed it and no frame carries it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountId(pub(in crate::memory) u32);

/// Memory use of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Largest number of frames that it may have.
    pub quota: PageCount,
    /// Frames in use, including tables and retired tables, by the account and those below it.
    pub used: PageCount,
    /// Tables in use among them.
    pub tables: PageCount,
    /// Retired tables among them.
    pub retired: PageCount,
    /// Highest value of `used`.
    pub peak: PageCount,
}

impl Usage {
    /// Number of frames that the quota leaves.
    #[must_use]
    pub fn room(self) -> u64 {
        self.quota.0.saturating_sub(self.used.0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    usage: Usage,
    is_open: bool,
    /// The account below which it was opened.
    parent: Option<AccountId>,
    /// Number of accounts below it that are not forgotten.
    children: u32,
    /// Largest number of cells that it may pay for, itself not included.
    cell_quota: u32,
    /// Number of cells that it pays for.
    cells: u32,
}

/// All accounts.
#[derive(Debug, Default)]
pub(in crate::memory) struct Accounts {
    accounts: Vec<Account>,
    /// Indices of forgotten accounts.
    unused: Vec<u32>,
}

impl Accounts {
    /// Opens an account, below another one or as one of the operator's.
    pub(in crate::memory) fn open(&mut self, quota: PageCount, parent: Option<AccountId>) -> AccountId {
        let account = Account { usage: Usage { quota, ..Usage::default() }, is_open: true, parent, ..Account::default() };
        if let Some(parent) = parent {
            self.accounts[parent.0 as usize].children += 1;
        }
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

    /// Use and quota of the account with the least room among this one and its ancestors.
    pub(in crate::memory) fn tightest(&self, id: AccountId) -> Usage {
        let mut tightest = self.usage(id);
        let mut next = self.accounts[id.0 as usize].parent;
        while let Some(Account { usage, parent, .. }) = next.map(|id| self.accounts[id.0 as usize]) {
            if usage.room() < tightest.room() {
                tightest = usage;
            }
            next = parent;
        }
        tightest
    }

    /// Whether `count` more frames are within the quotas of the account and its ancestors.
    pub(in crate::memory) fn covers(&self, id: AccountId, count: u64) -> bool {
        count <= self.tightest(id).room()
    }

    /// Changes a quota. Returns the old one.
    pub(in crate::memory) fn set_quota(&mut self, id: AccountId, quota: PageCount) -> PageCount {
        std::mem::replace(&mut self.accounts[id.0 as usize].usage.quota, quota)
    }

    pub(in crate::memory) fn charge(&mut self, id: AccountId, count: u64) {
        self.for_each(id, |Account { usage, .. }| {
            usage.used += PageCount(count);
            usage.peak = usage.peak.max(usage.used);
        });
    }

    pub(in crate::memory) fn discharge(&mut self, id: AccountId, count: u64) {
        self.for_each(id, |Account { usage, .. }| usage.used -= PageCount(count));
        self.forget_if_empty(id);
    }

    pub(in crate::memory) fn note_table(&mut self, id: AccountId) {
        self.for_each(id, |Account { usage, .. }| usage.tables += PageCount(1));
    }

    pub(in crate::memory) fn note_retired(&mut self, id: AccountId) {
        self.for_each(id, |Account { usage, .. }| {
            usage.tables -= PageCount(1);
            usage.retired += PageCount(1);
        });
    }

    pub(in crate::memory) fn note_flushed(&mut self, id: AccountId) {
        self.for_each(id, |Account { usage, .. }| usage.retired -= PageCount(1));
    }

    /// Whether an account or one of its ancestors has retired tables: a flush will uncharge them.
    pub(in crate::memory) fn has_retired(&mut self, id: AccountId) -> bool {
        let mut has_retired = false;
        self.for_each(id, |account| has_retired |= account.usage.retired.0 > 0);
        has_retired
    }

    /// Whether an account or one of its ancestors exceeds its quota, retired tables aside.
    pub(in crate::memory) fn is_exceeded(&mut self, id: AccountId) -> bool {
        let mut is_exceeded = false;
        self.for_each(id, |Account { usage, .. }| is_exceeded |= usage.used.0 > usage.quota.0.saturating_add(usage.retired.0));
        is_exceeded
    }

    /// How many cells an account may pay for.
    pub(in crate::memory) fn cell_quota(&self, id: AccountId) -> u32 {
        self.accounts[id.0 as usize].cell_quota
    }

    /// Sets how many cells an account may pay for.
    pub(in crate::memory) fn set_cell_quota(&mut self, id: AccountId, cells: u32) {
        self.accounts[id.0 as usize].cell_quota = cells;
    }

    /// Charges an account and its ancestors for a cell. `false`: one of them may not have another, and nothing is charged.
    pub(in crate::memory) fn charge_cell(&mut self, id: AccountId) -> bool {
        let mut is_covered = true;
        self.for_each(id, |account| is_covered &= account.cells < account.cell_quota);
        if is_covered {
            self.for_each(id, |account| account.cells += 1);
        }
        is_covered
    }

    /// Discharges an account and its ancestors of a cell.
    pub(in crate::memory) fn discharge_cell(&mut self, id: AccountId) {
        self.for_each(id, |account| account.cells -= 1);
        self.forget_if_empty(id);
    }

    /// Changes an account and its ancestors.
    fn for_each(&mut self, id: AccountId, mut change: impl FnMut(&mut Account)) {
        let mut next = Some(id);
        while let Some(id) = next {
            let account = &mut self.accounts[id.0 as usize];
            change(account);
            next = account.parent;
        }
    }

    /// Forgets an account that nothing needs, and then each ancestor that was needed for it only.
    fn forget_if_empty(&mut self, id: AccountId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let account = self.accounts[id.0 as usize];
            if account.is_open || account.usage.used.0 > 0 || account.children > 0 || account.cells > 0 {
                return;
            }
            self.unused.push(id.0);
            if let Some(parent) = account.parent {
                self.accounts[parent.0 as usize].children -= 1;
            }
            next = account.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AccountId, Accounts};
    use pando_machine::PageCount;

    /// Accounts of three generations, with quotas of 100, 60 and 80.
    fn family() -> (Accounts, [AccountId; 3]) {
        let mut accounts = Accounts::default();
        let grandparent = accounts.open(PageCount(100), None);
        let parent = accounts.open(PageCount(60), Some(grandparent));
        let child = accounts.open(PageCount(80), Some(parent));
        (accounts, [grandparent, parent, child])
    }

    fn used(accounts: &Accounts, ids: [AccountId; 3]) -> [u64; 3] {
        ids.map(|id| accounts.usage(id).used.0)
    }

    #[test]
    fn every_ancestor_is_charged_and_the_tightest_quota_counts() {
        let (mut accounts, ids @ [grandparent, parent, child]) = family();
        accounts.charge(grandparent, 50);
        accounts.charge(child, 40);
        assert_eq!(used(&accounts, ids), [90, 40, 40]);
        assert!(accounts.covers(child, 10) && !accounts.covers(child, 11) && !accounts.covers(parent, 11));
        accounts.charge(child, 10);
        assert_eq!(used(&accounts, ids), [100, 50, 50]);
        accounts.discharge(grandparent, 50);
        assert!(accounts.covers(child, 10) && !accounts.covers(child, 11) && accounts.covers(grandparent, 50));
        accounts.discharge(child, 50);
        assert_eq!(used(&accounts, ids), [0, 0, 0]);
        assert_eq!(accounts.usage(grandparent).peak, PageCount(100));
    }

    #[test]
    fn an_account_outlives_its_children() {
        let (mut accounts, [grandparent, parent, child]) = family();
        accounts.charge(child, 1);
        [child, parent, grandparent].into_iter().for_each(|id| accounts.close(id));
        // Nothing is reused while the child has a frame.
        assert_eq!(accounts.open(PageCount(1), None), AccountId(3));
        accounts.discharge(child, 1);
        assert_eq!(accounts.usage(grandparent).used, PageCount(0));
        let reused: Vec<u32> = (0..3).map(|_| accounts.open(PageCount(1), None).0).collect();
        assert_eq!(reused, [grandparent.0, parent.0, child.0]);
    }

    #[test]
    fn cells_count_against_every_ancestor() {
        let (mut accounts, [grandparent, parent, child]) = family();
        accounts.set_cell_quota(grandparent, 2);
        accounts.set_cell_quota(parent, 5);
        assert!(!accounts.charge_cell(child), "it may have none");
        assert!(accounts.charge_cell(parent) && accounts.charge_cell(parent) && !accounts.charge_cell(parent));
        accounts.discharge_cell(parent);
        assert!(accounts.charge_cell(grandparent) && !accounts.charge_cell(parent));
    }
}
