// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of a program's memory is there, as the kernel counts it.

use alloc::vec::Vec;

use pando_abi::PAGE_SIZE;
use pando_abi::layout::SLOT_SIZE;
use pando_rt::memory::{PageRange, Resident, count_in};

use super::AddressSpace;

impl AddressSpace {
    /// What of a range is in memory.
    #[must_use]
    pub fn resident(&self, range: PageRange) -> Resident {
        // The space is there as long as this is.
        count_in(self.space.0.into(), range).unwrap_or_default()
    }

    /// Bytes that are in memory of all that is mapped.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        // What lies in one slot is counted at once, with what is mapped ahead of use in between.
        let mut runs: Vec<PageRange> = Vec::new();
        for (range, _) in self.all() {
            let joined = runs.last().filter(|run| run.start() / SLOT_SIZE == range.start() / SLOT_SIZE);
            match joined.and_then(|run| PageRange::new(run.start(), range.end())) {
                Some(run) => {
                    runs.pop();
                    runs.push(run);
                }
                None => runs.push(range),
            }
        }
        let pages: u64 = runs.into_iter().map(|run| self.resident(run).pages).sum();
        (pages * PAGE_SIZE).min(self.bytes())
    }
}
