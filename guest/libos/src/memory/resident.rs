// SPDX-License-Identifier: MIT OR Apache-2.0
//! The resident size of a program's memory, as the kernel counts it.

use alloc::vec::Vec;

use pando_abi::PAGE_SIZE;
use pando_abi::layout::SLOT_SIZE;
use pando_rt::memory::{PageRange, ResidentPages, count_in};

use super::AddressSpace;

impl AddressSpace {
    /// The resident pages of a range.
    #[must_use]
    pub fn resident(&self, range: PageRange) -> ResidentPages {
        // The space exists as long as this object does.
        count_in(self.space.0.into(), range).unwrap_or_default()
    }

    /// Resident bytes of all mappings.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        // Ranges in one slot are counted together, including memory mapped ahead between them.
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
