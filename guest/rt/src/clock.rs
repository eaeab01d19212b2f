// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's clock, read without an exit.
//!
//! It stands still while the cell is a template: in a clone it continues at the template's time, whenever and on
//! whichever machine that was. So a timeout of one second expires a second after the clone begins. The kernel's clock
//! continues; this module converts times that the kernel gets or returns.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::Ordering;

use crate::hot::HOT;
use crate::hypercall::NO_DEADLINE;
use crate::{generation, registers};

/// Nanoseconds of the cell's clock.
#[must_use]
pub fn now() -> u64 {
    loop {
        let generation = generation::catch_up();
        let now = kernel().wrapping_sub(behind());
        // A source may be stopped between any two instructions.
        if registers::generation() == generation {
            return now;
        }
    }
}

/// Nanoseconds since 1970.
#[must_use]
pub fn wall() -> u64 {
    registers::time().wall_base.wrapping_add(kernel())
}

/// Nanoseconds of the kernel's clock.
fn kernel() -> u64 {
    let time = registers::time();
    // SAFETY: every x86-64 has the instruction and cells may execute it.
    time.nanoseconds(unsafe { _rdtsc() })
}

/// The offset of the cell's clock behind the kernel's.
fn behind() -> u64 {
    HOT.tail.behind.load(Ordering::Relaxed)
}

/// Restarts the clock at the time at which it stood.
pub(crate) fn go_on_from(moment: u64) {
    HOT.tail.behind.store(kernel().wrapping_sub(moment), Ordering::Relaxed);
}

/// The same for a cell that was frozen by the operator: the kernel provides the time at which it was stopped.
pub(crate) fn go_on() {
    if let Some(stopped) = registers::stopped() {
        go_on_from(stopped.wrapping_sub(behind()));
    }
}

/// Converts a deadline to the kernel's clock.
pub(crate) fn to_kernel(deadline: u64) -> u64 {
    // Another kernel's clock may be behind the template's.
    if deadline == NO_DEADLINE { NO_DEADLINE } else { deadline.saturating_add_signed(behind().cast_signed()) }
}
