// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees of page tables: their entries, lookups, edits, and gradual release.

pub mod edit;
pub mod entry;
pub mod handle;
pub mod reaper;

pub use handle::{Count, Lookup, TREE_PAGES, Tree};
