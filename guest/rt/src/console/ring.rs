// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rings of the console's page, from the cell's side.

use core::ptr::{addr_of_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use pando_abi::ring::{self as abi, ConsoleRings, Descriptor};
use pando_abi::{Event, EventSet, layout};

use crate::hypercall::{NO_DEADLINE, doorbell};
use crate::{clock, events, registers};

/// The number of a descriptor: how many were posted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

/// One ring of the page: its counters, and where its descriptors start.
pub(super) struct Ring {
    posted: &'static AtomicU64,
    taken: &'static AtomicU64,
    descriptors: *mut Descriptor,
    length: u64,
}

fn page() -> *mut ConsoleRings {
    with_exposed_provenance_mut(layout::CONSOLE_RINGS as usize)
}

impl Ring {
    /// The ring of output.
    pub(super) fn transmit() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).transmit)) }
    }

    /// The ring of input.
    pub(super) fn receive() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).receive)) }
    }

    /// The ring of requests to the operator.
    pub(super) fn requests() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).requests)) }
    }

    /// The ring of its answers.
    pub(super) fn answers() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).answers)) }
    }

    /// A ring of the page.
    ///
    /// # Safety
    /// 1. `ring` lies in the page of the console's rings.
    unsafe fn at<const N: usize>(ring: *mut abi::Ring<N>) -> Ring {
        // SAFETY: by condition 1; the kernel maps the page, aligned and writable, before the first instruction; counters are only used atomically.
        unsafe {
            Ring {
                posted: AtomicU64::from_ptr(addr_of_mut!((*ring).posted)),
                taken: AtomicU64::from_ptr(addr_of_mut!((*ring).taken)),
                descriptors: addr_of_mut!((*ring).descriptors).cast(),
                length: N as u64,
            }
        }
    }

    /// Posts a descriptor, after waiting for a free place if there is none.
    pub(super) fn post(&self, descriptor: Descriptor) -> Number {
        let number = self.posted.load(Ordering::Relaxed);
        // Whoever had the place last must be done with it.
        self.wait_anyway(Number(number.wrapping_sub(self.length)));
        // SAFETY: the index is inside the ring, and the kernel does not read the place before `posted` says so.
        unsafe { self.descriptors.add((number % self.length) as usize).write_volatile(descriptor) };
        self.posted.store(number.wrapping_add(1), Ordering::Release);
        Number(number)
    }

    /// What became of a descriptor; `None`: it was not taken yet. To be asked while the ring has not come round to its place again.
    pub(super) fn taken(&self, number: Number) -> Option<Descriptor> {
        // The difference, not the order: the counters may wrap.
        if self.taken.load(Ordering::Acquire).wrapping_sub(number.0).cast_signed() <= 0 {
            return None;
        }
        // SAFETY: the index is inside the ring, and the kernel has written what it had to.
        Some(unsafe { self.descriptors.add((number.0 % self.length) as usize).read_volatile() })
    }

    /// Waits until a descriptor was taken, or the clock reaches `deadline`, or something has happened that the caller's caller should look at.
    pub(super) fn wait(&self, number: Number, deadline: u64) -> Option<Descriptor> {
        self.wait_unless(number, || events::disturb() || deadline != NO_DEADLINE && clock::now() >= deadline, deadline)
    }

    /// Waits until a descriptor was taken, whatever happens.
    pub(super) fn wait_anyway(&self, number: Number) -> Descriptor {
        self.wait_unless(number, || false, NO_DEADLINE).expect("nothing else ends this wait")
    }

    fn wait_unless(&self, number: Number, gives_up: impl Fn() -> bool, deadline: u64) -> Option<Descriptor> {
        // An exit for another reason may have done it.
        if let Some(descriptor) = self.taken(number) {
            return Some(descriptor);
        }
        loop {
            registers::clear(EventSet::NONE.with(Event::Console));
            doorbell();
            if let Some(descriptor) = self.taken(number) {
                return Some(descriptor);
            }
            if gives_up() {
                return None;
            }
            events::wait(deadline);
        }
    }

    /// The descriptor that was posted last.
    pub(super) fn last(&self) -> Number {
        Number(self.posted.load(Ordering::Relaxed).wrapping_sub(1))
    }

    /// Takes descriptors back, the last ones that were posted: the kernel is done with them when this returns. What it had moved by then stands in them, as in any that was taken.
    pub(super) fn retract(&self, numbers: impl Iterator<Item = Number>) {
        for number in numbers.filter(|number| self.taken(*number).is_none()) {
            // SAFETY: the index is inside the ring; the kernel reads the place only while the cell does not run.
            unsafe { addr_of_mut!((*self.descriptors.add((number.0 % self.length) as usize)).length).write_volatile(0) };
        }
        // What is empty is taken at once.
        doorbell();
    }
}
