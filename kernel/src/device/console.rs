// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console: bytes in, bytes out, with back-pressure both ways.
//!
//! A cell's channel to its operator works the same way, through rings of its own.
//!
//! [`Console`] is the cell's side, served under the kernel lock; [`ConsolePort`] is the host's, with a lock of its own. Lock order: the kernel's, then the port's;
//! a port's owner wakes the cell only after letting go of the port.

use super::ring::RingState;
use crate::cell::image::RingPlaces;
use crate::limits::{CONSOLE_BYTES, CONSOLE_PIECES};
use crate::memory::copy::{Behalf, CopyError};
use crate::memory::{Frames, SpaceSet};
use pando_abi::layout::{CONSOLE_RINGS, CONTROL_RINGS};
use pando_abi::limits::{CHANNEL_DESCRIPTORS, MAX_DESCRIPTOR_BYTES, RECEIVE_DESCRIPTORS, TRANSMIT_DESCRIPTORS};
use pando_abi::ring::{ConsoleRings, ControlRings, ERRORS, FAULTED, NOTES, OUTPUT, UNREAD};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Which of a cell's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
    /// What a program says to the operator beside its streams: lines.
    Notes,
}

/// What there is to hear of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// These bytes.
    Bytes(Stream, Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// It has ended and said all.
    End,
}

#[derive(Default)]
struct Buffers {
    input: VecDeque<u8>,
    input_closed: bool,
    /// The cell has asked for input at least once.
    input_wanted: bool,
    output: VecDeque<(Stream, Vec<u8>)>,
    output_bytes: usize,
    output_closed: bool,
    /// Streams that nobody reads any more.
    unread: Vec<Stream>,
    /// Who is told that there is something to hear, or room for input.
    listener: Option<Box<dyn Fn() + Send>>,
    /// The cell has more to say than there was room for.
    cell_waits: bool,
    /// The cell is ending: what it has posted is heard, whatever its host has not taken yet.
    is_last: bool,
}

/// The host's end of a console.
pub struct ConsolePort {
    buffers: Mutex<Buffers>,
    changed: Condvar,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Buffers {
    /// How much more the cell may say. Nothing once it has said much in little pieces, each of which costs more than its bytes. Last words have as much room again: a ring of them is not many pieces.
    fn room(&self) -> usize {
        match self.is_last {
            true => (2 * CONSOLE_BYTES).saturating_sub(self.output_bytes),
            false if self.output.len() < CONSOLE_PIECES => CONSOLE_BYTES.saturating_sub(self.output_bytes),
            false => 0,
        }
    }

    /// Keeps what the cell said; little pieces for the same stream become one.
    fn append(&mut self, stream: Stream, bytes: Vec<u8>) {
        self.output_bytes += bytes.len();
        let is_scattered = self.output.len() >= CONSOLE_PIECES;
        match self.output.back_mut() {
            Some((last, piece)) if *last == stream && piece.len() + bytes.len() <= MAX_DESCRIPTOR_BYTES as usize => piece.extend(bytes),
            // Of so many little pieces only the order within each stream is kept: a stream's last piece is among the last few.
            _ if is_scattered => match self.output.iter_mut().rev().find(|(last, _)| *last == stream) {
                Some((_, piece)) => piece.extend(bytes),
                None => self.output.push_back((stream, bytes)),
            },
            _ => self.output.push_back((stream, bytes)),
        }
    }

    /// Tells whoever listens.
    fn announce(&self) {
        if let Some(listener) = &self.listener {
            listener();
        }
    }
}

impl ConsolePort {
    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().expect("no holder of a console's lock panics")
    }

    /// Gives the cell input; waits while it has enough. `false`: the cell has ended and nobody will read it.
    pub fn send(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let mut buffers = self.lock();
            while buffers.input.len() >= CONSOLE_BYTES && !buffers.output_closed {
                buffers = self.changed.wait(buffers).expect("no holder of a console's lock panics");
            }
            let Some(count) = self.give(buffers, bytes) else { return false };
            bytes = &bytes[count..];
        }
        true
    }

    /// Gives the cell as much input as it has room for now. Returns how much; `None`: the cell has ended and nobody will read it. Never waits.
    pub fn offer(&self, bytes: &[u8]) -> Option<usize> {
        self.give(self.lock(), bytes)
    }

    fn give(&self, mut buffers: MutexGuard<'_, Buffers>, bytes: &[u8]) -> Option<usize> {
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

    /// Waits until the cell asks for input for the first time, so that nothing is taken from the host that nobody wants. `false`: the cell has ended without.
    pub fn wait_until_wanted(&self) -> bool {
        let mut buffers = self.lock();
        while !buffers.input_wanted && !buffers.output_closed {
            buffers = self.changed.wait(buffers).expect("no holder of a console's lock panics");
        }
        buffers.input_wanted
    }

    /// Says that nobody reads a stream any more: the cell is told so when it writes there, and what it had written is dropped.
    pub fn hang_up(&self, stream: Stream) {
        let mut buffers = self.lock();
        buffers.unread.push(stream);
        buffers.output.retain(|(other, _)| *other != stream);
        buffers.output_bytes = buffers.output.iter().map(|(_, bytes)| bytes.len()).sum();
        buffers.cell_waits = false;
        drop(buffers);
        (self.wake)();
    }

    /// Says that no more input comes.
    pub fn close_input(&self) {
        self.lock().input_closed = true;
        (self.wake)();
    }

    /// The next bytes that the cell wrote; waits for some. `None`: it has ended and said all.
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

    /// The next bytes that the cell wrote, if there are some. Never waits.
    pub fn hear(&self) -> Heard {
        match self.take(self.lock()) {
            Ok((stream, bytes)) => Heard::Bytes(stream, bytes),
            Err(buffers) if buffers.output_closed => Heard::End,
            Err(_) => Heard::Nothing,
        }
    }

    /// Calls `listener` from now on whenever there may be something new to hear or room for input, and at once. It is called under locks, the kernel's among them, from vCPU threads: it may wake
    /// somebody, and nothing else.
    pub fn listen(&self, listener: impl Fn() + Send + 'static) {
        let mut buffers = self.lock();
        buffers.listener = Some(Box::new(listener));
        buffers.announce();
    }

    /// Takes the next bytes out, and tells the cell of the room; gives the lock back where there are none.
    fn take<'a>(&self, mut buffers: MutexGuard<'a, Buffers>) -> Result<(Stream, Vec<u8>), MutexGuard<'a, Buffers>> {
        let Some((stream, bytes)) = buffers.output.pop_front() else {
            if buffers.output_closed {
                // Ports outlive cells.
                buffers.output = VecDeque::new();
            }
            return Err(buffers);
        };
        buffers.output_bytes -= bytes.len();
        let waits = buffers.cell_waits && buffers.output_bytes <= CONSOLE_BYTES / 2;
        if waits {
            buffers.cell_waits = false;
        }
        drop(buffers);
        if waits {
            (self.wake)();
        }
        Ok((stream, bytes))
    }

    /// Says that the cell has ended. Input that it has not read is dropped.
    pub fn close(&self) {
        let mut buffers = self.lock();
        buffers.output_closed = true;
        buffers.input = VecDeque::new();
        buffers.announce();
        self.changed.notify_all();
    }
}

/// For whoever stands in for a cell, where bytes reach it by another way than rings of their own.
impl ConsolePort {
    /// A port without a console; `wake` is called, without any lock, when its owner has said something or made room.
    #[must_use]
    pub fn apart(wake: impl Fn() + Send + Sync + 'static) -> Arc<ConsolePort> {
        let buffers = Buffers { input_wanted: true, ..Buffers::default() };
        Arc::new(ConsolePort { buffers: Mutex::new(buffers), changed: Condvar::new(), wake: Box::new(wake) })
    }

    /// Takes input, at most so many bytes, and says whether that was the last of it.
    pub fn take_input(&self, most: usize) -> (Vec<u8>, bool) {
        let mut buffers = self.lock();
        let count = buffers.input.len().min(most);
        let bytes: Vec<u8> = buffers.input.drain(..count).collect();
        let is_last = buffers.input.is_empty() && buffers.input_closed;
        if count > 0 {
            buffers.announce();
            self.changed.notify_all();
        }
        (bytes, is_last)
    }

    /// Lets its owner hear this, however much there is to hear already.
    pub fn say(&self, stream: Stream, bytes: Vec<u8>) {
        let mut buffers = self.lock();
        if !bytes.is_empty() && !buffers.unread.contains(&stream) {
            buffers.append(stream, bytes);
            buffers.announce();
            self.changed.notify_all();
        }
    }

    /// How many bytes its owner has not heard yet; the next that it hears is told by a call of `wake`.
    pub fn unheard(&self) -> usize {
        let mut buffers = self.lock();
        buffers.cell_waits = buffers.output_bytes > 0;
        buffers.output_bytes
    }

    /// Whether its owner has said that it does not read a stream any more.
    pub fn is_unread(&self, stream: Stream) -> bool {
        self.lock().unread.contains(&stream)
    }
}

/// The cell's end of a console, or of a channel.
pub struct Console {
    transmit: RingState,
    receive: RingState,
    /// Bytes of the next transmit descriptor that are already out.
    progress: u32,
    /// The rings hold what an earlier one has left, and are emptied first.
    is_fresh: bool,
    port: Arc<ConsolePort>,
}

impl Console {
    /// A console; `wake` is called, without any lock, when the cell should look again.
    pub(crate) fn new(wake: Box<dyn Fn() + Send + Sync>) -> Console {
        let transmit = RingState::new(CONSOLE_RINGS + offset_of!(ConsoleRings, transmit) as u64, TRANSMIT_DESCRIPTORS);
        let receive = RingState::new(CONSOLE_RINGS + offset_of!(ConsoleRings, receive) as u64, RECEIVE_DESCRIPTORS);
        Console::at(transmit, receive, wake)
    }

    /// A channel to the operator, with the same `wake`.
    pub(crate) fn channel(wake: Box<dyn Fn() + Send + Sync>) -> Console {
        let requests = RingState::new(CONSOLE_RINGS + offset_of!(ConsoleRings, requests) as u64, CHANNEL_DESCRIPTORS);
        let answers = RingState::new(CONSOLE_RINGS + offset_of!(ConsoleRings, answers) as u64, CHANNEL_DESCRIPTORS);
        Console::at(requests, answers, wake)
    }

    /// A control channel, whose rings nobody has used yet, whatever the cell is a clone of.
    pub(crate) fn control(wake: Box<dyn Fn() + Send + Sync>) -> Console {
        let reports = RingState::new(CONTROL_RINGS + offset_of!(ControlRings, reports) as u64, CHANNEL_DESCRIPTORS);
        let orders = RingState::new(CONTROL_RINGS + offset_of!(ControlRings, orders) as u64, CHANNEL_DESCRIPTORS);
        Console { is_fresh: true, ..Console::at(reports, orders, wake) }
    }

    fn at(transmit: RingState, receive: RingState, wake: Box<dyn Fn() + Send + Sync>) -> Console {
        let port = ConsolePort { buffers: Mutex::default(), changed: Condvar::new(), wake };
        Console { transmit, receive, progress: 0, is_fresh: false, port: Arc::new(port) }
    }

    /// How far it has come.
    pub(crate) fn places(&self) -> RingPlaces {
        RingPlaces { transmit: self.transmit.taken(), receive: self.receive.taken(), progress: self.progress }
    }

    /// The same with nothing in the buffers, at other places in the rings: that of a clone goes on where its source's stands.
    pub(crate) fn at_places(self, places: RingPlaces) -> Console {
        let RingPlaces { transmit, receive, progress } = places;
        Console { transmit: self.transmit.with_taken(transmit), receive: self.receive.with_taken(receive), progress, ..self }
    }

    /// The host's end.
    pub(crate) fn port(&self) -> &Arc<ConsolePort> {
        &self.port
    }

    /// Moves what can be moved between rings and buffers; `true` if that is something the cell waits for. Bounded by what the buffers hold, whatever the
    /// descriptors say.
    ///
    /// # Errors
    /// No memory for a page of the cell's that would have to be made, or a block of a disk that must be read first: what is left is for the next time.
    pub(crate) fn serve(&mut self, frames: &mut Frames, memory: &mut SpaceSet) -> Result<bool, CopyError> {
        if self.is_fresh {
            memory.write(frames, CONTROL_RINGS, &[0; size_of::<ControlRings>()], Behalf::Operator)?;
            self.is_fresh = false;
            return Ok(true);
        }
        let sent = self.serve_transmit(frames, memory)?;
        let received = self.serve_receive(frames, memory)?;
        Ok(sent || received)
    }

    /// Takes what the cell has posted by its end, by whatever it came: a program's write has returned, so its bytes are written. What lies in blocks that were not read is not waited for: such a write has not returned.
    pub(crate) fn take_last_words(&mut self, frames: &mut Frames, memory: &mut SpaceSet) {
        self.port.lock().is_last = true;
        if !self.is_fresh {
            let _ = self.serve_transmit(frames, memory);
        }
    }

    fn serve_transmit(&mut self, frames: &mut Frames, memory: &mut SpaceSet) -> Result<bool, CopyError> {
        let mut moved = false;
        // Descriptors that lead nowhere may cost as much as the buffer holds, and no more.
        let mut budget = CONSOLE_BYTES;
        // The ring's length bounds the loop even if the cell's count runs on.
        for _ in 0..self.transmit.length() {
            let Some(descriptor) = self.transmit.next(frames, memory) else { break };
            let stream = match descriptor.tag {
                OUTPUT => Stream::Output,
                ERRORS => Stream::Errors,
                NOTES => Stream::Notes,
                _ => {
                    self.finish_transmit(frames, memory, FAULTED)?;
                    moved = true;
                    continue;
                }
            };
            let length = descriptor.length.min(MAX_DESCRIPTOR_BYTES);
            // The cell may have made the descriptor shorter since its first part went out.
            let left = length.saturating_sub(self.progress) as usize;
            let mut buffers = self.port.lock();
            if buffers.unread.contains(&stream) {
                drop(buffers);
                self.finish_transmit(frames, memory, UNREAD)?;
                moved = true;
                continue;
            }
            let room = buffers.room();
            if room == 0 && left > 0 {
                buffers.cell_waits = true;
                break;
            }
            let count = room.min(left);
            if count > budget {
                break;
            }
            budget -= count;
            let mut bytes = vec![0; count];
            let address = descriptor.address.wrapping_add(u64::from(self.progress));
            match memory.read(frames, address, &mut bytes, Behalf::Cell) {
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
                buffers.announce();
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

    /// `length` may be less than what is out already, where the cell has shortened the descriptor since.
    fn finish_transmit(&mut self, frames: &mut Frames, memory: &mut SpaceSet, length: u32) -> Result<(), CopyError> {
        self.transmit.take(frames, memory, length.max(self.progress))?;
        // Not before: what is out must not go out again.
        self.progress = 0;
        Ok(())
    }

    fn serve_receive(&mut self, frames: &mut Frames, memory: &mut SpaceSet) -> Result<bool, CopyError> {
        let mut moved = false;
        // As for transmitting: what is refused costs as well.
        let mut budget = CONSOLE_BYTES;
        for _ in 0..self.receive.length() {
            let Some(descriptor) = self.receive.next(frames, memory) else { break };
            if descriptor.length == 0 {
                // The cell has taken it back.
                self.receive.take(frames, memory, 0)?;
                moved = true;
                continue;
            }
            let mut buffers = self.port.lock();
            if !buffers.input_wanted {
                buffers.input_wanted = true;
                self.port.changed.notify_all();
            }
            if buffers.input.is_empty() && !buffers.input_closed {
                break;
            }
            let count = buffers.input.len().min(descriptor.length.min(MAX_DESCRIPTOR_BYTES) as usize);
            if count > budget {
                break;
            }
            budget -= count;
            let bytes: Vec<u8> = buffers.input.iter().take(count).copied().collect();
            let length = match memory.write(frames, descriptor.address, &bytes, Behalf::Cell) {
                Ok(()) => count as u32,
                Err(CopyError::Refused | CopyError::Unreadable) => FAULTED,
                Err(error) => return Err(error),
            };
            if length != FAULTED {
                buffers.input.drain(..count);
                buffers.announce();
                self.port.changed.notify_all();
            }
            drop(buffers);
            self.receive.take(frames, memory, length)?;
            moved = true;
        }
        Ok(moved)
    }
}
