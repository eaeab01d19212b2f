// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demand paging: faults, blocks that must be read first, and the kernel's own accesses to a tree.

pub mod copy;
pub mod error;
pub mod fault;
pub(in crate::memory) mod residency;

pub use fault::{Access, Fault};
