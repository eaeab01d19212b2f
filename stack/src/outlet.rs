// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a stack puts the frames that it sends: straight into the room that its user has for them, or into an [`Outbox`].

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Where frames go.
pub trait Outlet {
    /// Room for one frame of up to `length` bytes, of which the stack will write the first so many. None: no room now, and the stack waits with
    /// what it has to say. Room that is not followed by [`Outlet::commit`] was not used.
    fn room(&mut self, length: usize) -> Option<&mut [u8]>;

    /// What was written into the first `length` bytes of the room just given is a frame, to be sent.
    fn commit(&mut self, length: usize);
}

/// Where somebody of the host's is plugged into a network of cells. What they say goes in by [`Outlet`].
pub trait Station: Outlet {
    /// A frame, however it is kept.
    type Frame: AsRef<[u8]>;

    /// The next frame for them.
    fn receive(&mut self) -> Option<Self::Frame>;

    /// All that was said so far may go.
    fn flush(&mut self);
}

/// A bounded queue of frames.
#[derive(Debug)]
pub struct Outbox {
    /// Frames one behind the other. What lies past `used` has no meaning, and is kept so that it need not be cleared again.
    bytes: Vec<u8>,
    used: usize,
    bound: usize,
    lengths: VecDeque<usize>,
    /// Where the first of the frames begins.
    first: usize,
}

impl Outbox {
    /// An empty one, which has no more room when so many bytes are in it.
    pub fn new(bound: usize) -> Self {
        Self { bytes: Vec::new(), used: 0, bound, lengths: VecDeque::new(), first: 0 }
    }

    /// Hands out the frames in their order, until `give` has no room for one, which stays.
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

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// There are no frames.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}

impl Outlet for Outbox {
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
