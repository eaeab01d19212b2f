// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's driver of the network card: frames out and in, in batches.
//!
//! Both rings have a buffer for each of their descriptors, in memory that is allocated on first access: little and
//! rare traffic stays in the first pages of the first buffer.

use core::ptr::with_exposed_provenance_mut;
use core::slice;

use pando_abi::frame::{self, FRAME_MAX, Frames, HEADER};
use pando_abi::limits::{MAX_DESCRIPTOR_BYTES, NETWORK_DESCRIPTORS};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::ring::{Descriptor, FAULTED};
use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions, layout};

use crate::clock;
use crate::hypercall::{doorbell, perform};
use crate::ring::{Number, Ring};

/// Bytes of a buffer.
const BUFFER: usize = MAX_DESCRIPTOR_BYTES as usize;
/// Address of the buffers: before the heap, in the same GiB as all data that a cell writes, so that a cell without
/// traffic has no table for them.
const BUFFERS: u64 = layout::SYSTEM_FREE;
/// The end of the buffers, where the heap continues.
#[cfg(target_os = "none")]
pub(crate) const BUFFERS_END: u64 = BUFFERS + PAGES * PAGE_SIZE;
/// Address of the receive buffers.
const RECEIVED: u64 = BUFFERS + (NETWORK_DESCRIPTORS * BUFFER) as u64;
/// Receive buffers that are offered at a time. With fewer, each is reused sooner, while a cache still has it. Two hold
/// a TCP window; frames that arrive while both are full wait at the card's port.
const OFFERED: usize = 2;
/// Pages of all buffers.
const PAGES: u64 = (2 * NETWORK_DESCRIPTORS * BUFFER) as u64 / PAGE_SIZE;
/// Nanoseconds that frames wait at most, while calls are made, for an exit that happens anyway.
const DOORBELL_DELAY: u64 = 200_000;

/// A buffer of the transmit or receive half, by its number.
///
/// # Safety
/// 1. [`open`] has mapped the buffers.
/// 2. Nothing else refers to this one, and the kernel has not been given it, or is done with it.
unsafe fn buffer(of: u64, number: usize) -> &'static mut [u8] {
    let address = of as usize + number % NETWORK_DESCRIPTORS * BUFFER;
    // SAFETY: by the conditions: mapped, writable for the cell's life, inside the half; any bytes are bytes.
    unsafe { slice::from_raw_parts_mut(with_exposed_provenance_mut(address), BUFFER) }
}

/// The transmit side of the card.
pub struct Sender {
    /// The buffer that is being filled, and its length so far.
    number: usize,
    filled: usize,
    /// The last posted batch, and the time since which the kernel has not caught up.
    last: Option<(Number, u64)>,
}

/// The receive side of the card.
pub struct Receiver {
    /// The posted descriptors, in the order of their buffers.
    posted: [Option<Number>; OFFERED],
    /// The index of the next one.
    next: usize,
}

/// Initialises the card, once. `None`: there is no memory for its tables.
#[must_use]
pub fn open() -> Option<(Sender, Receiver)> {
    let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
    // SAFETY: 1: nothing else is ever mapped there. 2: vector registers survive the call.
    unsafe { perform(Hypercall::Map { space: CURRENT_SPACE, address: BUFFERS, pages: PAGES, flags }) }.ok()?;
    let mut receiver = Receiver { posted: [None; OFFERED], next: 0 };
    (0..OFFERED).for_each(|number| receiver.offer(number));
    Some((Sender { number: 0, filled: 0, last: None }, receiver))
}

impl Sender {
    /// Room for a frame of up to `length` bytes. `None`: the kernel has not taken enough of the earlier frames.
    pub fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        if length > FRAME_MAX {
            return None;
        }
        if self.filled + frame::room(length) > BUFFER {
            self.post();
        }
        if self.filled == 0 {
            self.choose_transmit_buffer()?;
        }
        // SAFETY: 1: a sender is made after they were mapped. 2: a buffer is begun only once the kernel is done with
        // it, and `self` is borrowed.
        let buffer = unsafe { buffer(BUFFERS, self.number) };
        let start = self.filled + HEADER;
        Some(&mut buffer[start..start + length])
    }

    /// Adds the first bytes of the room just given as a frame.
    pub fn commit(&mut self, length: usize) {
        // SAFETY: as for `room`.
        let buffer = unsafe { buffer(BUFFERS, self.number) };
        buffer[self.filled..self.filled + HEADER].copy_from_slice(&frame::header(length));
        self.filled += frame::room(length);
    }

    /// Chooses the buffer of the next batch: the first, if the kernel has taken everything.
    fn choose_transmit_buffer(&mut self) -> Option<()> {
        let ring = Ring::network_transmit();
        if !ring.has_room() {
            // Without an exit, a sender would wait for room, or lose frames, until one happens.
            doorbell();
        }
        match self.last {
            Some((last, _)) if ring.taken(last).is_none() => {
                // The others are posted, in order; the one after the last is free if its descriptor is.
                ring.has_room().then_some(())
            }
            _ => {
                (self.last, self.number) = (None, 0);
                Some(())
            }
        }
    }

    /// Posts the committed frames; the kernel reads them at the next exit.
    pub fn post(&mut self) {
        if self.filled == 0 {
            return;
        }
        let address = BUFFERS + (self.number * BUFFER) as u64;
        let number = Ring::network_transmit().post(Descriptor { address, length: self.filled as u32, tag: 0 });
        self.last = Some((number, self.last.map_or_else(clock::now, |(_, since)| since)));
        self.number = (self.number + 1) % NETWORK_DESCRIPTORS;
        self.filled = 0;
    }

    /// Rings the doorbell if frames have waited long enough.
    pub fn ring_if_overdue(&mut self) {
        if let Some((last, since)) = self.last {
            if Ring::network_transmit().taken(last).is_some() {
                self.last = None;
            } else if clock::now().saturating_sub(since) > DOORBELL_DELAY {
                doorbell();
                // The kernel processes a part at a time: the rest is still its own.
                if Ring::network_transmit().taken(last).is_some() {
                    self.last = None;
                }
            }
        }
    }
}

impl Receiver {
    /// Gives the kernel a buffer.
    fn offer(&mut self, number: usize) {
        let address = RECEIVED + (number * BUFFER) as u64;
        self.posted[number] = Ring::network_receive().try_post(Descriptor { address, length: BUFFER as u32, tag: 0 });
    }

    /// Passes the received frames to `each`, in order.
    pub fn receive(&mut self, each: &mut dyn FnMut(&[u8])) {
        while let Some(number) = self.posted[self.next]
            && let Some(taken) = Ring::network_receive().taken(number)
        {
            let length = if taken.length == FAULTED { 0 } else { (taken.length as usize).min(BUFFER) };
            // SAFETY: 1: a receiver is made after they were mapped. 2: the kernel has taken the descriptor, so it is
            // done with the buffer until `offer` gives it back.
            let batch = unsafe { &buffer(RECEIVED, self.next)[..length] };
            Frames::of(batch).for_each(|place| each(&batch[place]));
            self.offer(self.next);
            self.next = (self.next + 1) % OFFERED;
        }
    }
}
