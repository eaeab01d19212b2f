// SPDX-License-Identifier: MIT OR Apache-2.0
//! The isolation kernel.
#![forbid(unsafe_code)]
pub mod cell;
pub mod device;
pub mod limits;
pub mod memory;
pub mod sched;
