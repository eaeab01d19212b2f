// SPDX-License-Identifier: MIT OR Apache-2.0
//! That this cell is a clone: found out before its clock is read and before its events are noted, wherever its source stood.

use core::sync::atomic::Ordering;

use crate::hot::HOT;
use crate::{clock, events, registers};

/// Lets what this runtime keeps begin anew if the cell has become a clone. Returns the generation. Nearly always two loads.
pub(crate) fn catch_up() -> u64 {
    let generation = registers::generation();
    if generation != HOT.tail.generation.load(Ordering::Relaxed) {
        begin(generation);
    }
    generation
}

/// May itself be stopped between any two instructions: its clones then come here again, and each step may be taken twice. Only where that happens between the two moments that
/// [`clock::go_on`] looks at, the clock of the clones is wrong by as long as their source stood still.
#[cold]
fn begin(generation: u64) {
    events::begin_anew();
    clock::go_on();
    // Last, and so that the compiler leaves it there: only now is nothing left to be done.
    HOT.tail.generation.store(generation, Ordering::Release);
}
