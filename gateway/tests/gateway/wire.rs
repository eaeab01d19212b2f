// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cable between a gateway and a stack that plays a cell: two queues of frames.

use pando_gateway::{Handle, Station};
use pando_stack::Outlet;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Frames that a queue holds; what finds no room waits.
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

    /// Waits until a frame is there, or so long.
    pub fn wait(&self, most: Duration) {
        let frames = self.frames.lock().expect("nobody panics with it");
        let _ = self.arrived.wait_timeout_while(frames, most, |frames| frames.is_empty());
    }
}

/// One end of a cable.
pub struct End {
    pub hears: Arc<Direction>,
    says: Arc<Direction>,
    /// Who is woken by what is said here.
    other: Option<Handle>,
    room: Vec<u8>,
    /// What was said here, if somebody wants to know.
    pub recording: Option<Vec<Vec<u8>>>,
}

/// The cell's end, and the gateway's.
pub fn cable(gateway: Handle) -> [End; 2] {
    let [out, back] = [Arc::<Direction>::default(), Arc::default()];
    let cell = End { hears: Arc::clone(&back), says: Arc::clone(&out), other: Some(gateway), room: Vec::new(), recording: None };
    [cell, End { hears: out, says: back, other: None, room: Vec::new(), recording: None }]
}

impl Outlet for End {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        if self.says.frames.lock().expect("nobody panics with it").len() >= DEPTH {
            return None;
        }
        self.room.resize(length, 0);
        Some(&mut self.room)
    }

    fn commit(&mut self, length: usize) {
        if let Some(recording) = &mut self.recording {
            recording.push(self.room[..length].to_vec());
        }
        self.says.frames.lock().expect("nobody panics with it").push_back(self.room[..length].to_vec());
        self.says.arrived.notify_one();
        if let Some(other) = &self.other {
            other.wake();
        }
    }
}

impl Station for End {
    type Frame = Vec<u8>;

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.hears.take()
    }

    fn flush(&mut self) {}
}
