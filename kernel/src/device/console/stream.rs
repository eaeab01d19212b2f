// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output streams of a cell.

use pando_abi::ring::{ERRORS, NOTES, OUTPUT};

/// Number of output streams of a cell.
pub(super) const STREAMS: usize = 3;

/// An output stream of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Lines that a program sends to the operator, apart from standard output and error.
    Notes,
}

impl Stream {
    /// All streams.
    const ALL: [Stream; STREAMS] = [Stream::Stdout, Stream::Stderr, Stream::Notes];

    /// The stream with a tag of a descriptor.
    #[must_use]
    pub fn from_tag(tag: u32) -> Option<Stream> {
        match tag {
            OUTPUT => Some(Stream::Stdout),
            ERRORS => Some(Stream::Stderr),
            NOTES => Some(Stream::Notes),
            _ => None,
        }
    }

    /// Its tag in descriptors.
    #[must_use]
    pub fn tag(self) -> u32 {
        match self {
            Stream::Stdout => OUTPUT,
            Stream::Stderr => ERRORS,
            Stream::Notes => NOTES,
        }
    }
}

/// A set of output streams.
#[derive(Clone, Copy, Default)]
pub(super) struct StreamSet([bool; STREAMS]);

impl StreamSet {
    /// Whether a stream is in the set.
    pub(super) fn contains(self, stream: Stream) -> bool {
        self.0[stream as usize]
    }

    /// Adds a stream.
    pub(super) fn insert(&mut self, stream: Stream) {
        self.0[stream as usize] = true;
    }

    /// The streams of the set.
    pub(super) fn iter(self) -> impl Iterator<Item = Stream> {
        Stream::ALL.into_iter().filter(move |stream| self.contains(*stream))
    }
}
