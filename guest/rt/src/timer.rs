// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's timer: one deadline, at which the kernel sends event [`Event::Timer`](pando_abi::Event::Timer).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::hypercall::NO_DEADLINE;
use crate::{hypercall, kernel_clock, registers};

/// The latest deadline that the kernel has certainly read. The register may hold an earlier one, which the kernel reads at the next exit.
static KERNEL_DEADLINE: AtomicU64 = AtomicU64::new(NO_DEADLINE);

/// Makes event `Event::Timer` come once the clock reaches `deadline`, or sooner. An earlier deadline stays, because each change
/// that must take effect in time costs an exit, and an extra event is rare. The event interrupts a computing application in time.
pub fn set_by(deadline: u64) {
    if deadline < KERNEL_DEADLINE.load(Ordering::Relaxed) {
        lower(deadline);
        KERNEL_DEADLINE.store(deadline, Ordering::Relaxed);
        // The kernel reads the register at exits only.
        hypercall::doorbell();
    }
}

/// The same without an exit: the event need not interrupt an application that computes without an exit.
pub fn lower(deadline: u64) {
    let deadline = kernel_clock::deadline(deadline);
    if deadline < registers::timer() {
        registers::set_timer(deadline);
    }
}

/// Makes event `Event::Timer` come once the clock reaches `deadline`, counted from the next exit; [`NO_DEADLINE`]: never.
pub fn set(deadline: u64) {
    KERNEL_DEADLINE.store(deadline, Ordering::Relaxed);
    registers::set_timer(kernel_clock::deadline(deadline));
}

/// Notes that the timer expired: the kernel has no deadline any more.
pub(crate) fn note_expiry() {
    KERNEL_DEADLINE.store(NO_DEADLINE, Ordering::Relaxed);
}
