// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events: virtual interrupts. They are noted wherever they are noticed, and taken by who can do something about them.
//!
//! Noting happens inside anything that waits, whatever the caller holds; so it does nothing but note. What waits for the console returns early when another
//! event was noted: its caller takes what was noted, and decides whether to wait on.

use core::sync::atomic::{AtomicU64, Ordering};

use pando_abi::{Event, EventSet};

use crate::hot::HOT;
use crate::hypercall::NO_DEADLINE;
use crate::{clock, generation, hypercall, registers};

/// The deadline of the timer that the kernel has heard of at least; the register may name an earlier one of which it hears at the next exit.
static TOLD: AtomicU64 = AtomicU64::new(NO_DEADLINE);

/// Notes the events that are pending.
pub fn note() {
    generation::catch_up();
    let pending = registers::pending();
    if !pending.is_empty() {
        registers::clear(pending);
        if pending.contains(Event::Timer) {
            TOLD.store(NO_DEADLINE, Ordering::Relaxed);
        }
        HOT.tail.noted.fetch_or(pending.0, Ordering::Relaxed);
    }
}

/// The events that were noted and not taken.
#[must_use]
pub fn noted() -> EventSet {
    EventSet(HOT.tail.noted.load(Ordering::Relaxed))
}

/// Takes the events that were noted.
#[must_use]
pub fn take() -> EventSet {
    // Seldom is there anything, and a load costs less than a swap.
    if noted().is_empty() { EventSet::NONE } else { EventSet(HOT.tail.noted.swap(0, Ordering::Relaxed)) }
}

/// Forgets an event that was noted and not taken.
pub fn forget(event: Event) {
    HOT.tail.noted.fetch_and(!EventSet::NONE.with(event).0, Ordering::Relaxed);
}

/// Whether something was noted that ends waiting for the console.
#[must_use]
pub(crate) fn disturb() -> bool {
    !noted().without(EventSet::NONE.with(Event::Console)).is_empty()
}

/// Gives up the CPU until an event or until the clock reaches `deadline`, and notes what has happened. The application's vector registers survive.
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

/// Makes event [`Event::Timer`] come once the clock reaches `deadline`, or sooner: what was set for earlier stays, because each change that is to be heard of in time costs an exit, and
/// an event too many seldom comes. An application that computes hears of it in time.
pub fn set_timer_by(deadline: u64) {
    if deadline < TOLD.load(Ordering::Relaxed) {
        lower_timer(deadline);
        TOLD.store(deadline, Ordering::Relaxed);
        // The kernel reads the register at exits only.
        hypercall::doorbell();
    }
}

/// The same for what need not be heard of while an application computes without an exit, and so costs none.
pub fn lower_timer(deadline: u64) {
    let deadline = clock::to_kernel(deadline);
    if deadline < registers::timer() {
        registers::set_timer(deadline);
    }
}

/// Makes event [`Event::Timer`] come once the clock reaches `deadline`, counted from the next exit; [`hypercall::NO_DEADLINE`]: never.
pub fn set_timer(deadline: u64) {
    TOLD.store(deadline, Ordering::Relaxed);
    registers::set_timer(clock::to_kernel(deadline));
}

/// Forgets what was said to the source and not taken, and lets nothing come of a timer that was set there.
pub(crate) fn begin_anew() {
    HOT.tail.noted.fetch_and(!EventSet::WISHES.0, Ordering::Relaxed);
    set_timer(NO_DEADLINE);
}
