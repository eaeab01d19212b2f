// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control channel: orders in, reports out. No function here waits; event [`pando_abi::Event::Control`] announces work.

use core::ptr::addr_of;

use pando_abi::limits::CHANNEL_DESCRIPTORS;
use pando_abi::ring::{Descriptor, FAULTED, OUTPUT};

use crate::global::{Global, OnOwnPage};
use crate::registers;
use crate::ring::{Number, Ring};

/// Maximum length of a report in bytes.
pub const MAX_REPORT_BYTES: usize = 4096;
/// Maximum number of reports in the ring.
const MAX_REPORTS: usize = 4;
/// Size of the receive buffer in bytes.
const COMMAND_BUFFER_BYTES: usize = 32 << 10;

const _: () = assert!(MAX_REPORTS <= CHANNEL_DESCRIPTORS);

#[repr(C)]
struct Control {
    /// The generation whose rings the numbers refer to.
    generation: u64,
    /// The descriptor of the buffer for orders, while the kernel owns it.
    orders: Option<Number>,
    /// The descriptor of each report until the kernel has taken it.
    reports: [Option<Number>; MAX_REPORTS],
    room: [u8; COMMAND_BUFFER_BYTES],
    slots: [[u8; MAX_REPORT_BYTES]; MAX_REPORTS],
}

static CONTROL: OnOwnPage<Global<Control>> = OnOwnPage(Global::new(Control {
    generation: 0,
    orders: None,
    reports: [None; MAX_REPORTS],
    room: [0; COMMAND_BUFFER_BYTES],
    slots: [[0; MAX_REPORT_BYTES]; MAX_REPORTS],
}));

impl Control {
    /// A slot that the kernel has taken or that was never used.
    fn free(&self) -> Option<usize> {
        let ring = Ring::reports();
        (0..MAX_REPORTS).find(|slot| self.reports[*slot].is_none_or(|number| ring.taken(number).is_some()))
    }

    /// Gives the kernel the buffer for orders.
    fn post(&mut self) {
        let address = addr_of!(self.room).addr() as u64;
        self.orders = Ring::orders().try_post(Descriptor { address, length: COMMAND_BUFFER_BYTES as u32, tag: 0 });
    }
}

/// Passes the received bytes to `each`, in order, and posts the buffer again.
pub fn take(each: &mut dyn FnMut(&[u8])) {
    CONTROL.0.with(|control| {
        let ring = Ring::orders();
        let generation = registers::generation();
        if ring.is_unused() || control.generation != generation {
            // Earlier descriptors are in the rings of another cell, and so are their results.
            (control.generation, control.orders, control.reports) = (generation, None, [None; MAX_REPORTS]);
        }
        let taken = control.orders.and_then(|number| ring.taken(number));
        if let Some(Descriptor { length, .. }) = taken {
            let length = if length == FAULTED { 0 } else { (length as usize).min(COMMAND_BUFFER_BYTES) };
            each(&control.room[..length]);
            control.orders = None;
        }
        if control.orders.is_none() {
            control.post();
        }
    });
}

/// Sends a report, which consists of the parts and has at most [`MAX_REPORT_BYTES`] bytes, at the next exit. `false`: there is no room for
/// it yet.
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
