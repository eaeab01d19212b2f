// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events: virtual interrupts. Any waiting code notes them, and the code that can handle them takes them.
//!
//! To note events only sets bits, because it happens in every wait, whatever the caller is doing. A wait for the console
//! returns early when another event was noted: its caller takes the noted events, and decides whether to continue waiting.

use core::sync::atomic::Ordering;

use pando_abi::{Event, EventSet};

use crate::hot::HOT;
use crate::{clock, generation, hypercall, kernel_clock, registers, timer};

/// Notes the events that are pending.
pub fn note() {
    generation::reset_in_new_clone();
    let pending = registers::pending();
    if !pending.is_empty() {
        registers::clear(pending);
        if pending.contains(Event::Timer) {
            timer::note_expiry();
        }
        HOT.tail.noted.fetch_or(pending.0, Ordering::Relaxed);
    }
}

/// Notes event [`Event::Console`] alone, for code that looks at a ring of the console itself: other code may wait for the same event.
pub(crate) fn note_console() {
    if registers::pending().contains(Event::Console) {
        let console = EventSet::NONE.with(Event::Console);
        registers::clear(console);
        HOT.tail.noted.fetch_or(console.0, Ordering::Relaxed);
    }
}

/// The events that were noted and not taken.
#[must_use]
pub fn noted() -> EventSet {
    EventSet(HOT.tail.noted.load(Ordering::Relaxed))
}

/// Takes the noted events.
#[must_use]
pub fn take() -> EventSet {
    // There is seldom one, and a load costs less than a swap.
    if noted().is_empty() { EventSet::NONE } else { EventSet(HOT.tail.noted.swap(0, Ordering::Relaxed)) }
}

/// Discards an event that was noted and not taken.
pub fn forget(event: Event) {
    HOT.tail.noted.fetch_and(!EventSet::NONE.with(event).0, Ordering::Relaxed);
}

/// Whether a noted event ends waiting for the console.
#[must_use]
pub(crate) fn is_interrupted() -> bool {
    !noted().without(EventSet::NONE.with(Event::Console)).is_empty()
}

/// Gives up the CPU until an event or until the clock reaches `deadline`, and notes the events. The application's vector registers survive.
pub fn wait(deadline: u64) {
    let start = clock::now();
    hypercall::idle(kernel_clock::deadline(deadline));
    HOT.tail.waited.fetch_add(clock::now().saturating_sub(start), Ordering::Relaxed);
    note();
}

/// Nanoseconds that were spent waiting.
#[must_use]
pub fn waited() -> u64 {
    HOT.tail.waited.load(Ordering::Relaxed)
}
