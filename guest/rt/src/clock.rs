// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's clock, read without an exit.
//!
//! It stands still while the cell is a template: in a clone it goes on where the template's stood, whenever and on whichever machine that was. So what was to happen in a
//! second happens a second after the clone begins. The kernel's clock runs on; what is said to it or heard from it is converted here.

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

/// How far the cell's clock is behind the kernel's.
fn behind() -> u64 {
    HOT.tail.behind.load(Ordering::Relaxed)
}

/// Lets the clock go on from a moment at which it stood.
pub(crate) fn go_on_from(moment: u64) {
    HOT.tail.behind.store(kernel().wrapping_sub(moment), Ordering::Relaxed);
}

/// The same where nobody here took part: from where the kernel says that it was stopped.
pub(crate) fn go_on() {
    if let Some(stopped) = registers::stopped() {
        go_on_from(stopped.wrapping_sub(behind()));
    }
}

/// A deadline as the kernel counts.
pub(crate) fn to_kernel(deadline: u64) -> u64 {
    // Another kernel's clock may show less than the template's did.
    if deadline == NO_DEADLINE { NO_DEADLINE } else { deadline.saturating_add_signed(behind().cast_signed()) }
}
