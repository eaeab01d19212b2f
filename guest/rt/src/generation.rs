// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection that this cell is a clone: before its clock is read and before its events are noted, wherever its source stood.

use core::sync::atomic::Ordering;

use crate::hot::HOT;
use crate::{clock, events, registers};

/// Resets the runtime's state if the cell has become a clone. Returns the generation. Nearly always two loads.
pub(crate) fn catch_up() -> u64 {
    let generation = registers::generation();
    if generation != HOT.tail.generation.load(Ordering::Relaxed) {
        begin(generation);
    }
    generation
}

/// It may itself be stopped between any two instructions: its clones then come here again, and each step may run twice. Only if that
/// happens between the two clock readings of [`clock::go_on`], the clock of the clones is off by as long as their source stood still.
#[cold]
fn begin(generation: u64) {
    events::begin_anew();
    clock::go_on();
    // Last, and ordered after the other steps for the compiler: only now is everything done.
    HOT.tail.generation.store(generation, Ordering::Release);
}
