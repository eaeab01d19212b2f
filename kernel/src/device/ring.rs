// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of a ring in a cell's memory; no word of it is trusted.

use crate::memory::{CopyAuthority, CopyError, Frames, SpaceSet};
use pando_abi::ring::Descriptor;

/// `posted`, then `taken`, then the descriptors.
const TAKEN: u64 = 8;
const DESCRIPTORS: u64 = 16;

/// A ring and the kernel's own count of taken descriptors, independent of the copy that the cell can overwrite.
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

    /// The same ring with another count of taken descriptors.
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

    /// The next descriptor that the cell has posted. A count beyond the ring's end, or one that goes backwards, is used only as far
    /// as the ring reaches.
    pub(crate) fn next(&self, frames: &Frames, memory: &mut SpaceSet) -> Option<Descriptor> {
        let mut bytes = [0; 16];
        memory.read(frames, self.address, &mut bytes[..8], CopyAuthority::Operator).ok()?;
        let posted = word(&bytes, 0);
        if posted == self.taken {
            return None;
        }
        memory.read(frames, self.place(), &mut bytes, CopyAuthority::Operator).ok()?;
        Some(Descriptor::from_words([word(&bytes, 0), word(&bytes, 8)]))
    }

    /// Whether the cell has no free descriptor.
    pub(crate) fn is_full(&self, frames: &Frames, memory: &mut SpaceSet) -> bool {
        let mut bytes = [0; 16];
        let read = memory.read(frames, self.address, &mut bytes[..8], CopyAuthority::Operator);
        read.is_ok() && word(&bytes, 0).wrapping_sub(self.taken) >= self.length
    }

    fn place(&self) -> u64 {
        self.address + DESCRIPTORS + self.taken % self.length * Descriptor::SIZE as u64
    }

    /// Takes the next descriptor, and writes `length` into it.
    ///
    /// # Errors
    /// No memory for the ring's page.
    pub(crate) fn complete(&mut self, frames: &mut Frames, memory: &mut SpaceSet, length: u32) -> Result<(), CopyError> {
        write_word(frames, memory, self.place() + 8, &length.to_le_bytes())?;
        self.taken = self.taken.wrapping_add(1);
        write_word(frames, memory, self.address + TAKEN, &self.taken.to_le_bytes())
    }
}

/// Writes one word. The rings' page is always mapped, and no block of a disk; only memory can be short.
fn write_word(frames: &mut Frames, memory: &mut SpaceSet, address: u64, bytes: &[u8]) -> Result<(), CopyError> {
    memory
        .write(frames, address, bytes, CopyAuthority::Operator)
        .or_else(|error| if error == CopyError::Refused { Ok(()) } else { Err(error) })
}

fn word(bytes: &[u8; 16], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
