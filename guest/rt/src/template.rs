// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell becomes a template, from which it continues as a clone.

use pando_abi::Hypercall;

use crate::hypercall::perform;
use crate::{clock, generation, kernel_clock, registers, vector};

/// Makes this cell a template forever: it returns in each of its clones, whose clocks continue at the template's time.
/// The application's vector registers survive.
pub fn freeze() {
    freeze_by(Hypercall::Freeze {});
}

/// The same if the operator's request still stands; `unaware`: programs run that do not notice it. Returns whether
/// this is a clone; if not, nothing has happened.
pub fn freeze_if_requested(unaware: bool) -> bool {
    freeze_by(Hypercall::FreezeIfAsked { unaware: unaware.into() })
}

fn freeze_by(call: Hypercall) -> bool {
    let (frozen, own) = (clock::now(), registers::generation());
    // SAFETY: 1: it changes no memory but the virtual registers and what ring descriptors name. 2: they are saved around it.
    let generation = vector::preserved(|| unsafe { perform(call) });
    // The call cannot be refused.
    let is_clone = generation.is_ok_and(|generation| generation != own);
    if is_clone {
        generation::reset_in_new_clone();
        kernel_clock::resume_at(frozen);
    }
    is_clone
}
