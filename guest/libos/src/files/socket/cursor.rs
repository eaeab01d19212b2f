// SPDX-License-Identifier: MIT OR Apache-2.0
//! Going through the application's buffers one after the other.

use pando_rt::user::{self, UserRange};

/// Where in a row of buffers the next byte is.
#[derive(Debug)]
pub struct Cursor<'a> {
    ranges: &'a [UserRange],
    /// Bytes of the first that are done.
    done: u64,
}

impl<'a> Cursor<'a> {
    /// After so many bytes.
    #[must_use]
    pub fn new(ranges: &'a [UserRange], skipped: u64) -> Cursor<'a> {
        let mut cursor = Cursor { ranges, done: skipped };
        cursor.settle();
        cursor
    }

    /// Bytes of all the buffers.
    #[must_use]
    pub fn length(ranges: &[UserRange]) -> usize {
        ranges.iter().map(|range| range.length() as usize).sum()
    }

    /// Leaves buffers that are done behind.
    fn settle(&mut self) {
        while let Some((first, rest)) = self.ranges.split_first()
            && self.done >= first.length()
        {
            self.done -= first.length();
            self.ranges = rest;
        }
    }

    /// Goes through the buffers piece by piece, each a part of them and of as many bytes that `copy` moves, until one is not moved whole.
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
            self.settle();
        }
        moved
    }

    /// Fills `room` from the buffers as far as they can be read. Returns how many bytes.
    pub fn fill(&mut self, room: &mut [u8]) -> usize {
        self.each(room.len(), |address, at, length| user::read_some(address, &mut room[at..at + length]))
    }

    /// Puts `piece` into the buffers as far as they can be written. Returns how many bytes.
    pub fn put(&mut self, piece: &[u8]) -> usize {
        self.each(piece.len(), |address, at, length| user::write_some(address, &piece[at..at + length]))
    }
}
