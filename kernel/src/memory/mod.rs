// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory: frames, the trees of page tables that describe all address spaces, and the spaces built from them.
//!
//! The page-table tree *is* the description of memory; there is no second structure. A [`Tree`](tree::Tree) spans one slot of 512 GiB.
//! An entry is present and points to a table or a page, or describes the page that a fault must make ([`entry`](tree::entry)). A clone
//! of a tree is another handle on the same tables, *sealed*: its top is linked without the write bit, and from then on so is the
//! source's. A write copies the path and the page.
//!
//! # Modules
//! Each uses only those before it in this list.
//! - [`rules`]: leaves out rules of the page-table discipline, for canaries
//! - [`block`]: names of disks and their blocks
//! - [`taken`]: names of pages that a cell's parent has taken
//! - [`frames`]: physical memory. Frames, their holders and payers, and the registry of blocks in memory
//! - [`tree`]: page tables. Entries, lookups, edits, gradual release
//! - [`paging`]: demand paging. Faults, blocks to read, eviction, and the kernel's own accesses to a tree
//! - [`prefetch`]: the pages that clones are expected to access. Uses only `tree`
//! - [`spaces`]: the address spaces and segments of a cell, and root tables
//! - [`image`]: a cell's memory as plain data: its export and import, and its difference to a base
//!
//! # Owners of tables
//! A table is reached by *links*: entries of other tables, or the handle of a tree. A link with the write bit means that no other
//! writable link reaches this table, so its holder may edit it. A link without it is sealed, and a table that was ever reached by a
//! sealed link is never written again: a writer copies it, even as its last holder. (Its own entries may carry write bits from
//! before; they mean nothing below a sealed link.)
//!
//! # The page-table discipline
//! KVM may cache tables by frame number (shadow paging) and is not notified of edits; a TLB keeps its translations. These rules
//! make edits sound:
//! 1. In place, an entry may change only from non-present to present. As the answer to a write fault, a leaf may also change from
//!    read-only to writable, or to the private copy of the same page and size. (`tree/edit/walk.rs`: `may_change_in_place`) A CPU sees
//!    such a copy once the write is retried. Until that is confirmed, no other code runs on these tables, or the path is made fresh.
//!    (The core loop: `unconfirmed`)
//! 2. Any other change builds a fresh path: new tables up to a new root; the old ones are retired. A tree that no root has mapped
//!    yet is fresh as it is, and so are tables that were made since its cell was last entered. (`tree/edit/walk.rs`: `put`)
//! 3. A retired table's frame is quarantined and not reused until the machine has flushed its tables. (`frames/quarantine.rs`)
//! 4. A frame passes to another cell only when no vCPU runs on a root that reaches it: edits happen while the cell is not running,
//!    and it is re-entered on the root that the edit left. (`spaces/space.rs`: `root`)
//! 5. The kernel's own writes into a page break the sharing first. (`paging/copy.rs`)
//! 6. A root gets a new stamp when it is built, when its cell moves to another vCPU, and when a page is copied in place that it
//!    maps at two addresses. The vCPU then drops its translations. (`spaces/space.rs`: `root`; `spaces/access.rs`: `resolve`) A fault
//!    that the tables rule out is spurious: retry. (`paging/fault.rs`)
//! 7. Entries are written with single atomic stores, and never point outside the arena. ([`pando_machine::Arena::store`])
//!
//! Each change that an edit can make names the rules that it relies on (`tree/edit/changes.rs`). For each rule there is a canary:
//! [`OmittedRules`] leaves it out, and a test must fail.

pub mod block;
pub mod frames;
pub mod image;
pub mod paging;
pub mod prefetch;
pub mod rules;
pub mod spaces;
pub mod swapped_page;
pub mod tree;

pub use block::{Block, DiskId};
pub use frames::{AccountId, Frames, Shortage, Usage};
pub use image::BadImage;
pub(crate) use image::{BuildProgress, MemoryLayout, list_image};
pub(crate) use image::{
    DifferenceTooLarge, MemoryDifference, MemoryExport, MemoryImage, MemoryRestore, PageSource, RestoreError, RestoreProgress,
};
pub use paging::{Access, BlockRead, BlockRequest, CopyAuthority, CopyError, FaultOutcome, MemoryError};
pub(crate) use prefetch::{PrefetchBatch, PrefetchSet, TrainingTraces};
pub use prefetch::{StartMode, StartTrace};
pub use rules::OmittedRules;
pub use spaces::{ClockHand, PageSpan, SpaceSet};
pub(crate) use spaces::{CopyBetweenError, TreeCursor, WrittenPages, copy_between, copy_pages};
pub use swapped_page::{SwapNumber, TakenPage};
pub use tree::{DecodedEntry, Lookup, PresentPages};
