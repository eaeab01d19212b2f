// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events: virtual interrupts, handed to one handler wherever they are noticed.

use pando_abi::EventSet;

use crate::hot::HOT;
use crate::{hypercall, registers};

/// Sets the handler. It may be called inside any function that waits, so it must not use what such a caller holds.
pub fn handle_with(handler: fn(EventSet)) {
    HOT.tail.on_events.with(|current| *current = Some(handler));
}

/// Takes the pending events and hands them to the handler.
pub fn deliver() {
    let pending = registers::pending();
    if !pending.is_empty() {
        registers::clear(pending);
        if let Some(handler) = HOT.tail.on_events.with(|handler| *handler) {
            handler(pending);
        }
    }
}

/// Gives up the CPU until an event or until the clock reaches `deadline`, and delivers what has happened. The application's vector registers
/// survive.
pub fn wait(deadline: u64) {
    hypercall::idle(deadline);
    deliver();
}
