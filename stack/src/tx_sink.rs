// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tx sink of a stack: the user's own frame buffers, or a [`TxQueue`].

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// A destination of frames.
pub trait TxSink {
    /// Room for one frame of up to `length` bytes, of which the stack writes the first ones. `None` means that there
    /// is no room now; the stack keeps its data. Room without a following [`TxSink::commit`] was not used.
    fn room(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Sends the first `length` bytes of the room just given as a frame.
    fn commit(&mut self, length: usize);
}

/// A port of a network of cells that the host process uses. Its frames go in through [`TxSink`].
pub trait FramePort: TxSink {
    /// A frame, in any form.
    type Frame: AsRef<[u8]>;

    /// The next frame for this port.
    fn receive(&mut self) -> Option<Self::Frame>;

    /// Lets all committed frames go.
    fn flush(&mut self);
}

/// A bounded queue of frames.
#[derive(Debug)]
pub struct TxQueue {
    /// Frames one after the other. Bytes past `used` have no meaning; they are kept to avoid clearing them again.
    bytes: Vec<u8>,
    used: usize,
    bound: usize,
    lengths: VecDeque<usize>,
    /// Where the first frame begins.
    first: usize,
}

impl TxQueue {
    /// An empty queue, which is full at `bound` bytes.
    pub fn new(bound: usize) -> Self {
        Self { bytes: Vec::new(), used: 0, bound, lengths: VecDeque::new(), first: 0 }
    }

    /// Passes the frames to `give` in order, until `give` refuses one, which stays.
    pub fn drain(&mut self, give: &mut dyn FnMut(&[u8]) -> bool) {
        while let Some(&length) = self.lengths.front()
            && give(&self.bytes[self.first..self.first + length])
        {
            self.first += length;
            self.lengths.pop_front();
        }
        if self.lengths.is_empty() {
            (self.first, self.used) = (0, 0);
        }
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}

impl TxSink for TxQueue {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        if self.used >= self.bound {
            return None;
        }
        let end = self.used + length;
        if self.bytes.len() < end {
            self.bytes.append(&mut vec![0; end - self.bytes.len()]);
        }
        Some(&mut self.bytes[self.used..end])
    }

    fn commit(&mut self, length: usize) {
        self.used += length;
        self.lengths.push_back(length);
    }
}
