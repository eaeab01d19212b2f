// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cursor over the application's consecutive buffers.

use pando_rt::user::{self, UserRange};

/// A position in a list of buffers.
#[derive(Debug)]
pub struct BufferCursor<'a> {
    ranges: &'a [UserRange],
    /// Completed bytes of the first buffer.
    done: u64,
}

impl<'a> BufferCursor<'a> {
    /// A cursor after so many bytes.
    #[must_use]
    pub fn new(ranges: &'a [UserRange], skipped: u64) -> BufferCursor<'a> {
        let mut cursor = BufferCursor { ranges, done: skipped };
        cursor.skip_completed();
        cursor
    }

    /// Total size of the buffers in bytes.
    #[must_use]
    pub fn length(ranges: &[UserRange]) -> usize {
        ranges.iter().map(|range| range.length() as usize).sum()
    }

    /// Skips completed buffers.
    fn skip_completed(&mut self) {
        while let Some((first, rest)) = self.ranges.split_first()
            && self.done >= first.length()
        {
            self.done -= first.length();
            self.ranges = rest;
        }
    }

    /// Runs `copy` on consecutive pieces of the buffers and of so many bytes, until it moves a piece incompletely.
    fn each(&mut self, bytes: usize, mut copy: impl FnMut(u64, usize, usize) -> usize) -> usize {
        let mut moved = 0;
        while moved < bytes
            && let Some(first) = self.ranges.first()
        {
            let part = first.part(self.done, (bytes - moved) as u64);
            let count = copy(part.start(), moved, part.length() as usize);
            moved += count;
            self.done += count as u64;
            if (count as u64) < part.length() {
                break;
            }
            self.skip_completed();
        }
        moved
    }

    /// Fills `buffer` from the buffers, up to the first fault. Returns how many bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) -> usize {
        self.each(buffer.len(), |address, at, length| user::read_some(address, &mut buffer[at..at + length]))
    }

    /// Copies `piece` into the buffers, up to the first fault. Returns how many bytes.
    pub fn put(&mut self, piece: &[u8]) -> usize {
        self.each(piece.len(), |address, at, length| user::write_some(address, &piece[at..at + length]))
    }
}
