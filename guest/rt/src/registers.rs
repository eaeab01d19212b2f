// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's side of the virtual registers: volatile, because the kernel writes them whenever the cell does not run.

use core::ptr::{addr_of, addr_of_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use pando_abi::virtual_registers::{Card, Identity, Memory, MissingCall, Time, VirtualRegisters, Window};
use pando_abi::{EventSet, layout, limits};

/// The page.
pub(crate) fn page() -> *mut VirtualRegisters {
    with_exposed_provenance_mut(layout::VIRTUAL_REGISTERS as usize)
}

/// The pending events. Atomic, because the kernel may add one between a load and a store.
fn pending_word() -> &'static AtomicU64 {
    // SAFETY: the kernel maps the page, aligned and writable, before the first instruction and never takes it away;
    // both sides use the word atomically.
    unsafe { AtomicU64::from_ptr(addr_of_mut!((*page()).control.pending)) }
}

/// The pending events.
#[must_use]
pub fn pending() -> EventSet {
    EventSet(pending_word().load(Ordering::Relaxed))
}

/// Clears events; call it before handling them.
pub fn clear(events: EventSet) {
    pending_word().fetch_and(!events.0, Ordering::Relaxed);
}

/// The deadline of the timer event.
#[must_use]
pub(crate) fn timer() -> u64 {
    // SAFETY: the page is mapped and aligned; the kernel changes the word only while the cell does not run.
    unsafe { addr_of!((*page()).control.timer).read_volatile() }
}

/// Sets the deadline of the timer event.
pub(crate) fn set_timer(deadline: u64) {
    // SAFETY: the page is mapped and aligned, and the word is the cell's own.
    unsafe { addr_of_mut!((*page()).control.timer).write_volatile(deadline) };
}

/// The size of the operator's terminal, if the operator has changed it since the start.
#[must_use]
pub fn window() -> Window {
    // SAFETY: the page is mapped, aligned and holds plain words.
    unsafe { addr_of!((*page()).window).read_volatile() }
}

/// The clock's parameters, read consistently.
#[must_use]
pub fn time() -> Time {
    loop {
        // SAFETY: the page is mapped, aligned and holds plain words; the two reads detect a change between them.
        let (first, second) = unsafe { (addr_of!((*page()).time).read_volatile(), addr_of!((*page()).time).read_volatile()) };
        if first == second {
            return first;
        }
    }
}

/// The cell's memory in use, and its quota.
#[must_use]
pub fn memory() -> Memory {
    // SAFETY: the page is mapped, aligned and holds plain words.
    unsafe { addr_of!((*page()).memory).read_volatile() }
}

/// The network card; its `mtu` is 0 if there is none.
#[must_use]
pub fn card() -> Card {
    // SAFETY: the page is mapped, aligned and holds plain words.
    unsafe { addr_of!((*page()).card).read_volatile() }
}

/// The identity of this cell.
#[must_use]
pub fn identity() -> Identity {
    // SAFETY: the page is mapped and aligned; any bytes are an `Identity`.
    unsafe { addr_of!((*page()).identity).read_volatile() }
}

/// The generation of [`identity`], alone.
#[must_use]
pub fn generation() -> u64 {
    // SAFETY: the page is mapped and aligned; any bytes are a word.
    unsafe { addr_of!((*page()).identity.generation).read_volatile() }
}

/// Nanoseconds for which the cell waited for a vCPU.
pub(crate) fn steal() -> u64 {
    // SAFETY: the page is mapped and aligned; any bytes are a word.
    unsafe { addr_of!((*page()).steal).read_volatile() }
}

/// The kernel's clock at the time when the operator froze this cell's source. `None`: it froze itself.
#[must_use]
pub(crate) fn stopped() -> Option<u64> {
    // SAFETY: the page is mapped and aligned; any bytes are a word.
    let stopped = unsafe { addr_of!((*page()).source_frozen_at).read_volatile() };
    Some(stopped).filter(|stopped| *stopped != 0)
}

/// Counts a system call for the operator's report.
pub fn count_call() {
    // SAFETY: the page is mapped and aligned, and only this side writes the word.
    unsafe {
        let calls = addr_of_mut!((*page()).report.calls);
        calls.write_volatile(calls.read_volatile().wrapping_add(1));
    }
}

/// Counts a system call that is not implemented.
pub fn count_unimplemented(number: u64) {
    // SAFETY: the page is mapped and aligned, and only this side writes the word.
    unsafe {
        let calls = addr_of_mut!((*page()).report.missing_calls);
        calls.write_volatile(calls.read_volatile().wrapping_add(1));
    }
    // A number that does not fit is only counted.
    let Ok(number) = u32::try_from(number) else { return };
    for index in 0..limits::MISSING_CALLS {
        // SAFETY: the page is mapped and aligned, only this side writes the words, and the loop proves that the index is below the length.
        let place = unsafe { addr_of_mut!((*page()).report.missing).cast::<MissingCall>().add(index) };
        // SAFETY: the same.
        let call = unsafe { place.read_volatile() };
        if call.count == 0 || call.number == number {
            // SAFETY: the same.
            unsafe { place.write_volatile(MissingCall { number, count: call.count.saturating_add(1) }) };
            return;
        }
    }
}

/// The unimplemented system calls that were made, with their numbers and counts; only the first different ones.
pub fn missing_calls() -> impl Iterator<Item = MissingCall> {
    // SAFETY: the page is mapped, aligned and holds plain words.
    let calls = unsafe { addr_of!((*page()).report.missing).read_volatile() };
    calls.into_iter().filter(|call| call.count > 0)
}
