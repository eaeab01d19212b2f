// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell said: the last of it, in pieces with numbers.

use pando_kernel::Stream;
use std::collections::VecDeque;

/// Bytes up to which pieces are put together that nobody has been given yet: each costs more than its bytes.
const JOINED_MAX: usize = 4096;

#[derive(Debug)]
struct Piece {
    stream: Stream,
    bytes: Vec<u8>,
    /// Bytes that were said before it.
    before: u64,
}

/// What a cell said. Remembers so many bytes, and forgets what was said first.
#[derive(Debug)]
pub(super) struct Log {
    pieces: VecDeque<Piece>,
    /// The number of the first piece that is remembered.
    first: u64,
    /// Bytes that are remembered.
    bytes: u64,
    /// Bytes that may be.
    room: u64,
    /// Bytes that were ever said.
    said: u64,
    /// The number behind the last piece that somebody was given.
    given: u64,
}

impl Log {
    /// Remembers up to so many bytes.
    pub(super) fn new(room: u64) -> Log {
        Log { pieces: VecDeque::new(), first: 0, bytes: 0, room, said: 0, given: 0 }
    }

    /// Takes a piece. Forgets none from the number `kept` on, whatever room there is.
    pub(super) fn push(&mut self, stream: Stream, bytes: Vec<u8>, kept: u64) {
        let before = self.said;
        self.bytes += bytes.len() as u64;
        self.said = self.said.saturating_add(bytes.len() as u64);
        let is_new = self.first + self.pieces.len() as u64 > self.given;
        match self.pieces.back_mut() {
            Some(last) if is_new && last.stream == stream && last.bytes.len() + bytes.len() <= JOINED_MAX => last.bytes.extend(bytes),
            _ => self.pieces.push_back(Piece { stream, bytes, before }),
        }
        while self.bytes > self.room
            && self.first < kept
            && let Some(forgotten) = self.pieces.pop_front()
        {
            self.bytes -= forgotten.bytes.len() as u64;
            self.first += 1;
        }
    }

    /// Whether what was said from a number on takes all the room.
    pub(super) fn is_full_from(&self, number: u64) -> bool {
        self.piece(number).is_some_and(|(_, piece)| self.said - piece.before >= self.room)
    }

    /// Bytes that were ever said.
    pub(super) fn said(&self) -> u64 {
        self.said
    }

    /// The first piece from a number on, with its own.
    pub(super) fn get(&mut self, number: u64) -> Option<(u64, Stream, &[u8])> {
        let (number, _) = self.piece(number)?;
        self.given = self.given.max(number + 1);
        self.piece(number).map(|(number, piece)| (number, piece.stream, &piece.bytes[..]))
    }

    /// All that is remembered of a stream.
    pub(super) fn all(&self, wanted: Stream) -> Vec<u8> {
        self.pieces.iter().filter(|piece| piece.stream == wanted).flat_map(|piece| &piece.bytes).copied().collect()
    }

    fn piece(&self, number: u64) -> Option<(u64, &Piece)> {
        let number = number.max(self.first);
        Some((number, self.pieces.get(usize::try_from(number - self.first).ok()?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::Log;
    use pando_kernel::Stream::{Errors, Output};

    #[test]
    fn what_was_said_first_is_forgotten_first() {
        let mut log = Log::new(4);
        for (stream, text) in [(Output, "ab"), (Errors, "c"), (Output, "d"), (Errors, "e")] {
            log.push(stream, text.into(), u64::MAX);
        }
        assert_eq!((log.all(Output), log.all(Errors)), (b"d".to_vec(), b"ce".to_vec()));
        assert_eq!(log.get(0), Some((1, Errors, &b"c"[..])));
        assert_eq!(log.get(3), Some((3, Errors, &b"e"[..])));
        assert_eq!(log.get(4), None);
    }

    #[test]
    fn what_nobody_has_been_given_is_put_together() {
        let mut log = Log::new(10_000);
        for text in ["a", "b"] {
            log.push(Output, text.into(), u64::MAX);
        }
        assert_eq!(log.get(0), Some((0, Output, &b"ab"[..])));
        for text in ["c", "d"] {
            log.push(Output, text.into(), u64::MAX);
        }
        assert_eq!(log.get(1), Some((1, Output, &b"cd"[..])));
        log.push(Output, vec![b'x'; 4096], u64::MAX);
        log.push(Output, b"y".into(), u64::MAX);
        assert_eq!(log.get(2).map(|(_, _, bytes)| bytes.len()), Some(4096));
        assert_eq!(log.get(3), Some((3, Output, &b"y"[..])));
    }

    #[test]
    fn what_somebody_wants_is_not_forgotten() {
        let mut log = Log::new(4);
        for (stream, text) in [(Output, "ab"), (Errors, "c"), (Output, "d"), (Errors, "e")] {
            log.push(stream, text.into(), 1);
        }
        assert_eq!((log.all(Output), log.all(Errors)), (b"d".to_vec(), b"ce".to_vec()));
        assert_eq!([0, 1, 2].map(|number| log.is_full_from(number)), [false; 3]);
        log.push(Output, "fg".into(), 1);
        assert_eq!((log.all(Output), log.all(Errors)), (b"dfg".to_vec(), b"ce".to_vec()));
        assert_eq!([0, 1, 2, 3, 9].map(|number| log.is_full_from(number)), [true, true, true, false, false]);
    }
}
