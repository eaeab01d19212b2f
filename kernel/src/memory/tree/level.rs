// SPDX-License-Identifier: MIT OR Apache-2.0
//! The geometry of a tree: the levels of its tables, and the pages that an entry of each level spans.
//!
//! Levels are numbered as in KVM (`PG_LEVEL_4K` is 1): the entries of level 1 are 4 KiB pages, those of level 2 span 2 MiB, those of
//! level 3, a tree's top, 1 GiB.

use pando_machine::EntryIndex;

/// The level of a tree's top table.
pub(in crate::memory) const TOP: u8 = 3;

/// Pages that a tree spans.
pub const TREE_PAGES: u64 = span(TOP + 1);

/// Pages that one entry of a table of `level` spans.
pub(in crate::memory) const fn span(level: u8) -> u64 {
    1 << (9 * (level as u32 - 1))
}

/// The index of `page` in a table of `level`.
pub(in crate::memory) const fn index(page: u64, level: u8) -> EntryIndex {
    EntryIndex::of(page << 12, level)
}
