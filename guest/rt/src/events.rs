// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events: virtual interrupts. Any waiting code notes them, and the code that can handle them takes them.
//!
//! Noting happens inside anything that waits, whatever the caller holds; so it only sets bits. A wait for the console
//! returns early when another event was noted: its caller takes the noted events, and decides whether to continue waiting.

use core::sync::atomic::{AtomicU64, Ordering};

use pando_abi::{Event, EventSet};

use crate::hot::HOT;
use crate::hypercall::NO_DEADLINE;
use crate::{clock, generation, hypercall, registers};

/// The latest deadline that the kernel has certainly read. The register may hold an earlier one, which the kernel reads at the next exit.
static KERNEL_DEADLINE: AtomicU64 = AtomicU64::new(NO_DEADLINE);

/// Notes the events that are pending.
pub fn note() {
    generation::catch_up();
    let pending = registers::pending();
    if !pending.is_empty() {
        registers::clear(pending);
        if pending.contains(Event::Timer) {
            KERNEL_DEADLINE.store(NO_DEADLINE, Ordering::Relaxed);
        }
        HOT.tail.noted.fetch_or(pending.0, Ordering::Relaxed);
    }
}

/// Notes event [`Event::Console`] alone, for who looks at a ring of the console itself: others may wait for the same event.
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
pub(crate) fn disturb() -> bool {
    !noted().without(EventSet::NONE.with(Event::Console)).is_empty()
}

/// Gives up the CPU until an event or until the clock reaches `deadline`, and notes the events. The application's vector registers survive.
pub fn wait(deadline: u64) {
    let start = clock::now();
    hypercall::idle(deadline);
    HOT.tail.waited.fetch_add(clock::now().saturating_sub(start), Ordering::Relaxed);
    note();
}

/// Nanoseconds that were spent waiting.
#[must_use]
pub fn waited() -> u64 {
    HOT.tail.waited.load(Ordering::Relaxed)
}

/// Makes event [`Event::Timer`] come once the clock reaches `deadline`, or sooner. An earlier deadline stays, because each change
/// that must take effect in time costs an exit, and an extra event is rare. The event interrupts a computing application in time.
pub fn set_timer_by(deadline: u64) {
    if deadline < KERNEL_DEADLINE.load(Ordering::Relaxed) {
        lower_timer(deadline);
        KERNEL_DEADLINE.store(deadline, Ordering::Relaxed);
        // The kernel reads the register at exits only.
        hypercall::doorbell();
    }
}

/// The same without an exit: the event need not interrupt an application that computes without an exit.
pub fn lower_timer(deadline: u64) {
    let deadline = clock::to_kernel(deadline);
    if deadline < registers::timer() {
        registers::set_timer(deadline);
    }
}

/// Makes event [`Event::Timer`] come once the clock reaches `deadline`, counted from the next exit; [`hypercall::NO_DEADLINE`]: never.
pub fn set_timer(deadline: u64) {
    KERNEL_DEADLINE.store(deadline, Ordering::Relaxed);
    registers::set_timer(clock::to_kernel(deadline));
}

/// Discards the operator's events for the source that were not taken, and disables a timer that the source set.
pub(crate) fn begin_anew() {
    HOT.tail.noted.fetch_and(!EventSet::REQUESTS.0, Ordering::Relaxed);
    set_timer(NO_DEADLINE);
}
