// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console: bytes out and in, through the two rings.
//!
//! Output is named where it lies and was taken when a function returns, so a buffer need not outlive the call. Input is received straight into a large buffer;
//! small reads, and waiting for input without reading it, go through one buffer here that is received ahead.

use core::ptr::{addr_of, addr_of_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use pando_abi::limits::{MAX_DESCRIPTOR_BYTES, RECEIVE_DESCRIPTORS, TRANSMIT_DESCRIPTORS};
use pando_abi::ring::{ConsoleRings, Descriptor, ERRORS, OUTPUT};
use pando_abi::{Event, EventSet, layout};

use crate::global::Global;
use crate::hypercall::{NO_DEADLINE, doorbell};
use crate::user::{self, Fault, UserRange};
use crate::{clock, events, registers};

/// What a taken descriptor's length says where its memory was not there.
const NOT_THERE: u32 = u32::MAX;
/// Bytes received ahead.
const AHEAD: usize = 4096;

/// Where output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The standard output.
    Output,
    /// The standard error stream.
    Errors,
}

fn rings() -> *mut ConsoleRings {
    with_exposed_provenance_mut(layout::CONSOLE_RINGS as usize)
}

/// One ring of the page: its counters, and where its descriptors start.
struct Ring {
    posted: &'static AtomicU64,
    taken: &'static AtomicU64,
    descriptors: *mut Descriptor,
    length: u64,
}

impl Ring {
    fn transmit() -> Ring {
        // SAFETY: the kernel maps the page, aligned and writable, before the first instruction; counters are only used atomically.
        unsafe {
            let ring = addr_of_mut!((*rings()).transmit);
            Ring {
                posted: AtomicU64::from_ptr(addr_of_mut!((*ring).posted)),
                taken: AtomicU64::from_ptr(addr_of_mut!((*ring).taken)),
                descriptors: addr_of_mut!((*ring).descriptors).cast(),
                length: TRANSMIT_DESCRIPTORS as u64,
            }
        }
    }

    fn receive() -> Ring {
        // SAFETY: as for `transmit`.
        unsafe {
            let ring = addr_of_mut!((*rings()).receive);
            Ring {
                posted: AtomicU64::from_ptr(addr_of_mut!((*ring).posted)),
                taken: AtomicU64::from_ptr(addr_of_mut!((*ring).taken)),
                descriptors: addr_of_mut!((*ring).descriptors).cast(),
                length: RECEIVE_DESCRIPTORS as u64,
            }
        }
    }

    /// Posts a descriptor and returns its number. The ring must have room: everything posted is waited for, ring by ring.
    fn post(&self, descriptor: Descriptor) -> u64 {
        let number = self.posted.load(Ordering::Relaxed);
        // SAFETY: the index is inside the ring, and the kernel does not read the place before `posted` says so.
        unsafe { self.descriptors.add((number % self.length) as usize).write_volatile(descriptor) };
        self.posted.store(number.wrapping_add(1), Ordering::Release);
        number
    }

    /// What became of a descriptor; `None`: it was not taken yet.
    fn taken(&self, number: u64) -> Option<Descriptor> {
        // The difference, not the order: the counters may wrap.
        if self.taken.load(Ordering::Acquire).wrapping_sub(number).cast_signed() <= 0 {
            return None;
        }
        // SAFETY: the index is inside the ring, and the kernel has written what it had to.
        Some(unsafe { self.descriptors.add((number % self.length) as usize).read_volatile() })
    }

    /// Waits until a descriptor was taken, or the clock reaches `deadline`.
    fn wait(&self, number: u64, deadline: u64) -> Option<Descriptor> {
        loop {
            registers::clear(EventSet::NONE.with(Event::Console));
            doorbell();
            if let Some(descriptor) = self.taken(number) {
                return Some(descriptor);
            }
            if deadline != NO_DEADLINE && clock::now() >= deadline {
                return None;
            }
            events::wait(deadline);
        }
    }
}

/// Sends stretches of memory, given as address and length, one after the other. Returns how many bytes were taken before memory was found missing.
fn send(stream: Stream, stretches: impl Iterator<Item = (u64, u64)>) -> u64 {
    let ring = Ring::transmit();
    let tag = match stream {
        Stream::Output => OUTPUT,
        Stream::Errors => ERRORS,
    };
    let limit = u64::from(MAX_DESCRIPTOR_BYTES);
    let pieces = stretches.flat_map(|(address, length)| {
        (0..length.div_ceil(limit)).map(move |index| (address + index * limit, limit.min(length - index * limit)))
    });
    let mut pieces = pieces.fuse().peekable();
    let mut sent = 0;
    while pieces.peek().is_some() {
        // A ring's worth at a time, then wait for its last descriptor: they are taken in order.
        let first = ring.posted.load(Ordering::Relaxed);
        let mut lengths = [0; TRANSMIT_DESCRIPTORS];
        let mut count = 0;
        for (room, (address, length)) in lengths.iter_mut().zip(&mut pieces) {
            ring.post(Descriptor { address, length: length as u32, tag });
            *room = length;
            count += 1;
        }
        ring.wait(first.wrapping_add(count - 1), NO_DEADLINE);
        for (index, length) in (0..count).zip(lengths) {
            if ring.taken(first.wrapping_add(index)).is_some_and(|descriptor| descriptor.length == NOT_THERE) {
                return sent;
            }
            sent += length;
        }
    }
    sent
}

/// Sends bytes of the application. Returns how many.
///
/// # Errors
/// The first of them cannot be read.
pub fn send_user(stream: Stream, ranges: &[UserRange]) -> Result<u64, Fault> {
    let empty = ranges.iter().all(|range| range.length() == 0);
    match send(stream, ranges.iter().map(|range| (range.start(), range.length()))) {
        0 if !empty => Err(Fault),
        sent => Ok(sent),
    }
}

/// Sends bytes of the libOS.
pub fn send_bytes(stream: Stream, bytes: &[u8]) {
    send(stream, core::iter::once((bytes.as_ptr().addr() as u64, bytes.len() as u64)));
}

/// What was received ahead.
struct Ahead {
    buffer: [u8; AHEAD],
    /// The descriptor that names the buffer, while it is with the kernel.
    posted: Option<u64>,
    /// The part of the buffer that holds bytes nobody has read yet.
    start: usize,
    end: usize,
    /// The input has ended.
    ended: bool,
}

static INPUT: Global<Ahead> = Global::new(Ahead { buffer: [0; AHEAD], posted: None, start: 0, end: 0, ended: false });

impl Ahead {
    /// Waits until there is something to read (bytes or the end), or the clock reaches `deadline`.
    fn fill(&mut self, deadline: u64) -> bool {
        if self.start < self.end || self.ended {
            return true;
        }
        let ring = Ring::receive();
        let address = addr_of!(self.buffer).addr() as u64;
        let number = *self.posted.get_or_insert_with(|| ring.post(Descriptor { address, length: AHEAD as u32, tag: 0 }));
        let Some(descriptor) = ring.wait(number, deadline) else { return false };
        self.posted = None;
        (self.start, self.end) = (0, (descriptor.length as usize).min(AHEAD));
        self.ended = self.end == 0;
        true
    }

    fn drain(&mut self, range: UserRange) -> Result<u64, Fault> {
        let bytes = range.length().min((self.end - self.start) as u64) as usize;
        user::write(range.start(), &self.buffer[self.start..self.start + bytes])?;
        self.start += bytes;
        Ok(bytes as u64)
    }
}

/// Waits until reading would not wait (bytes are there, or the input has ended), or the clock reaches `deadline`. Says which.
pub fn input_ready(deadline: u64) -> bool {
    INPUT.with(|input| input.fill(deadline))
}

/// Receives bytes into memory of the application, at least one unless the input has ended. Returns how many.
///
/// # Errors
/// The memory cannot be written.
pub fn receive_user(range: UserRange) -> Result<u64, Fault> {
    if range.length() == 0 {
        return Ok(0);
    }
    INPUT.with(|input| {
        if range.length() <= AHEAD as u64 || input.start < input.end || input.posted.is_some() || input.ended {
            input.fill(NO_DEADLINE);
            return input.drain(range);
        }
        let length = range.length().min(u64::from(MAX_DESCRIPTOR_BYTES)) as u32;
        let ring = Ring::receive();
        let number = ring.post(Descriptor { address: range.start(), length, tag: 0 });
        match ring.wait(number, NO_DEADLINE).map_or(NOT_THERE, |descriptor| descriptor.length) {
            NOT_THERE => Err(Fault),
            bytes => {
                input.ended = bytes == 0;
                Ok(u64::from(bytes.min(length)))
            }
        }
    })
}
