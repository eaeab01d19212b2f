// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel's pieces as one stream of bytes.

use pando_kernel::ConsolePort;
use std::io::{self, Read};

/// The bytes of a channel, until the cell has ended.
pub(super) struct ChannelReader<'a> {
    channel: &'a ConsolePort,
    piece: Vec<u8>,
    /// Bytes of the piece that were consumed.
    read: usize,
}

impl<'a> ChannelReader<'a> {
    /// A stream of all bytes from now on.
    pub(super) fn new(channel: &'a ConsolePort) -> ChannelReader<'a> {
        ChannelReader { channel, piece: Vec::new(), read: 0 }
    }
}

impl Read for ChannelReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            let Some((_, piece)) = self.channel.receive() else { return Ok(0) };
            (self.piece, self.read) = (piece, 0);
        }
        let count = buffer.len().min(self.piece.len() - self.read);
        buffer[..count].copy_from_slice(&self.piece[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}
