// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling policies, each a small trait with a default: admission, the choice of the next cell, the victim when memory is
//! short.

pub(crate) mod cpu_budget;
pub(crate) mod donation;
pub mod fair_share;
pub mod gatekeeper;
pub mod oom;
pub mod scheduler;

pub use fair_share::FairShare;
pub use gatekeeper::{Fifo, Gatekeeper};
pub use oom::{LargestFirst, OomPolicy};
pub use scheduler::{ReadyReason, Scheduler};
