// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory: frames, the trees of tables that describe all address spaces, and the spaces built from them.
//!
//! The page-table tree *is* the description of memory; there is no second structure. A [`tree::Tree`] spans one slot of 512 GiB. An
//! entry is present and points to a table or a page, or describes the page that a fault must make ([`entry`]). A clone of a tree is
//! another handle on the same tables, *sealed*: its top is shown to the CPU without the write bit, and from then on so is the
//! source's. A write copies the path and the page.
//!
//! # Who owns a table
//! A table is reached by *links*: entries of other tables, or the handle of a tree. A link with the write bit means that no other
//! writable link reaches this table, so its holder may edit it. A link without it is sealed, and a table that was ever reached by a
//! sealed link is never written again: a writer copies it, even as its last holder. (Its own entries may carry write bits from
//! before; they mean nothing below a sealed link.)
//!
//! # The page-table discipline
//! KVM may cache tables by frame number (shadow paging) and is not notified of edits; a TLB keeps its translations. These rules
//! make edits sound:
//! 1. In place, an entry may change only from non-present to present. A leaf may also change from read-only to writable, or, as the
//!    answer to a write fault, to the private copy of the same page and size. ([`edit`]: `may_change_in_place`) A CPU sees such a
//!    copy once the write is retried. Until that is confirmed, no other code runs on these tables, or the path is made fresh. (The
//!    core loop: `unconfirmed`)
//! 2. Any other change builds a fresh path: new tables up to a new root; the old ones are retired. A tree that no root has shown
//!    yet is fresh as it is. ([`edit`]: `put`)
//! 3. A retired table's frame is quarantined and not reused until the machine has flushed its tables. ([`frames`]: `retire`)
//! 4. A frame passes to another cell only when no vCPU runs on a root that reaches it: edits happen while the cell is not running,
//!    and it is re-entered on the root that the edit left. ([`space`]: `root`)
//! 5. The kernel's own writes into a page break the sharing first. ([`copy`])
//! 6. A root gets a new stamp when it is built, when its cell moves to another vCPU, and when a page is copied in place that it
//!    shows at two addresses. The vCPU then drops its translations. ([`space`]: `root`, [`spaces`]: `resolve`) A fault that the
//!    tables rule out is spurious: retry. ([`fault`])
//! 7. Entries are written with single atomic stores, and never point outside the arena. ([`pando_machine::Arena::store`])
//!
//! For each rule there is a canary: [`Rules`] leaves it out, and a test must fail.

pub mod block;
pub mod frames;
pub mod image;
pub mod paging;
pub mod prefetch;
pub mod rules;
pub mod spaces;
pub mod tree;

pub use block::{Block, BlockRequest, DiskId};
pub use frames::registry;
pub use frames::{AccountId, Frames, Shortage, Usage};
pub use image::BadImage;
pub(crate) use image::{export, import};
pub use paging::{Access, Fault};
pub use paging::{copy, error};
pub(crate) use prefetch::{prefetch_set, training_trace};
pub use rules::Rules;
pub use spaces::SpaceSet;
pub use spaces::eviction;
pub use tree::entry;
