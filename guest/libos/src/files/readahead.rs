// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readahead: loads the blocks of a volume that a program is going to read. A fault on a missing block costs more than reading many
//! blocks.
//!
//! A fault loads a file's blocks in an aligned group. When a program reads on from one group to the next, ever more is loaded at once.
//! When it reads files in the order of their addresses, readahead goes beyond the end of the file. Images store the files of a directory
//! in listing order.

use core::ops::Range;

use pando_abi::PAGE_SIZE;

/// Bytes that a fault loads, if they belong to the file: the kernel's group of blocks.
const GROUP: u64 = 64 * PAGE_SIZE;
/// Number of sequential streams that are tracked at once.
const STREAMS: usize = 4;
/// Maximum gap in bytes within a sequential stream.
const GAP: u64 = 1 << 20;
/// After so many files in a row, the next one is expected to be read, too.
const FILES: u32 = 3;
/// Minimum and maximum bytes to load at once.
const WINDOW_MIN: u64 = 64 << 10;
const WINDOW_MAX: u64 = 2 << 20;

/// A sequential read stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The loaded range.
    start: u64,
    end: u64,
    /// Bytes of it that were requested.
    requested: u64,
    /// The end of the file that was read last, and the number of files so far.
    file_end: u64,
    files: u32,
    /// Bytes loaded at once.
    window: u64,
}

/// The current read streams.
#[derive(Debug, Default)]
pub struct Readahead {
    streams: [Stream; STREAMS],
    /// The stream to replace next.
    oldest: usize,
}

impl Readahead {
    /// The range to load before a program reads a part of a file that ends at `file_end`; all are addresses. `None`: no more than a fault
    /// would load.
    pub fn wanted(&mut self, read: Range<u64>, file_end: u64) -> Option<Range<u64>> {
        let touched = (read.end.max(read.start + 1).next_multiple_of(GROUP)).min(file_end);
        let length = read.end.saturating_sub(read.start);
        let is_next = |stream: &&mut Stream| (stream.start..=stream.end.saturating_add(GAP)).contains(&read.start) && stream.files > 0;
        let Some(stream) = self.streams.iter_mut().find(is_next) else {
            self.streams[self.oldest] =
                Stream { start: read.start, end: touched, requested: length, file_end, files: 1, window: WINDOW_MIN };
            self.oldest = (self.oldest + 1) % STREAMS;
            return (length > GROUP).then(|| read.start..read.end.min(read.start + WINDOW_MAX));
        };
        stream.requested += length;
        if read.end <= stream.end {
            return None;
        }
        if stream.file_end != file_end {
            (stream.file_end, stream.files) = (file_end, stream.files + 1);
        }
        // A stream that requests little of the loaded range does not grow much.
        let is_worth = stream.requested >= (stream.end - stream.start) / 2;
        stream.window = if is_worth { (stream.window * 2).min(WINDOW_MAX) } else { (stream.window / 2).max(WINDOW_MIN) };
        let limit = if stream.files >= FILES && is_worth { u64::MAX } else { file_end };
        let first = read.start.max(stream.end);
        let end = first.saturating_add(stream.window).min(limit).max(read.end.min(first + WINDOW_MAX));
        stream.end = end.max(touched);
        (end > touched || length > GROUP).then_some(first..end)
    }
}

#[cfg(test)]
mod tests {
    use super::{GROUP, Readahead, WINDOW_MAX};
    use std::vec::Vec;

    /// The readahead ranges for consecutive files, each read completely in pieces.
    fn calls(sizes: &[u64], piece: u64) -> Vec<core::ops::Range<u64>> {
        let (mut readahead, mut calls, mut start) = (Readahead::default(), Vec::new(), 1 << 39);
        for size in sizes {
            let end = start + size;
            let mut at = start;
            while at < end {
                calls.extend(readahead.wanted(at..(at + piece).min(end), end));
                at += piece;
            }
            start = end.next_multiple_of(4096);
        }
        calls
    }

    #[test]
    fn a_small_file_is_only_touched() {
        assert!(calls(&[100], 4096).is_empty() && calls(&[GROUP], 4096).is_empty() && calls(&[5000, 5000], 4096).is_empty());
    }

    #[test]
    fn a_file_is_followed_to_its_end_and_no_further() {
        let calls = calls(&[100 << 20], 4096);
        assert!(calls.len() < 70, "{calls:?}");
        assert!(calls.iter().all(|call| call.end <= (1 << 39) + (100 << 20) && call.end - call.start <= WINDOW_MAX));
    }

    #[test]
    fn a_second_longer_read_fetches_only_new_blocks() {
        let (start, end) = (1 << 39, (1 << 39) + (100 << 20));
        let mut readahead = Readahead::default();
        for at in (0..10 << 20).step_by(4096) {
            let _ = readahead.wanted(start + at..start + at + 4096, end);
        }
        let fetched = readahead.wanted(start..end, end).expect("most of it is not there");
        assert!(
            fetched.start >= start + (10 << 20) && fetched.end > fetched.start && fetched.end - fetched.start <= WINDOW_MAX,
            "{fetched:?}"
        );
    }

    #[test]
    fn files_in_a_row_are_followed() {
        let calls = calls(&[10_000; 10_000], 4096);
        assert!(calls.len() < 80, "{}", calls.len());
    }

    #[test]
    fn random_reads_cause_no_readahead() {
        let mut readahead = Readahead::default();
        let ends = (1..1000u64).map(|file| (1 << 39) + file * 7919 % 1000 * (4 << 20));
        assert_eq!(ends.filter_map(|end| readahead.wanted(end - 20_000..end - 16_000, end)).count(), 0);
    }

    #[test]
    fn reads_of_the_starts_of_large_files_cause_little_readahead() {
        let (mut readahead, mut bytes) = (Readahead::default(), 0);
        for file in 1..1000u64 {
            let start = (1 << 39) + file * (500 << 10);
            bytes += readahead.wanted(start..start + 4096, start + (500 << 10)).map_or(0, |range| range.end - range.start);
        }
        assert!(bytes < 1000 * GROUP / 4, "{bytes}");
    }
}
