// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unread bytes of a console, for images of cells.

use super::{ConsolePort, Stream};
use crate::limits::CONSOLE_BYTES;
use serde::{Deserialize, Serialize};

/// A chunk of the unread bytes of a console, for an image of the cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConsoleChunk {
    /// Input that the cell has not taken.
    input: Vec<u8>,
    is_input_closed: bool,
    is_input_requested: bool,
    /// Output with the tags of its streams.
    output: Vec<(u32, Vec<u8>)>,
    /// The tags of streams without a reader.
    closed_streams: Vec<u32>,
}

impl ConsoleChunk {
    /// Its bytes of output and input.
    pub(crate) fn stream_bytes(&self) -> usize {
        self.input.len() + self.output.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    }
}

/// Functions for images of cells.
impl ConsolePort {
    /// At most `max` bytes of output and input, output first, after the first `skipped`. An empty chunk is the last.
    pub(crate) fn chunk(&self, skipped: usize, max: usize) -> ConsoleChunk {
        let buffers = self.lock();
        let (mut skipped, mut left, mut output) = (skipped, max, Vec::new());
        let mut cut = |bytes: usize| {
            let start = skipped.min(bytes);
            let end = start + left.min(bytes - start);
            (skipped, left) = (skipped - start, left - (end - start));
            start..end
        };
        for (stream, bytes) in &buffers.output {
            let range = cut(bytes.len());
            if !range.is_empty() {
                output.push((stream.tag(), bytes[range].to_vec()));
            }
        }
        let range = cut(buffers.input.len());
        ConsoleChunk {
            input: buffers.input.range(range).copied().collect(),
            is_input_closed: buffers.input_closed,
            is_input_requested: buffers.input_requested,
            output,
            closed_streams: buffers.closed_streams.iter().map(Stream::tag).collect(),
        }
    }

    /// Appends a chunk. `false`: it has an unknown stream, an empty piece, or more bytes than a console holds.
    pub(crate) fn append_chunk(&self, chunk: ConsoleChunk) -> bool {
        let mut buffers = self.lock();
        let bytes: usize = chunk.output.iter().map(|(_, bytes)| bytes.len()).sum();
        let is_known = chunk.output.iter().map(|(tag, _)| tag).chain(&chunk.closed_streams).all(|tag| Stream::from_tag(*tag).is_some());
        let is_small = buffers.output_bytes + bytes <= 2 * CONSOLE_BYTES && buffers.input.len() + chunk.input.len() <= CONSOLE_BYTES;
        // Empty pieces would take no room, and so be without a limit.
        let has_empty = chunk.output.iter().any(|(_, bytes)| bytes.is_empty());
        if !is_known || !is_small || has_empty {
            return false;
        }
        for (tag, bytes) in chunk.output {
            if let Some(stream) = Stream::from_tag(tag) {
                buffers.append(stream, bytes);
            }
        }
        for stream in chunk.closed_streams.into_iter().filter_map(Stream::from_tag) {
            buffers.closed_streams.insert(stream);
        }
        buffers.input.extend(chunk.input);
        (buffers.input_closed, buffers.input_requested) = (chunk.is_input_closed, chunk.is_input_requested);
        buffers.is_changed = true;
        true
    }
}
