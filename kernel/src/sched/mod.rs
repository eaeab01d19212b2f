// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies, each behind a small trait with Denali's default: who is let in, who runs next, who goes when memory is short.

pub mod gatekeeper;
pub mod pressure;
pub mod scheduler;
pub mod share;

pub use gatekeeper::{Fifo, Gatekeeper};
pub use pressure::{LargestFirst, MemoryPolicy};
pub use scheduler::{Reason, RoundRobin, Scheduler};
pub use share::Share;
