// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical memory: the frames of a machine, their holders and payers, and the blocks of disks that are in memory.
//!
//! - [`frame_table`]: the holders and the payer of every frame; reservations; reclaim
//! - [`allocator`]: free frames
//! - [`quarantine`]: retired tables until the machine's next flush
//! - [`account`]: quotas and charges
//! - [`trim`]: gives the host frames that are free, and frames whose content is in a file ([`file_page`])
//! - [`registry`] and its [`block_index`]: blocks of disks in memory

mod account;
mod allocator;
mod block_index;
mod file_page;
mod frame_table;
mod quarantine;
mod registry;
mod trim;

pub use account::{AccountId, Usage};
pub(in crate::memory) use frame_table::Garbage;
pub use frame_table::{Frames, Shortage};
