// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's clock, read without an exit.
//!
//! It stands still while the cell is a template: in a clone it continues at the template's time, whenever and on
//! whichever machine that was. So a timeout of one second expires a second after the clone begins. The kernel's clock
//! continues; `kernel_clock.rs` converts times that the kernel gets or returns.

use crate::{generation, kernel_clock, registers};

/// Nanoseconds of the cell's clock.
#[must_use]
pub fn now() -> u64 {
    loop {
        let generation = generation::reset_in_new_clone();
        let now = kernel_clock::now().wrapping_sub(kernel_clock::offset());
        // A source may be stopped between any two instructions.
        if registers::generation() == generation {
            return now;
        }
    }
}

/// Nanoseconds of the cell's clock without those for which the cell waited for a vCPU: the clock of CPU time.
#[must_use]
pub fn running() -> u64 {
    loop {
        let steal = registers::steal();
        let running = now().wrapping_sub(steal);
        // The cell may have waited between the two.
        if registers::steal() == steal {
            return running;
        }
    }
}

/// Nanoseconds since 1970.
#[must_use]
pub fn wall() -> u64 {
    registers::time().wall_base.wrapping_add(kernel_clock::now())
}
