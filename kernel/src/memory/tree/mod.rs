// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees: copy-on-write radix trees of page tables, each spanning one slot of 512 GiB.
//!
//! - [`entry`]: table entries, as the CPU reads them and with the kernel's data
//! - [`level`]: the geometry of a tree
//! - [`handle`]: a tree, its clones and its release
//! - [`lookup`]: the entry of a page
//! - [`compare`]: the pages at which two trees differ
//! - [`paid`]: pages for which an account pays
//! - [`takeable`]: pages that a parent may take, and those that it has taken
//! - [`block_entries`]: tables that map blocks of disks
//! - [`edit`]: the only place that changes tables
//! - [`reaper`]: gradual release
//! - [`accessed_blocks`]: blocks that the CPU has accessed

mod accessed_blocks;
mod block_entries;
mod charged_pages;
mod compare;
mod edit;
mod entry;
mod handle;
mod level;
mod lookup;
mod page_out;
mod reaper;

pub(in crate::memory) use compare::Comparison;
pub(in crate::memory) use edit::PATH_TABLES;
pub use entry::{DecodedEntry, Entry};
pub use handle::Tree;
pub use level::TREE_PAGES;
pub(in crate::memory) use level::{TOP, span};
pub use lookup::{Lookup, PresentPages};
