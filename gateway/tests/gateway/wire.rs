// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link between a gateway and a stack that plays a cell: two queues of frames.

use pando_gateway::{FramePort, Handle};
use pando_stack::TxSink;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Capacity of a queue in frames; a sender waits for space.
const DEPTH: usize = 512;

/// One direction.
#[derive(Default)]
pub struct Direction {
    frames: Mutex<VecDeque<Vec<u8>>>,
    arrived: Condvar,
}

impl Direction {
    fn take(&self) -> Option<Vec<u8>> {
        self.frames.lock().expect("nobody panics with it").pop_front()
    }

    /// Waits for a frame, at most this long.
    pub fn wait(&self, most: Duration) {
        let frames = self.frames.lock().expect("nobody panics with it");
        let _ = self.arrived.wait_timeout_while(frames, most, |frames| frames.is_empty());
    }
}

/// One end of the link.
pub struct CableEnd {
    pub incoming: Arc<Direction>,
    outgoing: Arc<Direction>,
    /// The gateway to wake when a frame is sent here.
    other: Option<Handle>,
    room: Vec<u8>,
    /// The frames that were sent here, if recorded.
    pub recording: Option<Vec<Vec<u8>>>,
}

/// The cell's end, and the gateway's.
pub fn cable(gateway: Handle) -> [CableEnd; 2] {
    let [out, back] = [Arc::<Direction>::default(), Arc::default()];
    let cell =
        CableEnd { incoming: Arc::clone(&back), outgoing: Arc::clone(&out), other: Some(gateway), room: Vec::new(), recording: None };
    [cell, CableEnd { incoming: out, outgoing: back, other: None, room: Vec::new(), recording: None }]
}

impl TxSink for CableEnd {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        if self.outgoing.frames.lock().expect("nobody panics with it").len() >= DEPTH {
            return None;
        }
        self.room.resize(length, 0);
        Some(&mut self.room)
    }

    fn commit(&mut self, length: usize) {
        if let Some(recording) = &mut self.recording {
            recording.push(self.room[..length].to_vec());
        }
        self.outgoing.frames.lock().expect("nobody panics with it").push_back(self.room[..length].to_vec());
        self.outgoing.arrived.notify_one();
        if let Some(other) = &self.other {
            other.wake();
        }
    }
}

impl FramePort for CableEnd {
    type Frame = Vec<u8>;

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.incoming.take()
    }

    fn flush(&mut self) {}
}
