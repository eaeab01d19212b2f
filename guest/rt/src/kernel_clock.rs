// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's clock, and the offset by which the cell's clock is behind it.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::Ordering;

use crate::hot::HOT;
use crate::hypercall::NO_DEADLINE;
use crate::registers;

/// Nanoseconds of the kernel's clock.
pub(crate) fn now() -> u64 {
    let time = registers::time();
    // SAFETY: every x86-64 has the instruction and cells may execute it.
    time.nanoseconds(unsafe { _rdtsc() })
}

/// The offset of the cell's clock behind the kernel's, in nanoseconds.
pub(crate) fn offset() -> u64 {
    HOT.tail.clock_offset.load(Ordering::Relaxed)
}

/// Lets the cell's clock continue at this time.
pub(crate) fn resume_at(time: u64) {
    HOT.tail.clock_offset.store(now().wrapping_sub(time), Ordering::Relaxed);
}

/// Lets the cell's clock continue at the time at which the operator stopped the cell, if that is how it was frozen.
pub(crate) fn resume() {
    if let Some(stopped) = registers::stopped() {
        resume_at(stopped.wrapping_sub(offset()));
    }
}

/// Converts a deadline of the cell's clock to the kernel's clock.
pub(crate) fn deadline(deadline: u64) -> u64 {
    // Another kernel's clock may be behind the template's.
    if deadline == NO_DEADLINE { NO_DEADLINE } else { deadline.saturating_add_signed(offset().cast_signed()) }
}
