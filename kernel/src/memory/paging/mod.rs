// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demand paging: faults, blocks that must be read first, eviction, and the kernel's own accesses to a tree.
//!
//! - [`fault`]: faults that the kernel resolves itself
//! - [`copy`]: the kernel's own reads and writes
//! - [`residency`]: whether a page is present, or its block must be read
//! - [`block_read`]: reads of blocks into the registry
//! - [`eviction`]: eviction of blocks from mappings
//! - [`error`]: errors of memory calls

mod block_read;
mod copy;
mod error;
mod eviction;
mod fault;
mod residency;

pub use block_read::{BlockRead, BlockRequest};
pub(in crate::memory) use copy::pages_of;
pub use copy::{CopyAuthority, CopyError};
pub use error::MemoryError;
pub use fault::{Access, FaultOutcome};
