// SPDX-License-Identifier: MIT OR Apache-2.0
//! smoltcp's sockets with their buffers: how large a new one's may be, and those that are kept for the next connection.
//!
//! A socket's buffers never change, so what they cost is decided when it is made: each connection gets a sixteenth of the memory that is left, if
//! that is less than the most it may have. A hundred connections are fast, and of ten thousand each has a little. Buffers are used again as they
//! are, because clearing them takes longer than a short connection.

use alloc::vec;
use alloc::vec::Vec;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};

use crate::limits;

/// A socket alone in its set.
#[derive(Debug)]
pub(crate) struct Single {
    pub(crate) set: SocketSet<'static>,
    handle: SocketHandle,
}

impl Single {
    /// One with two buffers of so many bytes.
    pub(crate) fn new(buffer: usize) -> Self {
        let socket = Socket::new(SocketBuffer::new(vec![0; buffer]), SocketBuffer::new(vec![0; buffer]));
        let mut set = SocketSet::new(vec![]);
        let handle = set.add(socket);
        Self { set, handle }
    }

    pub(crate) fn get(&self) -> &Socket<'static> {
        self.set.get(self.handle)
    }

    pub(crate) fn get_mut(&mut self) -> &mut Socket<'static> {
        self.set.get_mut(self.handle)
    }

    fn bytes(&self) -> usize {
        self.get().recv_capacity() + self.get().send_capacity()
    }
}

/// All buffers.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// Bytes of a buffer, at most.
    most: usize,
    memory: usize,
    used: usize,
    /// Of the largest, some that are free.
    spare: Vec<Single>,
}

impl Sockets {
    pub(crate) const fn new(most: usize, memory: usize) -> Self {
        Self { most, memory, used: 0, spare: Vec::new() }
    }

    /// Bytes of buffers in use.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// How large each of a new socket's buffers is, where so many bytes are promised to others.
    pub(crate) fn size(&self, promised: usize) -> usize {
        let share = self.memory.saturating_sub(self.used + promised) / 32;
        if share >= self.most { self.most } else { (share & !0xfff).max(limits::LEAST_BUFFER).min(self.most) }
    }

    /// A socket with buffers of that size.
    pub(crate) fn make(&mut self, size: usize) -> Single {
        let mut single = if size == self.most { self.spare.pop() } else { None }.unwrap_or_else(|| Single::new(size));
        self.used += single.bytes();
        let socket = single.get_mut();
        // How much may be under way and when to acknowledge is decided elsewhere.
        socket.set_congestion_control(CongestionControl::None);
        socket.set_ack_delay(None);
        single
    }

    /// A socket is not used any more.
    pub(crate) fn put_back(&mut self, mut single: Single) {
        let bytes = single.bytes();
        self.used -= bytes;
        if single.get().recv_capacity() == self.most && (self.spare.len() + 1) * bytes <= self.memory / 8 {
            single.get_mut().abort();
            self.spare.push(single);
        }
    }
}
