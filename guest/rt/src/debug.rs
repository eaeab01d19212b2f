// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports to a parent that watches this cell, as debuggers do.

use pando_abi::{Hypercall, SavedContext};

use crate::hypercall::perform;

/// Reports an event. The parent may change the context meanwhile. Returns its answer: 0 unless it chose another.
pub fn report([kind, first, second, third]: [u64; 4], context: &mut SavedContext) -> u64 {
    let context = core::ptr::from_mut(context);
    // SAFETY: 1: the parent changes the registers of the program, which are read again below. 2: vector registers survive it.
    let answer = unsafe { perform(Hypercall::Report { kind, first, second, third }) };
    // SAFETY: the reference is valid, and volatile accesses keep the compiler from assuming its old content.
    unsafe { context.write_volatile(context.read_volatile()) };
    answer.unwrap_or(0)
}
