// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event times: numbers from one counter of the cell, so that events of files and signals can be compared and sorted.

use core::sync::atomic::{AtomicU64, Ordering};

/// The time of the last event. It does not start at zero, so that it lies with the other data that every clone writes, and costs no extra
/// page.
static LAST: AtomicU64 = AtomicU64::new(1);

/// A new event time, after all others.
#[must_use]
pub fn next_event_time() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
