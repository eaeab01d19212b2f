// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the results of instruction `cpuid`.

use core::ptr::{addr_of, with_exposed_provenance};

use pando_abi::cpuid::{END, Entry};
use pando_abi::{PAGE_SIZE, layout};

/// The result of `cpuid` for this leaf and subleaf; zeros if the table has none.
#[must_use]
pub fn lookup(leaf: u32, subleaf: u32) -> [u32; 4] {
    let table = with_exposed_provenance::<Entry>(layout::CPUID_TABLE as usize);
    let entries = (layout::CPUID_TABLE_PAGES * PAGE_SIZE) as usize / Entry::SIZE;
    (0..entries)
        // SAFETY: the kernel maps the table, read-only, before the first instruction; the index is inside it, and any bytes are an entry.
        .map(|index| unsafe { addr_of!(*table.add(index)).read_volatile() })
        .take_while(|entry| entry.leaf != END)
        .find(|entry| entry.leaf == leaf && (entry.indexed == 0 || entry.subleaf == subleaf))
        .map_or([0; 4], |entry| entry.answer)
}
