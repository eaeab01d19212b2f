// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of the network: how they lie in a batch, which is what one descriptor of the network card's rings names.
//!
//! Each frame of a batch begins at a multiple of [`ALIGNMENT`] from the batch's start with its length, in [`HEADER`] bytes; then follow its bytes, from the Ethernet header
//! on, without a checksum at the end. So one descriptor carries as many frames as there were, and each takes the room that it takes.

/// Bytes before each frame of a batch: its length, four bytes, and four that are zero.
pub const HEADER: usize = 8;
/// Where frames of a batch begin: at multiples of so many bytes.
pub const ALIGNMENT: usize = 8;
/// Bytes of an Ethernet header: to whom, from whom, and what it carries.
pub const ETHERNET_HEADER: usize = 14;
/// Bytes of the largest packet that a frame carries: the largest of IPv4.
pub const MTU_MAX: usize = 65_535;
/// Bytes of the largest frame.
pub const FRAME_MAX: usize = ETHERNET_HEADER + MTU_MAX;

/// Bytes that a frame takes in a batch.
#[must_use]
pub const fn room(length: usize) -> usize {
    HEADER + length.next_multiple_of(ALIGNMENT)
}

/// The header of a frame of so many bytes.
#[must_use]
pub const fn header(length: usize) -> [u8; HEADER] {
    (length as u64).to_le_bytes()
}

/// How long the frame is that a header begins, where so many bytes of its batch follow the header. `None`: that is no frame.
#[must_use]
pub fn length(header: &[u8; HEADER], left: usize) -> Option<usize> {
    let length = usize::try_from(u64::from_le_bytes(*header)).ok()?;
    ((ETHERNET_HEADER..=FRAME_MAX).contains(&length) && length <= left).then_some(length)
}

/// The frames of a batch, one after the other: where each lies in it. It ends at the first that is none: too short, too long, or beyond the batch's end.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    batch: &'a [u8],
    next: usize,
}

impl<'a> Frames<'a> {
    /// The frames of `batch`.
    #[must_use]
    pub const fn of(batch: &'a [u8]) -> Frames<'a> {
        Frames { batch, next: 0 }
    }

    /// Bytes of the batch that were looked at and were frames: where the next begins.
    #[must_use]
    pub const fn passed(&self) -> usize {
        self.next
    }

    /// Whether all of the batch was frames, as far as was looked.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.next >= self.batch.len()
    }
}

impl Iterator for Frames<'_> {
    type Item = core::ops::Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.batch.get(self.next..)?.first_chunk::<HEADER>()?;
        let start = self.next + HEADER;
        let length = length(header, self.batch.len() - start)?;
        // The last frame need not be filled up.
        self.next = (self.next + room(length)).min(self.batch.len());
        Some(start..start + length)
    }
}
