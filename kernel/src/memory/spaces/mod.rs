// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address spaces and segments of a cell.

pub mod eviction;
pub mod set;
pub mod space;

pub use set::{PageSpan, SpaceSet};
