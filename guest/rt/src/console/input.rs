// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input. Small reads are served from two buffers that the kernel fills in turn, at any exit; large ones go directly
//! to the reader's memory.

use core::ptr::addr_of;
use core::sync::atomic::{AtomicBool, Ordering};

use pando_abi::limits::MAX_DESCRIPTOR_BYTES;
use pando_abi::ring::{Descriptor, FAULTED};

use super::IoError;
use crate::global::{Global, OnOwnPage};
use crate::hypercall::NO_DEADLINE;
use crate::ring::{CloneStart, Number, Ring};
use crate::user::{self, Fault, UserRange};

/// Bytes of each buffer.
const BUFFER: usize = 64 << 10;
const BUFFERS: usize = 2;

/// The state of a buffer.
#[derive(Clone, Copy)]
enum State {
    /// Nothing.
    Empty,
    /// Waiting for input.
    Posted(Number),
    /// It holds unread bytes from `start` to `end`.
    Filled { start: usize, end: usize },
}

/// The input has not ended. It is outside the following structure, and initially not zero, so that it lies with the
/// other data that every clone writes.
static IS_OPEN: AtomicBool = AtomicBool::new(true);
/// The position of the ring when this cell began.
static BEGINNING: CloneStart = CloneStart::new();

#[repr(C)]
struct Input {
    states: [State; BUFFERS],
    /// The buffer whose bytes come next.
    next: usize,
    buffers: [[u8; BUFFER]; BUFFERS],
}

static INPUT: OnOwnPage<Global<Input>> =
    OnOwnPage(Global::new(Input { states: [State::Empty; BUFFERS], next: 0, buffers: [[0; BUFFER]; BUFFERS] }));

impl Input {
    /// Posts the empty buffers, in order.
    fn post(&mut self, ring: &Ring) {
        for index in (0..BUFFERS).map(|offset| (self.next + offset) % BUFFERS) {
            if matches!(self.states[index], State::Empty) {
                let address = addr_of!(self.buffers[index]).addr() as u64;
                self.states[index] = State::Posted(ring.post(Descriptor { address, length: BUFFER as u32, tag: 0 }));
            }
        }
    }

    /// Waits until there is something to read (bytes or the end), or the clock reaches `deadline`.
    fn fill(&mut self, deadline: u64) -> bool {
        let ring = Ring::receive();
        while !has_ended() && !matches!(self.states[self.next], State::Filled { .. }) {
            self.post(&ring);
            let State::Posted(number) = self.states[self.next] else { return true };
            let Some(descriptor) = ring.wait(number, deadline) else { return false };
            let end = (descriptor.length as usize).min(BUFFER);
            self.states[self.next] = if end == 0 { State::Empty } else { State::Filled { start: 0, end } };
            if end == 0 && BEGINNING.is_of_source(number) {
                // That was the end of the source's input.
                self.next = (self.next + 1) % BUFFERS;
            } else {
                IS_OPEN.store(end > 0, Ordering::Relaxed);
            }
        }
        true
    }

    /// Copies the available bytes, from one buffer after the other, without waiting.
    fn drain(&mut self, range: UserRange) -> Result<u64, Fault> {
        let mut done = 0;
        while let State::Filled { end, .. } = self.states[self.next] {
            match self.drain_next(range.part(done, u64::MAX)) {
                Ok(bytes) => done += bytes,
                Err(fault) => return if done > 0 { Ok(done) } else { Err(fault) },
            }
            // A full buffer means that there is more to fetch; otherwise the next one is checked without an exit.
            if done == range.length() || end == BUFFER && !self.fill(0) || end < BUFFER && !self.poll() {
                break;
            }
        }
        Ok(done)
    }

    /// Processes the next buffer if it was filled. Returns whether there is something to read.
    fn poll(&mut self) -> bool {
        match self.states[self.next] {
            State::Posted(number) => Ring::receive().taken(number).is_some() && self.fill(0),
            State::Filled { .. } => true,
            State::Empty => false,
        }
    }

    fn drain_next(&mut self, range: UserRange) -> Result<u64, Fault> {
        let State::Filled { start, end } = self.states[self.next] else { return Ok(0) };
        let bytes = range.length().min((end - start) as u64) as usize;
        user::write(range.start(), &self.buffers[self.next][start..start + bytes])?;
        // A reader of small pieces gets the next ones ahead; a reader of large ones will not need the buffer again.
        if self.advance(bytes) && range.length() <= BUFFER as u64 {
            self.post(&Ring::receive());
        }
        Ok(bytes as u64)
    }

    /// Consumes bytes of the next buffer. Returns whether it is empty now.
    fn advance(&mut self, bytes: usize) -> bool {
        let State::Filled { start, end } = self.states[self.next] else { return false };
        let emptied = start + bytes >= end;
        if emptied {
            self.states[self.next] = State::Empty;
            self.next = (self.next + 1) % BUFFERS;
        } else {
            self.states[self.next] = State::Filled { start: start + bytes, end };
        }
        emptied
    }
}

/// Resets the end of input in a clone.
pub(super) fn reset_in_clone() {
    IS_OPEN.store(true, Ordering::Relaxed);
    BEGINNING.set(&Ring::receive());
}

fn has_ended() -> bool {
    !IS_OPEN.load(Ordering::Relaxed)
}

/// Waits until reading would not block (bytes are available, or the input has ended), or the clock reaches `deadline`.
/// Returns `false` at the deadline.
pub fn input_ready(deadline: u64) -> bool {
    INPUT.0.with(|input| input.fill(deadline))
}

/// Reads available bytes without waiting; 0: the input has ended. `None`: none are available, and event
/// [`pando_abi::Event::Console`] announces the next ones.
pub fn take(buffer: &mut [u8]) -> Option<usize> {
    INPUT.0.with(|input| {
        if !input.fill(0) {
            return None;
        }
        let State::Filled { start, end } = input.states[input.next] else { return Some(0) };
        let bytes = buffer.len().min(end - start);
        buffer[..bytes].copy_from_slice(&input.buffers[input.next][start..start + bytes]);
        input.advance(bytes);
        Some(bytes)
    })
}

/// Receives bytes into memory of the application, at least one unless the input has ended. Returns their number.
///
/// # Errors
/// The memory cannot be written, or an event came first.
pub fn receive_user(range: UserRange) -> Result<u64, IoError> {
    if range.length() == 0 {
        return Ok(0);
    }
    INPUT.0.with(|input| {
        let has_pending = input.states.iter().any(|state| !matches!(state, State::Empty));
        if range.length() <= BUFFER as u64 || has_pending || has_ended() {
            return if input.fill(NO_DEADLINE) { Ok(input.drain(range)?) } else { Err(IoError::Event) };
        }
        let length = range.length().min(u64::from(MAX_DESCRIPTOR_BYTES)) as u32;
        let ring = Ring::receive();
        let number = ring.post(Descriptor { address: range.start(), length, tag: 0 });
        let taken = ring.wait(number, NO_DEADLINE);
        let is_complete = taken.is_some();
        let descriptor = taken.unwrap_or_else(|| {
            ring.retract(core::iter::once(number));
            ring.wait_uninterruptibly(number)
        });
        match descriptor.length {
            FAULTED => Err(IoError::Fault),
            0 if !is_complete => Err(IoError::Event),
            bytes => {
                IS_OPEN.store(bytes > 0, Ordering::Relaxed);
                Ok(u64::from(bytes.min(length)))
            }
        }
    })
}
