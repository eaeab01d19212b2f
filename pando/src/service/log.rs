// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell said: the last of it, in pieces with numbers.

use pando_kernel::Stream;
use std::collections::VecDeque;

/// What a cell said. Remembers so many bytes, and forgets what was said first.
#[derive(Debug)]
pub(super) struct Log {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    /// The number of the first piece that is remembered.
    first: u64,
    /// Bytes that are remembered.
    bytes: u64,
    /// Bytes that may be.
    room: u64,
    /// Bytes that were ever said.
    said: u64,
}

impl Log {
    /// Remembers up to so many bytes.
    pub(super) fn new(room: u64) -> Log {
        Log { pieces: VecDeque::new(), first: 0, bytes: 0, room, said: 0 }
    }

    /// Takes a piece.
    pub(super) fn push(&mut self, stream: Stream, bytes: Vec<u8>) {
        self.bytes += bytes.len() as u64;
        self.said = self.said.saturating_add(bytes.len() as u64);
        self.pieces.push_back((stream, bytes));
        while self.bytes > self.room
            && let Some((_, forgotten)) = self.pieces.pop_front()
        {
            self.bytes -= forgotten.len() as u64;
            self.first += 1;
        }
    }

    /// Bytes that were ever said.
    pub(super) fn said(&self) -> u64 {
        self.said
    }

    /// The first piece from a number on, with its own.
    pub(super) fn get(&self, number: u64) -> Option<(u64, Stream, &[u8])> {
        let number = number.max(self.first);
        let (stream, bytes) = self.pieces.get(usize::try_from(number - self.first).ok()?)?;
        Some((number, *stream, bytes))
    }

    /// All that is remembered of a stream.
    pub(super) fn all(&self, wanted: Stream) -> Vec<u8> {
        self.pieces.iter().filter(|(stream, _)| *stream == wanted).flat_map(|(_, bytes)| bytes).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Log;
    use pando_kernel::Stream::{Errors, Output};

    #[test]
    fn what_was_said_first_is_forgotten_first() {
        let mut log = Log::new(4);
        for (stream, text) in [(Output, "ab"), (Errors, "c"), (Output, "d"), (Output, "e")] {
            log.push(stream, text.into());
        }
        assert_eq!((log.all(Output), log.all(Errors)), (b"de".to_vec(), b"c".to_vec()));
        assert_eq!(log.get(0), Some((1, Errors, &b"c"[..])));
        assert_eq!((log.get(3), log.get(4)), (Some((3, Output, &b"e"[..])), None));
    }
}
