// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console: byte streams in and out, with back-pressure in both directions.
//!
//! A cell's channel to its operator works the same way, through separate rings.
//!
//! [`Console`] is the cell's side, served under the kernel lock; [`ConsolePort`] is the host's, with its own lock. Lock order: the
//! kernel's, then the port's; a port's owner wakes the cell only after it has released the port.

pub(crate) mod chunk;
mod stream;

use super::ring::RingState;
use crate::cell::image::RingPositions;
use crate::limits::{CONSOLE_BUFFERS, CONSOLE_BYTES};
use crate::memory::{CopyAuthority, CopyError, Frames, SpaceSet};
use pando_abi::layout::{CONSOLE_RINGS, CONTROL_RINGS};
use pando_abi::limits::{CHANNEL_DESCRIPTORS, MAX_DESCRIPTOR_BYTES, RECEIVE_DESCRIPTORS, TRANSMIT_DESCRIPTORS};
use pando_abi::ring::{ConsoleRings, ControlRings, FAULTED, NO_READER};
use std::collections::VecDeque;
use std::mem::{self, offset_of};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

pub use stream::Stream;
use stream::{STREAMS, StreamSet};

/// The result of a non-blocking read of a cell's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsoleOutput {
    /// Bytes of a stream.
    Bytes(Stream, Vec<u8>),
    /// No output yet.
    Nothing,
    /// The cell has ended, and all its output was read.
    End,
}

#[derive(Default)]
struct Buffers {
    input: VecDeque<u8>,
    input_closed: bool,
    /// The cell has requested input at least once.
    input_requested: bool,
    output: VecDeque<(Stream, Vec<u8>)>,
    output_bytes: usize,
    output_closed: bool,
    /// Streams that have no reader any more.
    closed_streams: StreamSet,
    /// There was new output, room for input, a first request for it, or the end, since this was last asked.
    is_changed: bool,
    /// Called when there is new output, or room for input.
    listener: Option<Box<dyn Fn() + Send>>,
    /// The cell has more output than there was room for.
    is_cell_waiting: bool,
    /// The cell is ending: all posted output is taken, however full the buffer is.
    is_ending: bool,
}

/// The host's end of a console.
pub struct ConsolePort {
    buffers: Mutex<Buffers>,
    changed: Condvar,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Buffers {
    /// How many more bytes the cell may write. Zero after many small buffers, each of which costs more than its bytes. An ending
    /// cell has as much room again: one ring does not make many buffers.
    fn room(&self) -> usize {
        match self.is_ending {
            true => (2 * CONSOLE_BYTES).saturating_sub(self.output_bytes),
            false if self.output.len() < CONSOLE_BUFFERS => CONSOLE_BYTES.saturating_sub(self.output_bytes),
            false => 0,
        }
    }

    /// Appends output; joins small buffers of the same stream.
    fn append(&mut self, stream: Stream, bytes: Vec<u8>) {
        self.output_bytes += bytes.len();
        let is_scattered = self.output.len() >= CONSOLE_BUFFERS;
        match self.output.back_mut() {
            Some((last, piece)) if *last == stream && piece.len() + bytes.len() <= MAX_DESCRIPTOR_BYTES as usize => piece.extend(bytes),
            // With so many small buffers, only the order within each stream is kept: a stream's last buffer is among the last few, or it
            // gets another one.
            _ if is_scattered => match self.output.iter_mut().rev().take(STREAMS).find(|(last, _)| *last == stream) {
                Some((_, piece)) => piece.extend(bytes),
                None => self.output.push_back((stream, bytes)),
            },
            _ => self.output.push_back((stream, bytes)),
        }
    }

    /// Calls the listener.
    fn notify_listener(&mut self) {
        self.is_changed = true;
        if let Some(listener) = &self.listener {
            listener();
        }
    }
}

impl ConsolePort {
    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().expect("no holder of a console's lock panics")
    }

    /// Sends input to the cell; waits while its buffer is full. `false`: the cell has ended, and the input will not be read.
    pub fn send(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let mut buffers = self.lock();
            while buffers.input.len() >= CONSOLE_BYTES && !buffers.output_closed {
                buffers = self.changed.wait(buffers).expect("no holder of a console's lock panics");
            }
            let Some(count) = self.push_input(buffers, bytes) else { return false };
            bytes = &bytes[count..];
        }
        true
    }

    /// Sends as much input as the cell's buffer has room for. Returns how much; `None`: the cell has ended, and the input will not
    /// be read. Never waits.
    pub fn try_send(&self, bytes: &[u8]) -> Option<usize> {
        self.push_input(self.lock(), bytes)
    }

    fn push_input(&self, mut buffers: MutexGuard<'_, Buffers>, bytes: &[u8]) -> Option<usize> {
        if buffers.output_closed {
            return None;
        }
        let count = CONSOLE_BYTES.saturating_sub(buffers.input.len()).min(bytes.len());
        buffers.input.extend(&bytes[..count]);
        drop(buffers);
        if count > 0 {
            (self.wake)();
        }
        Some(count)
    }

    /// Whether there is input that the cell has not taken.
    pub(crate) fn has_input(&self) -> bool {
        !self.lock().input.is_empty()
    }

    /// Waits until the cell requests input for the first time, so that unwanted input is not taken from the host. `false`: the cell
    /// has ended without a request.
    pub fn wait_for_input_request(&self) -> bool {
        let mut buffers = self.lock();
        while !buffers.input_requested && !buffers.output_closed {
            buffers = self.changed.wait(buffers).expect("no holder of a console's lock panics");
        }
        buffers.input_requested
    }

    /// Closes a stream for reading: the cell's later writes to it complete as [`NO_READER`], and its unread output is dropped.
    pub fn close_stream(&self, stream: Stream) {
        self.drop_stream(stream);
        (self.wake)();
    }

    /// Ends the input.
    pub fn close_input(&self) {
        self.lock().input_closed = true;
        (self.wake)();
    }

    /// Returns the next output of the cell; waits for it. `None`: the cell has ended, and all its output was read.
    pub fn receive(&self) -> Option<(Stream, Vec<u8>)> {
        let mut buffers = self.lock();
        loop {
            buffers = match self.take(buffers) {
                Ok((stream, bytes)) => return Some((stream, bytes)),
                Err(buffers) if buffers.output_closed => return None,
                Err(buffers) => self.changed.wait(buffers).expect("no holder of a console's lock panics"),
            };
        }
    }

    /// Returns the next output of the cell, if there is any. Never waits.
    pub fn try_receive(&self) -> ConsoleOutput {
        match self.take(self.lock()) {
            Ok((stream, bytes)) => ConsoleOutput::Bytes(stream, bytes),
            Err(buffers) if buffers.output_closed => ConsoleOutput::End,
            Err(_) => ConsoleOutput::Nothing,
        }
    }

    /// Calls `listener` at once, and from now on whenever there may be new output or room for input. It is called under locks,
    /// including the kernel's, from vCPU threads: it may only wake a thread.
    pub fn listen(&self, listener: impl Fn() + Send + 'static) {
        let mut buffers = self.lock();
        buffers.listener = Some(Box::new(listener));
        buffers.notify_listener();
    }

    /// Takes the next output, and notifies the cell of the room; returns the lock if there is none.
    fn take<'a>(&self, mut buffers: MutexGuard<'a, Buffers>) -> Result<(Stream, Vec<u8>), MutexGuard<'a, Buffers>> {
        let Some((stream, bytes)) = buffers.output.pop_front() else {
            if buffers.output_closed {
                // Ports outlive cells.
                buffers.output = VecDeque::new();
            }
            return Err(buffers);
        };
        buffers.output_bytes -= bytes.len();
        let waits = buffers.is_cell_waiting && buffers.output_bytes <= CONSOLE_BYTES / 2;
        if waits {
            buffers.is_cell_waiting = false;
        }
        drop(buffers);
        if waits {
            (self.wake)();
        }
        Ok((stream, bytes))
    }

    /// Gives back memory of the buffers that holds no bytes: for a cell that falls asleep.
    pub(crate) fn shrink(&self) {
        let mut buffers = self.lock();
        buffers.input.shrink_to_fit();
        buffers.output.shrink_to_fit();
    }

    /// Marks the cell as ended. Unread input is dropped.
    pub fn close(&self) {
        let mut buffers = self.lock();
        buffers.output_closed = true;
        buffers.input = VecDeque::new();
        buffers.notify_listener();
        self.changed.notify_all();
    }
}

/// Functions for a parent cell, under the kernel's lock: the caller wakes the cell itself.
impl ConsolePort {
    /// Whether the cell has asked for input at least once.
    pub(crate) fn is_input_requested(&self) -> bool {
        self.lock().input_requested
    }

    /// Closes a stream for reading, as [`ConsolePort::close_stream`] does.
    pub(crate) fn drop_stream(&self, stream: Stream) {
        let mut buffers = self.lock();
        buffers.closed_streams.insert(stream);
        buffers.output.retain(|(other, _)| *other != stream);
        buffers.output_bytes = buffers.output.iter().map(|(_, bytes)| bytes.len()).sum();
        buffers.is_cell_waiting = false;
    }

    /// Whether there was new output, room for input, a first request for it, or the end, since this was last asked.
    pub(crate) fn take_change(&self) -> bool {
        mem::take(&mut self.lock().is_changed)
    }

    /// At most `max` bytes of the next output, which stay the next output.
    pub(crate) fn peek(&self, max: usize) -> ConsoleOutput {
        let buffers = self.lock();
        match buffers.output.front() {
            Some((stream, bytes)) => ConsoleOutput::Bytes(*stream, bytes[..bytes.len().min(max)].to_vec()),
            None if buffers.output_closed => ConsoleOutput::End,
            None => ConsoleOutput::Nothing,
        }
    }

    /// Removes the first `count` bytes of the next output. `true`: the cell waits for the room.
    pub(crate) fn consume(&self, count: usize) -> bool {
        let mut buffers = self.lock();
        let Some((_, bytes)) = buffers.output.front_mut() else { return false };
        let count = count.min(bytes.len());
        bytes.drain(..count);
        if bytes.is_empty() {
            buffers.output.pop_front();
        }
        buffers.output_bytes -= count;
        buffers.output_bytes <= CONSOLE_BYTES / 2 && mem::take(&mut buffers.is_cell_waiting)
    }

    /// Appends as much input as there is room for; returns how much. An empty slice ends the input.
    pub(crate) fn append_input(&self, bytes: &[u8]) -> usize {
        let mut buffers = self.lock();
        if bytes.is_empty() {
            buffers.input_closed = true;
        }
        if buffers.output_closed {
            return bytes.len();
        }
        let count = CONSOLE_BYTES.saturating_sub(buffers.input.len()).min(bytes.len());
        buffers.input.extend(&bytes[..count]);
        count
    }
}

/// Functions for a proxy of a cell, whose bytes do not travel through rings of this port.
impl ConsolePort {
    /// A port without a console; `wake` is called, without any lock, when its owner has sent something or made room.
    #[must_use]
    pub fn detached(wake: impl Fn() + Send + Sync + 'static) -> Arc<ConsolePort> {
        let port = ConsolePort { buffers: Mutex::default(), changed: Condvar::new(), wake: Box::new(wake) };
        port.request_input();
        Arc::new(port)
    }

    /// The same for a cell that has not asked for input yet: the owner calls [`ConsolePort::request_input`] when it does.
    #[must_use]
    pub fn of_remote_cell(wake: impl Fn() + Send + Sync + 'static) -> Arc<ConsolePort> {
        Arc::new(ConsolePort { buffers: Mutex::default(), changed: Condvar::new(), wake: Box::new(wake) })
    }

    /// Records that the cell asks for input.
    pub fn request_input(&self) {
        let mut buffers = self.lock();
        if !buffers.input_requested {
            buffers.input_requested = true;
            buffers.notify_listener();
            self.changed.notify_all();
        }
    }

    /// Takes up to `max` bytes of input. The second value is `true` if the input has ended with them.
    pub fn take_input(&self, max: usize) -> (Vec<u8>, bool) {
        let mut buffers = self.lock();
        let count = buffers.input.len().min(max);
        let bytes: Vec<u8> = buffers.input.drain(..count).collect();
        let is_last = buffers.input.is_empty() && buffers.input_closed;
        if count > 0 {
            buffers.notify_listener();
            self.changed.notify_all();
        }
        (bytes, is_last)
    }

    /// Appends output for the owner, however much is buffered already.
    pub fn append_output(&self, stream: Stream, bytes: Vec<u8>) {
        let mut buffers = self.lock();
        if !bytes.is_empty() && !buffers.closed_streams.contains(stream) {
            buffers.append(stream, bytes);
            buffers.notify_listener();
            self.changed.notify_all();
        }
    }

    /// Whether the owner has left as much output unread as a cell's console holds.
    pub fn is_full(&self) -> bool {
        self.lock().output_bytes >= CONSOLE_BYTES
    }

    /// How many bytes of output the owner has not read; its next read calls `wake`.
    pub fn unread_output(&self) -> usize {
        let mut buffers = self.lock();
        buffers.is_cell_waiting = buffers.output_bytes > 0;
        buffers.output_bytes
    }

    /// Whether the owner has closed a stream for reading.
    pub fn is_stream_closed(&self, stream: Stream) -> bool {
        self.lock().closed_streams.contains(stream)
    }
}

/// The cell's end of a console or a channel.
pub struct Console {
    transmit: RingState,
    receive: RingState,
    /// Bytes of the next transmit descriptor that are already sent.
    progress: u32,
    /// The rings hold an earlier console's state, and are cleared first.
    must_reset: bool,
    port: Arc<ConsolePort>,
}

impl Console {
    /// A console; `wake` is called, without any lock, when the cell should look at its rings.
    pub(crate) fn new(wake: Box<dyn Fn() + Send + Sync>) -> Console {
        let transmit = RingState::new(CONSOLE_RINGS + offset_of!(ConsoleRings, transmit) as u64, TRANSMIT_DESCRIPTORS);
        let receive = RingState::new(CONSOLE_RINGS + offset_of!(ConsoleRings, receive) as u64, RECEIVE_DESCRIPTORS);
        Console::with_rings(transmit, receive, wake)
    }

    /// A channel to the operator, with the same `wake`.
    pub(crate) fn channel(wake: Box<dyn Fn() + Send + Sync>) -> Console {
        let requests = RingState::new(CONSOLE_RINGS + offset_of!(ConsoleRings, requests) as u64, CHANNEL_DESCRIPTORS);
        let answers = RingState::new(CONSOLE_RINGS + offset_of!(ConsoleRings, answers) as u64, CHANNEL_DESCRIPTORS);
        Console::with_rings(requests, answers, wake)
    }

    /// A control channel. Its rings start empty, also in a clone.
    pub(crate) fn control(wake: Box<dyn Fn() + Send + Sync>) -> Console {
        let reports = RingState::new(CONTROL_RINGS + offset_of!(ControlRings, reports) as u64, CHANNEL_DESCRIPTORS);
        let orders = RingState::new(CONTROL_RINGS + offset_of!(ControlRings, orders) as u64, CHANNEL_DESCRIPTORS);
        Console { must_reset: true, ..Console::with_rings(reports, orders, wake) }
    }

    fn with_rings(transmit: RingState, receive: RingState, wake: Box<dyn Fn() + Send + Sync>) -> Console {
        let port = ConsolePort { buffers: Mutex::default(), changed: Condvar::new(), wake };
        Console { transmit, receive, progress: 0, must_reset: false, port: Arc::new(port) }
    }

    /// Its positions in the rings.
    pub(crate) fn positions(&self) -> RingPositions {
        RingPositions { transmit: self.transmit.taken(), receive: self.receive.taken(), progress: self.progress }
    }

    /// The same console with empty buffers at other ring positions: a clone's console continues at its source's position.
    pub(crate) fn at_positions(self, positions: RingPositions) -> Console {
        let RingPositions { transmit, receive, progress } = positions;
        Console { transmit: self.transmit.with_taken(transmit), receive: self.receive.with_taken(receive), progress, ..self }
    }

    /// The host's end.
    pub(crate) fn port(&self) -> &Arc<ConsolePort> {
        &self.port
    }

    /// Moves bytes between rings and buffers; `true` if the cell may be waiting for that. Bounded by the size of the buffers,
    /// whatever the descriptors contain.
    ///
    /// # Errors
    /// No memory for a page of the cell that must be made, or a block of a disk must be read first: the rest follows at the next
    /// call.
    pub(crate) fn serve(&mut self, frames: &mut Frames, memory: &mut SpaceSet) -> Result<bool, CopyError> {
        if self.must_reset {
            memory.write(frames, CONTROL_RINGS, &[0; size_of::<ControlRings>()], CopyAuthority::Operator)?;
            self.must_reset = false;
            return Ok(true);
        }
        let sent = self.serve_transmit(frames, memory)?;
        let received = self.serve_receive(frames, memory)?;
        Ok(sent || received)
    }

    /// Whether the cell has posted output that is not taken yet.
    pub(crate) fn has_posted_output(&self, frames: &Frames, memory: &mut SpaceSet) -> bool {
        !self.must_reset && self.transmit.next(frames, memory).is_some()
    }

    /// Takes the output that the cell has posted before its end: a program's write has returned, so its bytes are written. Output
    /// in unread blocks of disks is skipped: such a write has not returned.
    pub(crate) fn take_final_output(&mut self, frames: &mut Frames, memory: &mut SpaceSet) {
        self.port.lock().is_ending = true;
        if !self.must_reset {
            let _ = self.serve_transmit(frames, memory);
        }
    }

    fn serve_transmit(&mut self, frames: &mut Frames, memory: &mut SpaceSet) -> Result<bool, CopyError> {
        let mut moved = false;
        // Descriptors with invalid addresses may cost as much as the buffer holds, and no more.
        let mut budget = CONSOLE_BYTES;
        // The ring's length bounds the loop even if the cell's count keeps growing.
        for _ in 0..self.transmit.length() {
            let Some(descriptor) = self.transmit.next(frames, memory) else { break };
            let Some(stream) = Stream::from_tag(descriptor.tag) else {
                self.finish_transmit(frames, memory, FAULTED)?;
                moved = true;
                continue;
            };
            let length = descriptor.length.min(MAX_DESCRIPTOR_BYTES);
            // The cell may have shortened the descriptor since its first part was sent.
            let left = length.saturating_sub(self.progress) as usize;
            let mut buffers = self.port.lock();
            if buffers.closed_streams.contains(stream) {
                drop(buffers);
                self.finish_transmit(frames, memory, NO_READER)?;
                moved = true;
                continue;
            }
            let room = buffers.room();
            if room == 0 && left > 0 {
                buffers.is_cell_waiting = true;
                break;
            }
            let count = room.min(left);
            if count > budget {
                break;
            }
            budget -= count;
            let mut bytes = vec![0; count];
            let address = descriptor.address.wrapping_add(u64::from(self.progress));
            match memory.read(frames, address, &mut bytes, CopyAuthority::Cell) {
                Ok(()) => {}
                Err(CopyError::Refused | CopyError::Unreadable) => {
                    drop(buffers);
                    self.finish_transmit(frames, memory, FAULTED)?;
                    moved = true;
                    continue;
                }
                Err(later) => return Err(later),
            }
            if count > 0 {
                buffers.append(stream, bytes);
                buffers.notify_listener();
                self.port.changed.notify_all();
            }
            drop(buffers);
            self.progress += count as u32;
            if count == left {
                self.finish_transmit(frames, memory, length)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Completes a transmit descriptor. `length` may be less than what is sent already, if the cell has shortened the descriptor.
    fn finish_transmit(&mut self, frames: &mut Frames, memory: &mut SpaceSet, length: u32) -> Result<(), CopyError> {
        self.transmit.complete(frames, memory, length.max(self.progress))?;
        // Only now: sent bytes must not be sent again.
        self.progress = 0;
        Ok(())
    }

    fn serve_receive(&mut self, frames: &mut Frames, memory: &mut SpaceSet) -> Result<bool, CopyError> {
        let mut moved = false;
        // As for transmitting: refused descriptors cost as well.
        let mut budget = CONSOLE_BYTES;
        for _ in 0..self.receive.length() {
            let Some(descriptor) = self.receive.next(frames, memory) else { break };
            if descriptor.length == 0 {
                // The cell has withdrawn it.
                self.receive.complete(frames, memory, 0)?;
                moved = true;
                continue;
            }
            self.port.request_input();
            let mut buffers = self.port.lock();
            if buffers.input.is_empty() && !buffers.input_closed {
                break;
            }
            let count = buffers.input.len().min(descriptor.length.min(MAX_DESCRIPTOR_BYTES) as usize);
            if count > budget {
                break;
            }
            budget -= count;
            let bytes: Vec<u8> = buffers.input.iter().take(count).copied().collect();
            let length = match memory.write(frames, descriptor.address, &bytes, CopyAuthority::Cell) {
                Ok(()) => count as u32,
                Err(CopyError::Refused | CopyError::Unreadable) => FAULTED,
                Err(error) => return Err(error),
            };
            if length != FAULTED {
                buffers.input.drain(..count);
                buffers.notify_listener();
                self.port.changed.notify_all();
            }
            drop(buffers);
            self.receive.complete(frames, memory, length)?;
            moved = true;
        }
        Ok(moved)
    }
}
