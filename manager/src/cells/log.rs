// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output log of a cell: the last bytes that it wrote, in order, each with its stream.
//!
//! A log is a list of blocks of records. A record is a head of one byte (stream and length) and up to 64 bytes. So the heads never take
//! more than the bytes themselves, however often the cell changes the stream. Positions count the bytes that were ever written.

use super::budget::Charge;
use pando_kernel::Stream;
use std::collections::VecDeque;

/// Bytes of a full block: small, because reading scans a block's records from its start.
const BLOCK_MAX: usize = 4096;
/// The list's overhead for each block.
const BLOCK_OVERHEAD: u64 = size_of::<Block>() as u64;
/// Bytes of the longest record: the limit of the six bits in its head.
const RECORD_MAX: usize = 64;
/// Bytes of the longest piece that is read at once.
const PIECE_MAX: usize = 64 << 10;

const STREAMS: [Stream; 3] = [Stream::Stdout, Stream::Stderr, Stream::Notes];

#[derive(Debug)]
struct Block {
    /// The position of its first byte.
    start: u64,
    /// Records, one after the other.
    records: Vec<u8>,
    /// The number of newlines in the output, without notes.
    newlines: u32,
    /// It has output, and not only notes.
    has_output: bool,
}

/// The log of a cell's output. It keeps at least `room` bytes, and drops the oldest block first.
#[derive(Debug)]
pub(crate) struct Log {
    blocks: VecDeque<Block>,
    /// Offset of the last record's head in the last block.
    last: usize,
    /// Bytes that are kept at least.
    room: u64,
    /// Bytes that were ever written.
    written: u64,
    /// The memory that all blocks take.
    charge: Charge,
}

/// A record's head.
fn head(stream: usize, length: usize) -> u8 {
    (stream << 6 | (length - 1)) as u8
}

/// The stream and the length of a record.
fn parse(head: u8) -> (usize, usize) {
    (usize::from(head >> 6), usize::from(head & 63) + 1)
}

fn number(stream: Stream) -> usize {
    STREAMS.iter().position(|other| *other == stream).unwrap_or_default()
}

impl Block {
    /// Records, each with its position, its stream and its bytes.
    fn records(&self) -> impl Iterator<Item = (u64, usize, &[u8])> {
        let (mut rest, mut position) = (&self.records[..], self.start);
        std::iter::from_fn(move || {
            let (&first, behind) = rest.split_first()?;
            let (stream, length) = parse(first);
            let (bytes, behind) = behind.split_at_checked(length)?;
            let start = position;
            (rest, position) = (behind, position + length as u64);
            Some((start, stream, bytes))
        })
    }
}

impl Log {
    /// An empty log that keeps this many bytes.
    pub(crate) fn new(room: u64, charge: Charge) -> Log {
        Log { blocks: VecDeque::new(), last: 0, room, written: 0, charge }
    }

    /// Appends output. Drops nothing from the position `kept` on, even if the log is full.
    pub(crate) fn push(&mut self, stream: Stream, mut bytes: &[u8], kept: u64) {
        let stream = number(stream);
        while !bytes.is_empty() {
            let count = self.append(stream, bytes);
            bytes = &bytes[count..];
            self.written += count as u64;
        }
        while self.blocks.get(1).is_some_and(|next| next.start <= kept && self.written - next.start >= self.room) {
            self.forget_first();
        }
    }

    /// A log without bytes that begins where this one ends.
    pub(crate) fn empty_copy(&self) -> Log {
        Log { written: self.written, ..Log::new(self.room, self.charge.empty_charge()) }
    }

    /// Appends as many bytes as fit into one record. Returns how many.
    fn append(&mut self, stream: usize, bytes: &[u8]) -> usize {
        if self.blocks.back().is_none_or(|block| block.records.len() + 2 > BLOCK_MAX) {
            self.blocks.push_back(Block { start: self.written, records: Vec::new(), newlines: 0, has_output: false });
            self.charge.grow(BLOCK_OVERHEAD);
        }
        let Some(block) = self.blocks.back_mut() else { return 0 };
        let before = block.records.capacity();
        let records = &mut block.records;
        let is_open = records.get(self.last).map(|head| parse(*head)).filter(|(other, length)| *other == stream && *length < RECORD_MAX);
        let length = is_open.map_or(0, |(_, length)| length);
        if length == 0 {
            self.last = records.len();
            records.push(0);
        }
        let count = bytes.len().min(RECORD_MAX - length).min(BLOCK_MAX - records.len());
        records.extend_from_slice(&bytes[..count]);
        if let Some(first) = records.get_mut(self.last) {
            *first = head(stream, length + count);
        }
        self.charge.grow((records.capacity() - before) as u64);
        if STREAMS[stream] != Stream::Notes {
            block.has_output = true;
            block.newlines += bytes[..count].iter().filter(|byte| **byte == b'\n').count() as u32;
        }
        count
    }

    fn forget_first(&mut self) {
        if let Some(block) = self.blocks.pop_front() {
            self.charge.shrink(BLOCK_OVERHEAD + block.records.capacity() as u64);
        }
    }

    /// Releases unused capacity, once the cell has ended.
    pub(crate) fn compact(&mut self) {
        for block in &mut self.blocks {
            let before = block.records.capacity();
            block.records.shrink_to_fit();
            self.charge.shrink((before - block.records.capacity()) as u64);
        }
        self.blocks.shrink_to_fit();
    }

    /// Drops the oldest blocks while all logs exceed their budget, but not the last block, and nothing from the position `kept` on.
    pub(crate) fn free_log_memory(&mut self, kept: u64) {
        while self.charge.is_exceeded() && self.blocks.get(1).is_some_and(|next| next.start <= kept) {
            self.forget_first();
        }
    }

    /// Whether all logs together exceed their budget.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.charge.is_exceeded()
    }

    /// Whether the bytes from a position on fill the log, or exist at all while all logs exceed their budget.
    pub(crate) fn is_full_from(&self, position: u64) -> bool {
        let behind = self.written.saturating_sub(position);
        behind >= self.room || (behind > 0 && self.is_exceeded())
    }

    /// Bytes that were ever written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes before the first that is kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.blocks.front().map_or(self.written, |first| first.start)
    }

    /// Bytes of one stream from a position on, or from the first that is kept, with their position. `None`: there are none yet.
    pub(crate) fn get(&self, position: u64) -> Option<(u64, Stream, Vec<u8>)> {
        let index = self.blocks.partition_point(|block| block.start <= position).saturating_sub(1);
        let records = self.blocks.range(index.min(self.blocks.len())..).flat_map(Block::records);
        let mut records = records.skip_while(|(start, _, bytes)| start + bytes.len() as u64 <= position);
        let (start, stream, first) = records.next()?;
        let skipped = position.saturating_sub(start);
        let mut piece = first[skipped as usize..].to_vec();
        for (_, _, bytes) in records.take_while(|(_, other, _)| *other == stream) {
            piece.extend_from_slice(bytes);
            if piece.len() >= PIECE_MAX {
                cut_to_characters(&mut piece);
                break;
            }
        }
        Some((start + skipped, STREAMS[stream], piece))
    }

    /// The position of the last `lines` lines of output, without notes, or of the first byte that is kept.
    pub(crate) fn tail(&self, lines: u64) -> u64 {
        let (mut found, mut is_last) = (0, true);
        for block in self.blocks.iter().rev().filter(|block| block.has_output) {
            // A block is looked into only if the line may begin there, or the output ends there.
            if !is_last && u64::from(block.newlines) <= lines - found {
                found += u64::from(block.newlines);
                continue;
            }
            let mut records: Vec<_> = block.records().filter(|(_, stream, _)| STREAMS[*stream] != Stream::Notes).collect();
            records.reverse();
            for (start, _, bytes) in records {
                for (offset, byte) in bytes.iter().enumerate().rev() {
                    let position = start + offset as u64 + 1;
                    // The end of the output ends its last line, with or without a newline.
                    if *byte == b'\n' || std::mem::take(&mut is_last) {
                        if found == lines {
                            return position;
                        }
                        found += 1;
                    }
                    is_last = false;
                }
            }
        }
        self.dropped()
    }

    /// All kept bytes of each stream, in the streams' order.
    pub(crate) fn split(&self) -> [Vec<u8>; 3] {
        let mut all = [const { Vec::new() }; 3];
        for (_, stream, bytes) in self.blocks.iter().flat_map(Block::records) {
            all[stream].extend_from_slice(bytes);
        }
        all
    }
}

/// Cuts an incomplete UTF-8 character off the end, so that text stays text.
fn cut_to_characters(piece: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(piece)
        && error.error_len().is_none()
    {
        piece.truncate(error.valid_up_to());
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::{BLOCK_MAX, Log, PIECE_MAX};
    use pando_kernel::Stream::{self, Notes, Stderr, Stdout};
    use std::sync::Arc;

    fn log(room: u64) -> (Log, Arc<Budget>) {
        let budget = Budget::new(u64::MAX);
        (Log::new(room, budget.charge()), budget)
    }

    /// All kept output, piece by piece.
    fn pieces(log: &Log) -> Vec<(u64, Stream, Vec<u8>)> {
        let mut position = 0;
        std::iter::from_fn(|| {
            let piece = log.get(position)?;
            position = piece.0 + piece.2.len() as u64;
            Some(piece)
        })
        .collect()
    }

    #[test]
    fn streams_stay_apart_and_in_order() {
        let (mut log, _) = log(100);
        for (stream, text) in [(Stdout, "ab"), (Stdout, "c"), (Stderr, "d"), (Stdout, "e"), (Notes, "f")] {
            log.push(stream, text.as_bytes(), u64::MAX);
        }
        let expected = [(0, Stdout, "abc"), (3, Stderr, "d"), (4, Stdout, "e"), (5, Notes, "f")];
        assert_eq!(pieces(&log), expected.map(|(start, stream, text)| (start, stream, text.into())));
        assert_eq!(log.get(1), Some((1, Stdout, b"bc".to_vec())), "a reader begins anywhere");
        assert_eq!((log.get(6), log.get(u64::MAX)), (None, None));
        assert_eq!(log.split(), ["abce", "d", "f"].map(|text| text.as_bytes().to_vec()));
    }

    #[test]
    fn the_last_lines_are_found_whatever_their_streams() {
        let (mut log, _) = log(1 << 20);
        assert_eq!(log.tail(3), 0);
        for (stream, text) in [(Stdout, "one\ntw"), (Stderr, "o\n"), (Notes, "a\nb\n"), (Stdout, "three\n\nfive")] {
            log.push(stream, text.as_bytes(), u64::MAX);
        }
        // Notes count as bytes, and not as lines.
        assert_eq!([0, 1, 2, 3, 4, 5, 9].map(|lines| log.tail(lines)), [23, 19, 18, 8, 4, 0, 0]);
        log.push(Stdout, b"\n", u64::MAX);
        assert_eq!([0, 1, 2].map(|lines| log.tail(lines)), [24, 19, 18]);
        let (mut long, _) = self::log(100_000);
        (0..100_000_u32).for_each(|_| long.push(Stdout, b"x\n", u64::MAX));
        assert_eq!((long.tail(10_000), long.tail(u64::MAX)), (180_000, long.dropped()));
    }

    #[test]
    fn each_number_of_last_lines_is_found_in_any_block() {
        let (mut log, _) = log(1 << 20);
        // Blocks with short and long lines, with notes among them, and blocks of notes alone.
        let mut ends = vec![0];
        for line in 0..3000_usize {
            let stream = [Stdout, Stderr][line % 2];
            log.push(stream, &vec![b'x'; line % 50 * (line % 7)], u64::MAX);
            log.push(Notes, &vec![b'\n'; if line % 1000 == 0 { 20_000 } else { line % 3 }], u64::MAX);
            log.push(stream, b"\n", u64::MAX);
            ends.push(log.written());
        }
        for lines in 0..=3000 {
            assert_eq!(log.tail(lines as u64), ends[3000 - lines], "{lines}");
        }
        assert_eq!(log.tail(3001), 0);
    }

    #[test]
    fn the_oldest_output_is_dropped_unless_a_reader_needs_it() {
        let (mut log, budget) = log(10_000);
        for round in 0..100_000_u32 {
            log.push(if round.is_multiple_of(3) { Stdout } else { Stderr }, &round.to_le_bytes(), u64::MAX);
        }
        let first = pieces(&log)[0].0;
        assert!((10_000..10_000 + 2 * BLOCK_MAX as u64).contains(&(log.written() - first)), "{first}");
        assert!(budget.used() < 30_000, "{}", budget.used());
        log.push(Stdout, &[7; 50_000], first);
        assert_eq!(pieces(&log)[0].0, first);
        assert!(log.is_full_from(first) && !log.is_full_from(log.written()));
        drop(log);
        assert_eq!(budget.used(), 0);
    }

    /// A log takes at most two bytes for each, and little more, however often the cell changes streams.
    #[test]
    fn single_bytes_on_two_streams_take_two_bytes_each() {
        let (mut log, budget) = log(1 << 20);
        for round in 0..1 << 20 {
            log.push([Stdout, Stderr][round & 1], b"x", u64::MAX);
        }
        log.compact();
        let taken: usize = log.blocks.iter().map(|block| block.records.capacity() + size_of_val(block)).sum();
        assert_eq!(taken as u64, budget.used());
        assert!(taken < (2 << 20) + (64 << 10), "{taken}");
    }

    #[test]
    fn logs_that_take_too_much_give_way() {
        let budget = Budget::new(64 << 10);
        let mut log = Log::new(1 << 20, budget.charge());
        log.push(Stdout, &[b'x'; 200 << 10], 0);
        assert!(log.is_exceeded() && log.is_full_from(log.written() - 1) && !log.is_full_from(log.written()));
        log.free_log_memory(100);
        assert_eq!(log.get(0).map(|(first, ..)| first), Some(0));
        log.free_log_memory(u64::MAX);
        assert!(budget.used() <= 64 << 10);
        assert!(log.get(0).is_some_and(|(first, ..)| first > 0));
    }

    #[test]
    fn text_is_cut_between_characters() {
        let (mut log, _) = log(1 << 20);
        let text = format!("a{}", "ä".repeat(PIECE_MAX));
        log.push(Stdout, text.as_bytes(), u64::MAX);
        let all = pieces(&log);
        assert!(all.len() > 1 && all.iter().all(|(_, _, bytes)| str::from_utf8(bytes).is_ok()));
        assert_eq!(all.iter().flat_map(|(_, _, bytes)| bytes.clone()).collect::<Vec<_>>(), text.into_bytes());
    }
}
