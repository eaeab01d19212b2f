// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output. Small pieces are copied and taken at any next exit, which the first end of a line after a pause causes itself. Large ones are
//! posted in place and waited for.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::iter::Peekable;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pando_abi::limits::{MAX_DESCRIPTOR_BYTES, TRANSMIT_DESCRIPTORS};
use pando_abi::ring::{Descriptor, ERRORS, FAULTED, NO_READER, NOTES, OUTPUT};

use super::{IoError, Stream};
use crate::clock;
use crate::global::{Global, OnOwnPage};
use crate::hypercall::{NO_DEADLINE, doorbell};
use crate::ring::{CloneStart, Number, Ring};
use crate::user::{self, UserRange};

/// Bytes of a slot: the usual size of programs' buffers. So many are sent whole or not at all.
pub const SLOT: usize = 4096;
const SLOTS: usize = 16;
/// Additional slots, which are allocated once all slots were in use [`OFTEN`] times; together they leave room in the ring.
const MORE: usize = 40;
const OFTEN: u32 = 4;
/// Output up to this many bytes is copied.
const SMALL: u64 = (SLOTS * SLOT) as u64;

impl Stream {
    const fn tag(self) -> u32 {
        match self {
            Stream::Stdout => OUTPUT,
            Stream::Stderr => ERRORS,
            Stream::Notes => NOTES,
        }
    }
}

/// Nanoseconds between doorbells for lines. A program that prints and then computes makes its reader wait until its quantum ends, unless a
/// doorbell is rung. A program that prints many lines must not pay an exit for each. Parts of a line wait for the rest: readers get whole
/// lines even where a program writes a line's end by itself.
const DOORBELL_INTERVAL: u64 = 1_000_000;

/// The time of the last doorbell for a line. Initially not zero, for the same reason as [`STREAMS_WITH_READER`].
static LAST_DOORBELL: AtomicU64 = AtomicU64::new(LONG_AGO);
const LONG_AGO: u64 = 1;

/// Streams that have a reader, as far as the kernel has reported: a bit for each tag. It is outside the following
/// structure, so that it lies with the other data that every clone writes.
static STREAMS_WITH_READER: AtomicU32 = AtomicU32::new(u32::MAX);
/// The position of the ring when this cell began.
static BEGINNING: CloneStart = CloneStart::new();

/// Copies of output, each until the kernel has taken it. The first free slot is used, and it lies beside its state: a
/// few bytes touch one page.
#[repr(C)]
struct Slots {
    posted: [Option<Number>; SLOTS + MORE],
    /// How often all slots were in use.
    shortages: u32,
    /// The additional slots. They never move.
    more: Option<Box<[[u8; SLOT]]>>,
    bytes: [[u8; SLOT]; SLOTS],
}

static SLOTS_OF_OUTPUT: OnOwnPage<Global<Slots>> =
    OnOwnPage(Global::new(Slots { posted: [None; SLOTS + MORE], shortages: 0, more: None, bytes: [[0; SLOT]; SLOTS] }));

impl Slots {
    /// Finds a slot that the kernel has taken; waits for one if it must. `None`: an event came first.
    fn free(&mut self, ring: &Ring) -> Option<usize> {
        let free = |slots: &Slots| {
            (0..SLOTS + slots.more.as_ref().map_or(0, |more| more.len()))
                .find(|&slot| slots.posted[slot].is_none_or(|number| ring.taken(number).is_some()))
        };
        let slot = free(self).or_else(|| {
            self.shortages = self.shortages.saturating_add(1);
            // Without memory for more, only the first ones are used.
            let mut more = Vec::new();
            if self.shortages == OFTEN && more.try_reserve_exact(MORE).is_ok() {
                more.resize(MORE, [0; SLOT]);
                self.more = Some(more.into_boxed_slice());
            } else {
                ring.wait(ring.last(), NO_DEADLINE);
            }
            free(self)
        })?;
        // The source's stream may have no reader while this cell's has one.
        let own = self.posted[slot].take().filter(|number| !BEGINNING.is_of_source(*number));
        let taken = own.and_then(|number| ring.taken(number));
        if let Some(Descriptor { length: NO_READER, tag, .. }) = taken {
            STREAMS_WITH_READER.fetch_and(!(1 << tag), Ordering::Relaxed);
        }
        Some(slot)
    }

    /// Posts `bytes` bytes, which `fill` writes into the given room; fewer only if it returns a reason. Returns their
    /// number, and the reason.
    fn send(&mut self, stream: Stream, bytes: u64, mut fill: impl FnMut(&mut [u8]) -> (usize, Option<IoError>)) -> (u64, Option<IoError>) {
        let ring = Ring::transmit();
        let (mut sent, mut ends_line) = (0, false);
        while sent < bytes {
            let Some(slot) = self.free(&ring) else { return (sent, Some(IoError::Event)) };
            if STREAMS_WITH_READER.load(Ordering::Relaxed) & 1 << stream.tag() == 0 {
                return (sent, Some(IoError::NoReader));
            }
            let bytes = match &mut self.more {
                Some(more) if slot >= SLOTS => &mut more[slot - SLOTS],
                _ => &mut self.bytes[slot],
            };
            let address = bytes.as_ptr().addr() as u64;
            let (filled, stop) = fill(bytes);
            if filled > 0 {
                self.posted[slot] = Some(ring.post(Descriptor { address, length: filled as u32, tag: stream.tag() }));
                sent += filled as u64;
                ends_line = bytes[filled - 1] == b'\n';
            }
            if stop.is_some() {
                return (sent, stop);
            }
        }
        if ends_line {
            ring_after_pause();
        }
        (sent, None)
    }
}

/// Rings the doorbell unless it was rung a moment ago.
fn ring_after_pause() {
    let now = clock::now();
    if now.saturating_sub(LAST_DOORBELL.load(Ordering::Relaxed)) > DOORBELL_INTERVAL {
        LAST_DOORBELL.store(now, Ordering::Relaxed);
        doorbell();
    }
}

/// Copies from the ranges as much as fits.
fn take(ranges: &mut Peekable<impl Iterator<Item = UserRange>>, buffer: &mut [u8]) -> (usize, Option<IoError>) {
    let mut filled = 0;
    while filled < buffer.len() {
        let Some(range) = ranges.peek_mut() else { break };
        let piece = range.part(0, (buffer.len() - filled) as u64);
        let end = filled + piece.length() as usize;
        if user::read(piece.start(), &mut buffer[filled..end]).is_err() {
            return (filled, Some(IoError::Fault));
        }
        filled = end;
        *range = range.part(piece.length(), u64::MAX);
        if range.length() == 0 {
            ranges.next();
        }
    }
    (filled, None)
}

/// Posts memory ranges, given as address and length, one after the other, and waits until they are taken, or for an
/// event if `may_stop`. Returns the number of bytes, and the reason if not all were sent.
// Never part of `send_user`, whose small pieces should not pay for this frame with another page of stack.
#[inline(never)]
fn send(stream: Stream, ranges: impl Iterator<Item = (u64, u64)>, may_stop: bool) -> (u64, Option<IoError>) {
    let ring = Ring::transmit();
    // Only the last posted descriptors can be retracted, so this output waits until the ring is empty.
    if may_stop && ring.wait(ring.last(), NO_DEADLINE).is_none() {
        return (0, Some(IoError::Event));
    }
    let limit = u64::from(MAX_DESCRIPTOR_BYTES);
    let pieces = ranges.flat_map(|(address, length)| {
        (0..length.div_ceil(limit)).map(move |index| (address + index * limit, limit.min(length - index * limit)))
    });
    let mut pieces = pieces.fuse().peekable();
    let mut sent = 0;
    while pieces.peek().is_some() {
        // At most a ring's worth at a time, so that the result of each can still be read.
        let mut posted = [None; TRANSMIT_DESCRIPTORS];
        for (place, (address, length)) in posted.iter_mut().zip(&mut pieces) {
            *place = Some((ring.post(Descriptor { address, length: length as u32, tag: stream.tag() }), length));
        }
        let mut stop = None;
        for (number, length) in posted.into_iter().flatten() {
            if may_stop && stop.is_none() && ring.wait(number, NO_DEADLINE).is_none() {
                stop = Some(IoError::Event);
                ring.retract(posted.iter().flatten().map(|(number, _)| *number));
            }
            let taken = match ring.wait_uninterruptibly(number).length {
                FAULTED => Err(IoError::Fault),
                NO_READER => Err(IoError::NoReader),
                taken => Ok(length.min(taken.into())),
            };
            match taken {
                Ok(bytes) => sent += bytes,
                Err(stop) => {
                    // The later descriptors name the application's memory too: they must be taken before the application continues.
                    ring.wait_uninterruptibly(ring.last());
                    return (sent, Some(stop));
                }
            }
        }
        if stop.is_some() {
            return (sent, stop);
        }
    }
    (sent, None)
}

/// Sends bytes of the application, which may change them again at once. Returns their number.
///
/// # Errors
/// The first of them cannot be read, an event came before it could be sent, or the stream has no reader.
pub fn send_user(stream: Stream, ranges: &[UserRange]) -> Result<u64, IoError> {
    let bytes: u64 = ranges.iter().map(|range| range.length()).sum();
    let sent = if bytes <= SMALL {
        let mut ranges = ranges.iter().copied().filter(|range| range.length() > 0).peekable();
        SLOTS_OF_OUTPUT.0.with(|slots| slots.send(stream, bytes, |room| take(&mut ranges, room)))
    } else {
        send(stream, ranges.iter().map(|range| (range.start(), range.length())), true)
    };
    match sent {
        (0, Some(stop)) => Err(stop),
        (sent, _) => Ok(sent),
    }
}

/// Sends bytes of the libOS without waiting until they are taken. Returns their number.
///
/// # Errors
/// An event came before one could be sent, or the stream has no reader.
pub fn send_copy(stream: Stream, mut bytes: &[u8]) -> Result<usize, IoError> {
    let length = bytes.len() as u64;
    let fill = |room: &mut [u8]| {
        let (now, later) = bytes.split_at(bytes.len().min(room.len()));
        room[..now.len()].copy_from_slice(now);
        bytes = later;
        (now.len(), None)
    };
    match SLOTS_OF_OUTPUT.0.with(|slots| slots.send(stream, length, fill)) {
        (0, Some(stop)) => Err(stop),
        (sent, _) => Ok(sent as usize),
    }
}

/// Sends bytes that the libOS can access, and waits until they are taken. Returns their number: fewer only if the
/// stream has no reader, or if some of them lie in a volume and cannot be read.
///
/// # Errors
/// The first of them cannot be read, or the stream has no reader.
pub fn send_bytes(stream: Stream, bytes: &[u8]) -> Result<u64, IoError> {
    match send(stream, core::iter::once((bytes.as_ptr().addr() as u64, bytes.len() as u64)), false) {
        (0, Some(stop)) => Err(stop),
        (sent, _) => Ok(sent),
    }
}

/// Resets the streams in a clone: both may have a reader.
pub(super) fn reset_in_clone() {
    STREAMS_WITH_READER.store(u32::MAX, Ordering::Relaxed);
    LAST_DOORBELL.store(LONG_AGO, Ordering::Relaxed);
    BEGINNING.set(&Ring::transmit());
}

/// Waits until all output is taken, which is required before the cell ends.
pub fn flush() {
    let ring = Ring::transmit();
    ring.wait_uninterruptibly(ring.last());
}
