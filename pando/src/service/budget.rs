// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets that many share: the memory that all output logs of the service may take together, the descriptors that all loaded templates may keep.

use pando_machine::PageCount;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which part of the memory of all cells their logs may take besides.
const PART: u64 = 8;
/// Bytes that they may take however little memory the cells have.
const LEAST: u64 = 64 << 20;

/// The memory that all take together, and their limit.
#[derive(Debug)]
pub(super) struct Budget {
    taken: AtomicU64,
    most: u64,
}

/// A share of the budget, returned when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    amount: u64,
}

impl Budget {
    /// A budget of so much.
    pub(super) fn new(most: u64) -> Arc<Budget> {
        Arc::new(Budget { taken: AtomicU64::new(0), most })
    }

    /// That for logs of a service whose cells may have so much memory together.
    pub(super) fn for_memory(memory: PageCount) -> Arc<Budget> {
        Budget::new((memory.bytes() / PART).max(LEAST))
    }

    /// An empty charge.
    pub(super) fn charge(self: &Arc<Self>) -> Charge {
        Charge { budget: Arc::clone(self), amount: 0 }
    }

    /// The memory in use.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether more is taken than may be.
    pub(super) fn is_short(&self) -> bool {
        self.taken() > self.most
    }
}

impl Charge {
    /// Takes more.
    pub(super) fn grow(&mut self, amount: u64) {
        self.amount += amount;
        self.budget.taken.fetch_add(amount, Ordering::Relaxed);
    }

    /// Gives some back.
    pub(super) fn shrink(&mut self, amount: u64) {
        self.amount -= amount;
        self.budget.taken.fetch_sub(amount, Ordering::Relaxed);
    }

    /// Whether all together take more than they may.
    pub(super) fn is_short(&self) -> bool {
        self.budget.is_short()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}
