// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's clock, read without an exit.

use core::arch::x86_64::_rdtsc;

use crate::registers;

/// Nanoseconds of the cell's clock.
#[must_use]
pub fn now() -> u64 {
    let time = registers::time();
    // SAFETY: every x86-64 has the instruction and cells may execute it.
    time.nanoseconds(unsafe { _rdtsc() })
}

/// Nanoseconds since 1970.
#[must_use]
pub fn wall() -> u64 {
    registers::time().wall_base.wrapping_add(now())
}
