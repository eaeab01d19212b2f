// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network frames in a batch, the content of one descriptor of the network card's rings.
//!
//! Each frame of a batch begins at a multiple of [`ALIGNMENT`] from the batch's start with a header of [`HEADER`]
//! bytes, which holds its length. Its bytes follow, from the Ethernet header on, without a checksum at the end. So one
//! descriptor carries any number of frames, without padding to a fixed size.

/// Bytes before each frame of a batch: its length, four bytes, and four zero bytes.
pub const HEADER: usize = 8;
/// Alignment of frames in a batch.
pub const ALIGNMENT: usize = 8;
/// Bytes of an Ethernet header: destination, source and type.
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

/// The header of a frame with this length.
#[must_use]
pub const fn header(length: usize) -> [u8; HEADER] {
    (length as u64).to_le_bytes()
}

/// The length of the frame with this header, if `left` bytes of its batch follow the header. `None`: the header is invalid.
#[must_use]
pub fn length(header: &[u8; HEADER], left: usize) -> Option<usize> {
    let length = usize::try_from(u64::from_le_bytes(*header)).ok()?;
    ((ETHERNET_HEADER..=FRAME_MAX).contains(&length) && length <= left).then_some(length)
}

/// An iterator over the frames of a batch, as ranges in it. It ends at the first invalid one: too short, too long, or
/// beyond the batch's end.
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

    /// Bytes of the batch that the iterator has passed: the start of the next frame.
    #[must_use]
    pub const fn passed(&self) -> usize {
        self.next
    }

    /// Whether the iterator has reached the end of the batch.
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
        // The last frame need not be padded.
        self.next = (self.next + room(length)).min(self.batch.len());
        Some(start..start + length)
    }
}
