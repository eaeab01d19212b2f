// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of a ring in a cell's memory: every word is a claim.

use crate::memory::copy::{Behalf, CopyError};
use crate::memory::{Frames, SpaceSet};
use pando_abi::ring::Descriptor;

/// `posted`, then `taken`, then the descriptors.
const TAKEN: u64 = 8;
const DESCRIPTORS: u64 = 16;

/// A ring, and how far the kernel has come: its own count, whatever the cell writes over the one it sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingState {
    address: u64,
    length: u64,
    taken: u64,
}

impl RingState {
    /// The ring of `length` descriptors at `address`.
    pub(crate) fn new(address: u64, length: usize) -> RingState {
        RingState { address, length: length as u64, taken: 0 }
    }

    /// The same ring, of which so much was taken.
    pub(crate) fn with_taken(self, taken: u64) -> RingState {
        RingState { taken, ..self }
    }

    /// How many descriptors were taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// How many descriptors there are.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The next descriptor that the cell has posted. A count that runs ahead of the ring, or backwards, is taken as far as the ring reaches.
    pub(crate) fn next(&self, frames: &Frames, memory: &mut SpaceSet) -> Option<Descriptor> {
        let mut bytes = [0; 16];
        memory.read(frames, self.address, &mut bytes[..8], Behalf::Operator).ok()?;
        let posted = word(&bytes, 0);
        if posted == self.taken {
            return None;
        }
        memory.read(frames, self.place(), &mut bytes, Behalf::Operator).ok()?;
        Some(Descriptor::from_words([word(&bytes, 0), word(&bytes, 8)]))
    }

    /// Whether the cell has no place left to post in.
    pub(crate) fn is_full(&self, frames: &Frames, memory: &mut SpaceSet) -> bool {
        let mut bytes = [0; 16];
        let read = memory.read(frames, self.address, &mut bytes[..8], Behalf::Operator);
        read.is_ok() && word(&bytes, 0).wrapping_sub(self.taken) >= self.length
    }

    fn place(&self) -> u64 {
        self.address + DESCRIPTORS + self.taken % self.length * Descriptor::SIZE as u64
    }

    /// Takes the next descriptor, whose `length` then reads `length`.
    ///
    /// # Errors
    /// No memory for the ring's page.
    pub(crate) fn take(&mut self, frames: &mut Frames, memory: &mut SpaceSet, length: u32) -> Result<(), CopyError> {
        write_word(frames, memory, self.place() + 8, &length.to_le_bytes())?;
        self.taken = self.taken.wrapping_add(1);
        write_word(frames, memory, self.address + TAKEN, &self.taken.to_le_bytes())
    }
}

/// The rings' page is always mapped, and no block of a disk; only memory can be short.
fn write_word(frames: &mut Frames, memory: &mut SpaceSet, address: u64, bytes: &[u8]) -> Result<(), CopyError> {
    memory.write(frames, address, bytes, Behalf::Operator).or_else(|error| if error == CopyError::Refused { Ok(()) } else { Err(error) })
}

fn word(bytes: &[u8; 16], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
