// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plug, in a network of the kernel's, of what leads out of it: frames by the batch, both ways.

use bytes::Bytes;
use pando_gateway::{Outlet, Station};
use pando_kernel::network::buffers::Buffers;
use pando_kernel::{CellId, Kernel};
use std::collections::VecDeque;
use std::sync::Arc;

/// Frames that are carried under one lock.
const BATCH: usize = 64;
/// Bytes that may wait at the cell, each frame with a part for itself: half of what its port holds, so that nothing is lost there.
const WAITING: u64 = pando_kernel::limits::QUEUE_BYTES as u64 / 2;
/// What each frame takes beside its bytes.
const PART: u64 = (pando_kernel::limits::QUEUE_BYTES / pando_kernel::limits::QUEUE_FRAMES) as u64;

/// A plug.
pub(crate) struct Plug {
    station: Arc<pando_kernel::Station>,
    kernel: Arc<Kernel>,
    cell: CellId,
    arrived: VecDeque<Bytes>,
    said: Vec<Bytes>,
    /// Bytes that may be said before somebody looks what waits.
    credit: u64,
    room: Vec<u8>,
    buffers: Buffers,
}

impl Plug {
    pub(crate) fn new(station: Arc<pando_kernel::Station>, kernel: Arc<Kernel>, cell: CellId) -> Plug {
        Plug {
            station,
            kernel,
            cell,
            arrived: VecDeque::new(),
            said: Vec::new(),
            credit: WAITING,
            room: Vec::new(),
            buffers: Buffers::default(),
        }
    }

    /// Looks how much more the link and the cell's port hold. Whoever is gone holds as much as one likes.
    fn ask(&mut self) {
        let waiting =
            self.kernel.traffic(self.cell).ok().flatten().map_or(0, |traffic| traffic.waiting.bytes + traffic.waiting.frames * PART);
        self.credit = WAITING.saturating_sub(waiting + self.station.traffic().under_way);
    }
}

impl Outlet for Plug {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        if self.credit == 0 {
            self.flush();
            self.ask();
        }
        if self.credit == 0 {
            return None;
        }
        if self.room.len() < length {
            self.room.resize(length, 0);
        }
        self.room.get_mut(..length)
    }

    fn commit(&mut self, length: usize) {
        self.credit = self.credit.saturating_sub(length as u64 + PART);
        self.said.push(self.buffers.copy(self.room.get(..length).unwrap_or_default()));
        if self.said.len() >= BATCH {
            self.flush();
        }
    }
}

impl Station for Plug {
    type Frame = Bytes;

    fn receive(&mut self) -> Option<Bytes> {
        if self.arrived.is_empty() {
            self.arrived.extend(self.station.receive(BATCH));
        }
        self.arrived.pop_front()
    }

    fn flush(&mut self) {
        if !self.said.is_empty() {
            self.station.send(self.said.drain(..));
        }
    }
}
