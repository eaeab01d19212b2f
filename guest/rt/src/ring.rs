// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's side of the page of rings.

use core::ptr::{addr_of_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use pando_abi::layout;
use pando_abi::ring::{self as abi, Descriptor, Rings};

use crate::hypercall::{NO_DEADLINE, doorbell};
use crate::{clock, events};

/// The number of a descriptor: the count of those posted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u64);

/// The position of a ring when this cell began: earlier descriptors, and their results, are the source's.
pub(crate) struct CloneStart(AtomicU64);

impl CloneStart {
    /// The first cell has no source. Not zero, so that it lies with the other data that every clone writes.
    pub(crate) const fn new() -> CloneStart {
        CloneStart(AtomicU64::new(u64::MAX))
    }

    /// Records the start of a clone.
    pub(crate) fn set(&self, ring: &Ring) {
        self.0.store(ring.posted.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether the source has posted a descriptor.
    pub(crate) fn is_of_source(&self, number: Number) -> bool {
        // The difference, not the order: the counters may wrap.
        number.0.wrapping_sub(self.0.load(Ordering::Relaxed)).cast_signed() < 0
    }
}

/// One ring of the page: its counters, and the start of its descriptors.
pub(crate) struct Ring {
    posted: &'static AtomicU64,
    taken: &'static AtomicU64,
    descriptors: *mut Descriptor,
    length: u64,
}

fn page() -> *mut Rings {
    with_exposed_provenance_mut(layout::CONSOLE_RINGS as usize)
}

impl Ring {
    /// The ring of output.
    pub(crate) fn transmit() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).console.transmit)) }
    }

    /// The ring of input.
    pub(crate) fn receive() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).console.receive)) }
    }

    /// The ring of requests to the operator.
    pub(crate) fn requests() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).console.requests)) }
    }

    /// The ring of its answers.
    pub(crate) fn answers() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).console.answers)) }
    }

    /// The ring of reports to the operator.
    pub(crate) fn reports() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).control.reports)) }
    }

    /// The ring of its orders.
    pub(crate) fn orders() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).control.orders)) }
    }

    /// The ring of frames to the network.
    pub(crate) fn network_transmit() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).network.transmit)) }
    }

    /// The ring of frames from the network.
    pub(crate) fn network_receive() -> Ring {
        // SAFETY: the place is a ring of the page.
        unsafe { Ring::at(addr_of_mut!((*page()).network.receive)) }
    }

    /// A ring of the page.
    ///
    /// # Safety
    /// 1. `ring` lies in the page of rings.
    unsafe fn at<const N: usize>(ring: *mut abi::Ring<N>) -> Ring {
        // SAFETY: by condition 1; the kernel maps the page, aligned and writable, before the first instruction;
        // counters are only used atomically.
        unsafe {
            Ring {
                posted: AtomicU64::from_ptr(addr_of_mut!((*ring).posted)),
                taken: AtomicU64::from_ptr(addr_of_mut!((*ring).taken)),
                descriptors: addr_of_mut!((*ring).descriptors).cast(),
                length: N as u64,
            }
        }
    }

    /// Whether nothing was ever posted.
    pub(crate) fn is_unused(&self) -> bool {
        self.posted.load(Ordering::Relaxed) == 0
    }

    /// Whether there is a free entry.
    pub(crate) fn has_room(&self) -> bool {
        self.taken(Number(self.posted.load(Ordering::Relaxed).wrapping_sub(self.length))).is_some()
    }

    /// Posts a descriptor if there is a free entry.
    pub(crate) fn try_post(&self, descriptor: Descriptor) -> Option<Number> {
        self.has_room().then(|| self.post(descriptor))
    }

    /// Posts a descriptor, after waiting for a free entry if there is none.
    pub(crate) fn post(&self, descriptor: Descriptor) -> Number {
        let number = self.posted.load(Ordering::Relaxed);
        // The entry's previous descriptor must be taken.
        self.wait_uninterruptibly(Number(number.wrapping_sub(self.length)));
        // SAFETY: the index is inside the ring, and the kernel does not read the entry before `posted` is raised.
        unsafe { self.descriptors.add((number % self.length) as usize).write_volatile(descriptor) };
        self.posted.store(number.wrapping_add(1), Ordering::Release);
        Number(number)
    }

    /// The result of a descriptor; `None`: it was not taken yet. Only valid until the ring reuses its entry.
    pub(crate) fn taken(&self, number: Number) -> Option<Descriptor> {
        // The difference, not the order: the counters may wrap.
        if self.taken.load(Ordering::Acquire).wrapping_sub(number.0).cast_signed() <= 0 {
            return None;
        }
        // SAFETY: the index is inside the ring, and the kernel has written what it had to.
        Some(unsafe { self.descriptors.add((number.0 % self.length) as usize).read_volatile() })
    }

    /// Waits until a descriptor is taken, the clock reaches `deadline`, or an event was noted that the outer caller should handle.
    pub(crate) fn wait(&self, number: Number, deadline: u64) -> Option<Descriptor> {
        self.wait_unless(number, || events::is_interrupted() || deadline != NO_DEADLINE && clock::now() >= deadline, deadline)
    }

    /// Waits until a descriptor is taken, regardless of events.
    pub(crate) fn wait_uninterruptibly(&self, number: Number) -> Descriptor {
        self.wait_unless(number, || false, NO_DEADLINE).expect("nothing else ends this wait")
    }

    fn wait_unless(&self, number: Number, gives_up: impl Fn() -> bool, deadline: u64) -> Option<Descriptor> {
        // An exit for another reason may have taken it.
        if let Some(descriptor) = self.taken(number) {
            return Some(descriptor);
        }
        loop {
            doorbell();
            // Earlier console events show in this ring, or concern another waiter.
            events::note_console();
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
    pub(crate) fn last(&self) -> Number {
        Number(self.posted.load(Ordering::Relaxed).wrapping_sub(1))
    }

    /// Retracts the last posted descriptors: the kernel is done with them when this returns. They hold the number of
    /// bytes moved so far, as any taken descriptor does.
    pub(crate) fn retract(&self, numbers: impl Iterator<Item = Number>) {
        for number in numbers.filter(|number| self.taken(*number).is_none()) {
            // SAFETY: the index is inside the ring; the kernel reads the place only while the cell does not run.
            unsafe { addr_of_mut!((*self.descriptors.add((number.0 % self.length) as usize)).length).write_volatile(0) };
        }
        // An empty descriptor is taken at once.
        doorbell();
    }
}
