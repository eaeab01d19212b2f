// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel to the operator: requests out, answers in. It exists only if the operator has opened one; otherwise,
//! waiting here never ends.

use core::ptr::addr_of;

use pando_abi::limits::MAX_DESCRIPTOR_BYTES;
use pando_abi::ring::{Descriptor, FAULTED, OUTPUT};

use crate::global::{Global, OnOwnPage};
use crate::hypercall::doorbell;
use crate::ring::{Number, Ring};

/// Bytes of the buffer for answers.
const BUFFER: usize = MAX_DESCRIPTOR_BYTES as usize;

/// The buffer for answers.
#[repr(C)]
struct Answers {
    /// Its descriptor, if the kernel may fill it.
    posted: Option<Number>,
    /// The bytes that were not read yet.
    start: usize,
    end: usize,
    bytes: [u8; BUFFER],
}

static ANSWERS: OnOwnPage<Global<Answers>> = OnOwnPage(Global::new(Answers { posted: None, start: 0, end: 0, bytes: [0; BUFFER] }));

impl Answers {
    /// Offers the empty buffer to the kernel, which fills it at an exit.
    fn post(&mut self) -> Number {
        *self.posted.get_or_insert_with(|| {
            let address = addr_of!(self.bytes).addr() as u64;
            Ring::answers().post(Descriptor { address, length: BUFFER as u32, tag: 0 })
        })
    }

    /// Notes that the kernel has taken the descriptor.
    fn filled(&mut self, descriptor: Descriptor) {
        self.posted = None;
        self.start = 0;
        self.end = if descriptor.length == FAULTED { 0 } else { (descriptor.length as usize).min(BUFFER) };
    }

    /// Copies unread bytes.
    fn copy(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.end - self.start);
        buffer[..count].copy_from_slice(&self.bytes[self.start..self.start + count]);
        self.start += count;
        if self.start == self.end {
            // The kernel fills it at the next exit, if there is more.
            self.post();
        }
        count
    }
}

/// Sends bytes of the libOS, and waits until the kernel has taken them.
pub fn send(bytes: &[u8]) {
    let ring = Ring::requests();
    for piece in bytes.chunks(MAX_DESCRIPTOR_BYTES as usize) {
        // A slice's length fits, by the size of the pieces.
        ring.post(Descriptor { address: piece.as_ptr().addr() as u64, length: piece.len() as u32, tag: OUTPUT });
    }
    ring.wait_uninterruptibly(ring.last());
}

/// Waits for the operator's next bytes. Returns their number; 0 only without room, or once the operator will send no more.
pub fn receive(buffer: &mut [u8]) -> usize {
    ANSWERS.0.with(|answers| {
        if answers.start == answers.end {
            let number = answers.post();
            let descriptor = Ring::answers().wait_uninterruptibly(number);
            answers.filled(descriptor);
            if answers.end == 0 {
                return 0;
            }
        }
        answers.copy(buffer)
    })
}

/// Reads the operator's next bytes, without waiting. `None`: there are none yet, and [`pando_abi::Event::Console`] announces them. 0: the
/// operator will send no more.
pub fn try_receive(buffer: &mut [u8]) -> Option<usize> {
    ANSWERS.0.with(|answers| {
        if answers.start == answers.end {
            let is_new = answers.posted.is_none();
            let number = answers.post();
            if is_new {
                doorbell();
            }
            let descriptor = Ring::answers().taken(number)?;
            answers.filled(descriptor);
            if answers.end == 0 {
                return Some(0);
            }
        }
        Some(answers.copy(buffer))
    })
}
