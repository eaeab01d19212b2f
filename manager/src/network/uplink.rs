// SPDX-License-Identifier: MIT OR Apache-2.0
//! The uplink's port in a network of the kernel: sends and receives frames in batches.

use bytes::Bytes;
use pando_gateway::{FramePort, TxSink};
use pando_kernel::network::buffers::Buffers;
use pando_kernel::{CellId, Kernel};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

/// Frames per lock acquisition.
const BATCH: usize = 64;
/// Bytes that may be queued at the cell, with each frame's overhead: half of its port's capacity, so that the port drops none.
const QUEUE_MAX: u64 = pando_kernel::limits::QUEUE_BYTES as u64 / 2;
/// The overhead of each frame.
const FRAME_OVERHEAD: u64 = (pando_kernel::limits::QUEUE_BYTES / pando_kernel::limits::QUEUE_FRAMES) as u64;

/// The uplink's port.
pub struct Uplink {
    host_port: Arc<pando_kernel::HostPort>,
    kernel: Arc<Kernel>,
    /// The only cell of the network; `None`: it has many.
    cell: Option<CellId>,
    arrived: VecDeque<Bytes>,
    outgoing: Vec<Bytes>,
    /// Bytes that may be sent before the queue is checked again.
    credit: u64,
    room: Vec<u8>,
    buffers: Buffers,
}

impl Uplink {
    pub fn new(host_port: Arc<pando_kernel::HostPort>, kernel: Arc<Kernel>, cell: Option<CellId>) -> Uplink {
        Uplink {
            host_port,
            kernel,
            cell,
            arrived: VecDeque::new(),
            outgoing: Vec::new(),
            credit: QUEUE_MAX,
            room: Vec::new(),
            buffers: Buffers::default(),
        }
    }

    /// Updates the credit from the link's and the cell port's free space. A cell that has ended has unlimited space. One of many cells
    /// that does not take its frames must not delay the others: its port drops them.
    fn request_frames(&mut self) {
        let waiting = self
            .cell
            .and_then(|cell| self.kernel.traffic(cell).ok().flatten())
            .map_or(0, |traffic| traffic.waiting.bytes + traffic.waiting.frames * FRAME_OVERHEAD);
        self.credit = QUEUE_MAX.saturating_sub(waiting + self.host_port.traffic().in_transit);
    }
}

impl Uplink {
    /// Whether the cell takes another frame now.
    pub(super) fn has_room(&mut self) -> bool {
        if self.credit == 0 {
            self.flush();
            self.request_frames();
        }
        self.credit > 0
    }

    /// Sends a frame of this length, which `fill` writes, all of it.
    pub(super) fn send(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let filled = self.buffers.allocate_filled(length, |room| {
            fill(room);
            Ok::<(), Infallible>(())
        });
        let Ok(frame) = filled;
        self.push(frame);
    }

    fn push(&mut self, frame: Bytes) {
        self.credit = self.credit.saturating_sub(frame.len() as u64 + FRAME_OVERHEAD);
        self.outgoing.push(frame);
        if self.outgoing.len() >= BATCH {
            self.flush();
        }
    }
}

impl TxSink for Uplink {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        if !self.has_room() {
            return None;
        }
        if self.room.len() < length {
            self.room.resize(length, 0);
        }
        self.room.get_mut(..length)
    }

    fn commit(&mut self, length: usize) {
        let frame = self.buffers.copy(self.room.get(..length).unwrap_or_default());
        self.push(frame);
    }
}

impl FramePort for Uplink {
    type Frame = Bytes;

    fn receive(&mut self) -> Option<Bytes> {
        if self.arrived.is_empty() {
            self.arrived.extend(self.host_port.receive(BATCH));
        }
        self.arrived.pop_front()
    }

    fn flush(&mut self) {
        if !self.outgoing.is_empty() {
            self.host_port.send(self.outgoing.drain(..));
        }
    }
}
