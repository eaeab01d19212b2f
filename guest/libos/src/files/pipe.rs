// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes and FIFOs: bytes between open files of the process.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pando_rt::user::{self, UserRange};

use super::readiness::{POLLERR, POLLHUP, READING, WRITING};
use super::tree::Place;
use crate::errno::Errno;

/// Bytes that a pipe holds unless it is told otherwise.
pub const CAPACITY: usize = 64 << 10;
/// Bytes that it can be told to hold.
pub const CAPACITY_MAX: usize = 1 << 20;
/// Up to this many bytes are written all at once or not at all.
const ATOMIC: usize = 4096;

/// Which pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeId(usize);

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    bytes: VecDeque<u8>,
    /// How many bytes it holds at most.
    pub capacity: usize,
    /// Open files that read from it.
    pub readers: u32,
    /// Open files that write to it.
    pub writers: u32,
    /// Its inode number, if it has no name.
    pub number: u64,
    /// The FIFO that it is.
    pub place: Option<Place>,
}

impl Pipe {
    /// Bytes that can be read.
    #[must_use]
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Moves bytes to the application.
    ///
    /// # Errors
    /// `EAGAIN`: there are none yet. `EFAULT`.
    pub fn read(&mut self, to: UserRange) -> Result<u64, Errno> {
        if self.bytes.is_empty() {
            return if self.writers == 0 || to.length() == 0 { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        let mut done = 0;
        while done < to.length() && !self.bytes.is_empty() {
            let (piece, _) = self.bytes.as_slices();
            let part = to.part(done, piece.len() as u64);
            let piece = &piece[..part.length() as usize];
            let moved = user::write_some(part.start(), piece);
            let short = moved < piece.len();
            self.bytes.drain(..moved);
            done += moved as u64;
            if short {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
        }
        Ok(done)
    }

    /// Moves bytes from the application, as many as fit. Few go together or not at all.
    ///
    /// # Errors
    /// `EPIPE`: nobody reads. `EAGAIN`: they do not fit. `EFAULT`, `ENOMEM`.
    pub fn write(&mut self, from: UserRange) -> Result<u64, Errno> {
        if self.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let length = usize::try_from(from.length()).unwrap_or(usize::MAX);
        let room = self.capacity.saturating_sub(self.bytes.len());
        if length > 0 && (room == 0 || length <= ATOMIC && room < length) {
            return Err(Errno::EAGAIN);
        }
        let mut piece = [0; 1024];
        let mut done = 0;
        while done < length.min(room) {
            let part = from.part(done as u64, piece.len().min(room - done) as u64);
            let moved = user::read_some(part.start(), &mut piece[..part.length() as usize]);
            self.bytes.try_reserve(moved).map_err(|_| Errno::ENOMEM)?;
            self.bytes.extend(&piece[..moved]);
            done += moved;
            if moved < part.length() as usize {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done as u64) };
            }
        }
        Ok(done as u64)
    }

    /// Takes bytes from the libOS, as many as fit. Returns how many.
    ///
    /// # Errors
    /// `EPIPE`, `EAGAIN`, `ENOMEM`.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let room = self.capacity.saturating_sub(self.bytes.len()).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Err(Errno::EAGAIN);
        }
        self.bytes.try_reserve(room).map_err(|_| Errno::ENOMEM)?;
        self.bytes.extend(&bytes[..room]);
        Ok(room)
    }

    /// What a reader or a writer of it need not wait for.
    #[must_use]
    pub fn ready(&self, reads: bool, writes: bool) -> u16 {
        let mut ready = 0;
        if reads {
            ready |= if self.bytes.is_empty() { 0 } else { READING } | if self.writers == 0 { POLLHUP } else { 0 };
        }
        if writes {
            let room = self.capacity.saturating_sub(self.bytes.len()) >= ATOMIC;
            ready |= if room { WRITING } else { 0 } | if self.readers == 0 { POLLERR } else { 0 };
        }
        ready
    }
}

/// All pipes.
#[derive(Debug, Default)]
pub struct Pipes {
    pipes: Vec<Option<Pipe>>,
    made: u64,
}

impl Pipes {
    /// Opens the pipe of a FIFO, or a new one, for reading, writing or both.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn open(&mut self, place: Option<Place>, reads: bool, writes: bool) -> Result<PipeId, Errno> {
        let known = |pipe: &Option<Pipe>| place.is_some() && pipe.as_ref().is_some_and(|pipe| pipe.place == place);
        let index = self.pipes.iter().position(known).or_else(|| self.pipes.iter().position(Option::is_none)).unwrap_or(self.pipes.len());
        if index == self.pipes.len() {
            self.pipes.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.pipes.push(None);
        }
        let pipe = self.pipes[index].get_or_insert_with(|| {
            self.made += 1;
            Pipe { bytes: VecDeque::new(), capacity: CAPACITY, readers: 0, writers: 0, number: self.made, place }
        });
        pipe.readers += u32::from(reads);
        pipe.writers += u32::from(writes);
        Ok(PipeId(index))
    }

    /// Closes an end of a pipe; with the last one the pipe is gone.
    pub fn close(&mut self, id: PipeId, reads: bool, writes: bool) {
        let Some(Some(pipe)) = self.pipes.get_mut(id.0) else { return };
        pipe.readers -= u32::from(reads);
        pipe.writers -= u32::from(writes);
        if pipe.readers == 0 && pipe.writers == 0 {
            self.pipes[id.0] = None;
        }
    }

    /// A pipe.
    ///
    /// # Errors
    /// `EBADF`: there is none, which no open file should say.
    pub fn get(&self, id: PipeId) -> Result<&Pipe, Errno> {
        self.pipes.get(id.0).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    /// A pipe, to be changed.
    ///
    /// # Errors
    /// `EBADF`: there is none, which no open file should say.
    pub fn get_mut(&mut self, id: PipeId) -> Result<&mut Pipe, Errno> {
        self.pipes.get_mut(id.0).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// Whether somebody reads from the pipe of a FIFO, and whether somebody writes to it.
    #[must_use]
    pub fn ends(&self, place: Place) -> (bool, bool) {
        let pipe = self.pipes.iter().flatten().find(|pipe| pipe.place == Some(place));
        pipe.map_or((false, false), |pipe| (pipe.readers > 0, pipe.writers > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, Pipes};
    use crate::errno::Errno;

    #[test]
    fn a_pipe_fills_up_and_ends_with_its_readers() {
        let mut pipes = Pipes::default();
        let id = pipes.open(None, true, true).expect("there is memory");
        let pipe = pipes.get_mut(id).expect("it is open");
        assert_eq!(pipe.push(&[7; CAPACITY + 5]), Ok(CAPACITY));
        assert_eq!(pipe.push(&[7]), Err(Errno::EAGAIN));
        pipes.close(id, true, false);
        assert_eq!(pipes.get_mut(id).expect("a writer is left").push(&[7]), Err(Errno::EPIPE));
        pipes.close(id, false, true);
        assert!(pipes.get(id).is_err());
    }
}
