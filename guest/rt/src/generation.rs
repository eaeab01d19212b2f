// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection that this cell is a clone: before its clock is read and before its events are noted, wherever its source was stopped.

use core::sync::atomic::Ordering;

use pando_abi::EventSet;

use crate::hot::HOT;
use crate::hypercall::NO_DEADLINE;
use crate::{kernel_clock, registers, timer};

/// Resets the runtime's state if the cell has become a clone. Returns the generation. Nearly always two loads.
pub(crate) fn reset_in_new_clone() -> u64 {
    let generation = registers::generation();
    if generation != HOT.tail.generation.load(Ordering::Relaxed) {
        begin(generation);
    }
    generation
}

/// Resets the state for a new generation. A freeze may interrupt it at any instruction: the clones then run it again, so each step may run
/// twice. Only if that happens between the two clock readings of [`kernel_clock::resume`], the clock of the clones is off by the time for
/// which their source was stopped.
#[cold]
fn begin(generation: u64) {
    // The operator's events were for the source, and so was its timer.
    HOT.tail.noted.fetch_and(!EventSet::REQUESTS.0, Ordering::Relaxed);
    timer::set(NO_DEADLINE);
    kernel_clock::resume();
    // Last, and ordered after the other steps for the compiler: only now is everything done.
    HOT.tail.generation.store(generation, Ordering::Release);
}
