// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts of a stack, as a gateway's report carries them from one process to another.

use serde::{Deserialize, Serialize};

/// The fields of [`pando_stack::Counts`], which knows nothing of formats.
#[derive(Serialize, Deserialize)]
#[serde(remote = "pando_stack::Counts")]
pub(crate) struct StackCounts {
    connections: usize,
    half_open: usize,
    time_wait: usize,
    neighbours: usize,
    buffer_bytes: usize,
    waiting_bytes: usize,
    received: u64,
    ignored: u64,
    sent: u64,
    retransmitted: u64,
    half_open_dropped: u64,
    polls: u64,
}
