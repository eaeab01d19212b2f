// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of smoltcp and their buffers: the size of new ones, and a pool of spare ones.
//!
//! The buffers of a socket never change size, so their cost is fixed when it is made. Each connection gets a sixteenth
//! of the free memory, up to the maximum. A hundred connections are fast, and each of ten thousand has a little.
//! Buffers are reused without clearing, because clearing takes longer than a short connection.

use alloc::vec;
use alloc::vec::Vec;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};

use crate::limits;

/// A socket alone in its set.
#[derive(Debug)]
pub(crate) struct SingleSocket {
    pub(crate) set: SocketSet<'static>,
    handle: SocketHandle,
}

impl SingleSocket {
    /// A socket with two buffers of this size.
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
    /// Maximum size of a buffer in bytes.
    max_buffer: usize,
    memory: usize,
    used: usize,
    /// Spare sockets with buffers of the maximum size.
    spare: Vec<SingleSocket>,
}

impl Sockets {
    pub(crate) const fn new(max_buffer: usize, memory: usize) -> Self {
        Self { max_buffer, memory, used: 0, spare: Vec::new() }
    }

    /// Bytes of buffers in use.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// The size of each buffer of a new socket, while so many bytes are promised to half-open connections.
    pub(crate) fn size(&self, reserved: usize) -> usize {
        let share = self.memory.saturating_sub(self.used + reserved) / 32;
        if share >= self.max_buffer { self.max_buffer } else { (share & !0xfff).max(limits::MIN_BUFFER).min(self.max_buffer) }
    }

    /// A socket with buffers of this size.
    pub(crate) fn make(&mut self, size: usize) -> SingleSocket {
        let mut single = if size == self.max_buffer { self.spare.pop() } else { None }.unwrap_or_else(|| SingleSocket::new(size));
        self.used += single.bytes();
        let socket = single.get_mut();
        // Congestion control and delayed acknowledgements are done elsewhere.
        socket.set_congestion_control(CongestionControl::None);
        socket.set_ack_delay(None);
        single
    }

    /// Takes back an unused socket.
    pub(crate) fn put_back(&mut self, mut single: SingleSocket) {
        let bytes = single.bytes();
        self.used -= bytes;
        if single.get().recv_capacity() == self.max_buffer && (self.spare.len() + 1) * bytes <= self.memory / 8 {
            single.get_mut().abort();
            self.spare.push(single);
        }
    }
}
