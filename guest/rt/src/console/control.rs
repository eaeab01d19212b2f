// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control channel: orders in, reports out. Nothing here waits; event [`pando_abi::Event::Control`] says when there is something to do.

use core::ptr::addr_of;

use pando_abi::limits::CHANNEL_DESCRIPTORS;
use pando_abi::ring::{Descriptor, FAULTED, OUTPUT};

use crate::global::{Global, OnOwnPage};
use crate::registers;
use crate::ring::{Number, Ring};

/// Bytes of the longest report.
pub const REPORT: usize = 4096;
/// Reports that may be under way.
const REPORTS: usize = 4;
/// Bytes that may come at a time.
const ORDERS: usize = 32 << 10;

const _: () = assert!(REPORTS <= CHANNEL_DESCRIPTORS);

#[repr(C)]
struct Control {
    /// The generation to which the rings belong that the numbers are of.
    generation: u64,
    /// What the orders come into, while it is the kernel's.
    orders: Option<Number>,
    /// Each until the kernel has taken it.
    reports: [Option<Number>; REPORTS],
    room: [u8; ORDERS],
    slots: [[u8; REPORT]; REPORTS],
}

static CONTROL: OnOwnPage<Global<Control>> = OnOwnPage(Global::new(Control {
    generation: 0,
    orders: None,
    reports: [None; REPORTS],
    room: [0; ORDERS],
    slots: [[0; REPORT]; REPORTS],
}));

impl Control {
    /// A slot that nobody reads any more.
    fn free(&self) -> Option<usize> {
        let ring = Ring::reports();
        (0..REPORTS).find(|slot| self.reports[*slot].is_none_or(|number| ring.taken(number).is_some()))
    }

    /// Gives the kernel the room for orders.
    fn post(&mut self) {
        let address = addr_of!(self.room).addr() as u64;
        self.orders = Ring::orders().try_post(Descriptor { address, length: ORDERS as u32, tag: 0 });
    }
}

/// Hands out the bytes that have come, in their order, and lets more come.
pub fn take(each: &mut dyn FnMut(&[u8])) {
    CONTROL.0.with(|control| {
        let ring = Ring::orders();
        let generation = registers::generation();
        if ring.is_fresh() || control.generation != generation {
            // Whatever was posted is in the rings of another cell, or will be; and so is what came of it.
            (control.generation, control.orders, control.reports) = (generation, None, [None; REPORTS]);
        }
        let taken = control.orders.and_then(|number| ring.taken(number));
        if let Some(Descriptor { length, .. }) = taken {
            let length = if length == FAULTED { 0 } else { (length as usize).min(ORDERS) };
            each(&control.room[..length]);
            control.orders = None;
        }
        if control.orders.is_none() {
            control.post();
        }
    });
}

/// Reports what the parts are together, at most [`REPORT`] bytes, at the next exit. `false`: there is no room for it yet.
pub fn report(parts: [&[u8]; 2]) -> bool {
    CONTROL.0.with(|control| {
        let Some(slot) = control.free() else { return false };
        let room = &mut control.slots[slot];
        let mut length = 0;
        for part in parts {
            let Some(room) = room.get_mut(length..length + part.len()) else { return true };
            room.copy_from_slice(part);
            length += part.len();
        }
        let address = room.as_ptr().addr() as u64;
        control.reports[slot] = Some(Ring::reports().post(Descriptor { address, length: length as u32, tag: OUTPUT }));
        true
    })
}

/// Whether there is room for a report.
#[must_use]
pub fn has_room() -> bool {
    CONTROL.0.with(|control| control.free().is_some())
}
