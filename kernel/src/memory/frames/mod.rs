// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical memory: frames, their holders and payers, and the blocks of disks that are in memory.

pub mod account;
pub(in crate::memory) mod block_index;
pub mod frame_table;
pub mod registry;

pub use account::{AccountId, Usage};
pub use frame_table::{Frames, Shortage};
