// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings of descriptors, which move bytes between a cell and its devices without an exit for each.
//!
//! A ring lies in the cell's memory. The cell appends at `posted`, the kernel consumes at `taken`; both only grow, and an index is taken
//! modulo the ring's length. The kernel reads the rings at every exit of the cell, or at a doorbell. Invalid values in its rings harm
//! only the cell itself: the kernel copies a descriptor, checks it, then uses the copy, and clamps a `posted` that is ahead of the ring.

use crate::limits::{CHANNEL_DESCRIPTORS, NETWORK_DESCRIPTORS, RECEIVE_DESCRIPTORS, TRANSMIT_DESCRIPTORS};

/// A range of the cell's memory, in the space that is running when the kernel reads the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes; in a taken receive descriptor, the number of received bytes (0: end of input).
    pub length: u32,
    /// For the console's transmit ring the stream: 1 output, 2 errors, 3 notes. For requests 1.
    pub tag: u32,
}

impl Descriptor {
    /// Bytes of a descriptor.
    pub const SIZE: usize = 16;

    /// Decodes a descriptor.
    #[must_use]
    pub const fn from_words(words: [u64; 2]) -> Descriptor {
        Descriptor { address: words[0], length: words[1] as u32, tag: (words[1] >> 32) as u32 }
    }

    /// The words of the descriptor.
    #[must_use]
    pub const fn to_words(self) -> [u64; 2] {
        [self.address, self.length as u64 | (self.tag as u64) << 32]
    }
}

/// A ring of `N` descriptors; `N` is a power of two.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ring<const N: usize> {
    /// Number of descriptors that the cell has posted so far.
    pub posted: u64,
    /// Number of descriptors that the kernel has taken so far.
    pub taken: u64,
    /// The descriptors.
    pub descriptors: [Descriptor; N],
}

/// The page of rings.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rings {
    /// The console's, and the channel's.
    pub console: ConsoleRings,
    /// The network card's.
    pub network: NetworkRings,
    /// The control channel's.
    pub control: ControlRings,
}

/// The rings of the control channel: empty at the first event [`crate::Event::Control`], and not read before.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ControlRings {
    /// Bytes from the cell.
    pub reports: Ring<CHANNEL_DESCRIPTORS>,
    /// Buffers for bytes to the cell.
    pub orders: Ring<CHANNEL_DESCRIPTORS>,
}

/// The network card's rings; both carry batches of frames ([`crate::frame`]).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NetworkRings {
    /// Batches from the cell. Length [`FAULTED`] in a taken descriptor means an invalid batch, or memory that is not
    /// the cell's; the frames before the first invalid one were sent.
    pub transmit: Ring<NETWORK_DESCRIPTORS>,
    /// Buffers for batches to the cell, of at least a frame each; a taken descriptor holds the length of the received batch.
    pub receive: Ring<NETWORK_DESCRIPTORS>,
}

/// The console's rings.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ConsoleRings {
    /// Bytes from the cell.
    pub transmit: Ring<TRANSMIT_DESCRIPTORS>,
    /// Buffers for bytes to the cell.
    pub receive: Ring<RECEIVE_DESCRIPTORS>,
    /// Bytes for the operator itself, if it has opened a channel: requests.
    pub requests: Ring<CHANNEL_DESCRIPTORS>,
    /// Buffers for the operator's answers.
    pub answers: Ring<CHANNEL_DESCRIPTORS>,
}

const _: () = assert!(size_of::<Descriptor>() == Descriptor::SIZE);
const _: () = assert!(size_of::<Rings>() <= crate::PAGE_SIZE as usize);
const _: () =
    assert!(TRANSMIT_DESCRIPTORS.is_power_of_two() && RECEIVE_DESCRIPTORS.is_power_of_two() && CHANNEL_DESCRIPTORS.is_power_of_two());
const _: () = assert!(NETWORK_DESCRIPTORS.is_power_of_two());

/// [`Descriptor::length`] of a taken descriptor with an invalid tag, or with memory that the cell may not use so.
pub const FAULTED: u32 = u32::MAX;
/// [`Descriptor::length`] of a taken transmit descriptor whose stream has no reader any more.
pub const NO_READER: u32 = u32::MAX - 1;
/// [`Descriptor::tag`] of the console's output.
pub const OUTPUT: u32 = 1;
/// [`Descriptor::tag`] of the console's errors.
pub const ERRORS: u32 = 2;
/// [`Descriptor::tag`] of a program's notes to the operator beside its streams: one line each.
pub const NOTES: u32 = 3;
