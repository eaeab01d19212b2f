// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports to a parent that watches this cell, as debuggers do.

use pando_abi::{Hypercall, Refusal, SavedContext};

use crate::hypercall::perform;

/// Reports an event. The parent may change the context meanwhile. Returns its answer: 0 unless it chose another.
///
/// # Errors
/// Nobody watches this cell.
pub fn report(words: [u64; 4], context: &mut SavedContext) -> Result<u64, Refusal> {
    let answer = report_without_context(words);
    read_again(context);
    answer
}

/// Makes a report while the context that runs next is not at hand: it must be [read again](read_again) before it is used.
///
/// # Errors
/// Nobody watches this cell.
pub fn report_without_context([kind, first, second, third]: [u64; 4]) -> Result<u64, Refusal> {
    // SAFETY: 1: the parent changes the registers of the program, which callers read again. 2: vector registers survive it.
    unsafe { perform(Hypercall::Report { kind, first, second, third }) }
}

/// Reads a context that a debugger may have changed.
pub fn read_again(context: &mut SavedContext) {
    let context = core::ptr::from_mut(context);
    // SAFETY: the reference is valid, and volatile accesses keep the compiler from assuming its old content.
    unsafe { context.write_volatile(context.read_volatile()) };
}
