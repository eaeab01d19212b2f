// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared budgets: the memory of all output logs of the service, and the descriptors of all loaded templates.

use pando_machine::PageCount;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The logs of all cells may take one part in this many of the cells' memory, in addition to it.
const LOG_DIVISOR: u64 = 8;
/// Bytes that the logs may take at least.
const LOG_MIN: u64 = 64 << 20;

/// The total in use, and its limit.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU64,
    limit: u64,
}

/// A share of the budget, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    amount: u64,
}

impl Budget {
    /// A budget with this limit.
    pub(crate) fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { used: AtomicU64::new(0), limit })
    }

    /// The budget for the logs of a service whose cells may use this much memory together.
    pub(crate) fn for_memory(memory: PageCount) -> Arc<Budget> {
        Budget::new((memory.bytes() / LOG_DIVISOR).max(LOG_MIN))
    }

    /// An empty charge.
    pub(crate) fn charge(self: &Arc<Self>) -> Charge {
        Charge { budget: Arc::clone(self), amount: 0 }
    }

    /// The amount in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether the limit is exceeded.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used() > self.limit
    }
}

impl Charge {
    /// An empty charge of the same budget.
    pub(crate) fn empty_charge(&self) -> Charge {
        self.budget.charge()
    }

    /// Charges more.
    pub(crate) fn grow(&mut self, amount: u64) {
        self.amount += amount;
        self.budget.used.fetch_add(amount, Ordering::Relaxed);
    }

    /// Returns a part.
    pub(crate) fn shrink(&mut self, amount: u64) {
        self.amount -= amount;
        self.budget.used.fetch_sub(amount, Ordering::Relaxed);
    }

    /// Whether the budget's limit is exceeded.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.budget.is_exceeded()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}
