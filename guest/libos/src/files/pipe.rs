// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes and FIFOs: bytes between open files of the process.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pando_rt::user::{self, UserRange};

use super::poll::{POLLERR, POLLHUP, READING, WRITING};
use super::pulse::Pulse;
use super::tree::Place;
use crate::errno::Errno;

/// Bytes that a pipe holds unless it is told otherwise.
pub const CAPACITY: usize = 64 << 10;
/// Bytes that it can be told to hold.
pub const CAPACITY_MAX: usize = 1 << 20;
/// Bytes of a page, in which a pipe holds what was written: small pieces share one if they fit whole, and it is free once all of it was read.
const PAGE: usize = 4096;

/// Which pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeId(pub(super) usize);

/// A page of a pipe.
#[derive(Debug)]
struct Page {
    /// What was written, with room for a whole page.
    bytes: Vec<u8>,
    /// How many of them were read.
    read: usize,
    /// It is read alone, and what is not read of it then is lost.
    is_packet: bool,
}

impl Page {
    fn new(is_packet: bool) -> Result<Page, Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(PAGE).map_err(|_| Errno::ENOMEM)?;
        Ok(Page { bytes, read: 0, is_packet })
    }

    /// What was written and not read yet.
    fn held(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Lets `give` write up to `length` bytes, for which there is room. Returns how many it wrote.
    fn fill(&mut self, length: usize, give: &mut impl FnMut(&mut [u8]) -> usize) -> usize {
        let end = self.bytes.len();
        self.bytes.resize(end + length, 0);
        let given = give(&mut self.bytes[end..]);
        self.bytes.truncate(end + given);
        given
    }
}

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    pages: VecDeque<Page>,
    /// How many bytes it holds at most, a multiple of pages.
    pub capacity: usize,
    /// Open files that read from it.
    pub readers: u32,
    /// Open files that write to it.
    pub writers: u32,
    /// Its inode number, if it has no name.
    pub number: u64,
    /// The FIFO that it is.
    pub place: Option<Place>,
    /// When its ends last became ready.
    pub pulse: Pulse,
    /// How often it was opened for reading, and for writing.
    pub came: [u64; 2],
}

impl Pipe {
    /// Bytes that can be read.
    #[must_use]
    pub fn length(&self) -> usize {
        self.pages.iter().map(|page| page.held().len()).sum()
    }

    /// Bytes of the pages that are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Bytes that fit in whole pages, at least one.
    ///
    /// # Errors
    /// `EPIPE`: nobody reads. `EAGAIN`: none fits.
    pub fn room(&self) -> Result<usize, Errno> {
        match self.capacity.saturating_sub(self.used()) {
            _ if self.readers == 0 => Err(Errno::EPIPE),
            0 => Err(Errno::EAGAIN),
            room => Ok(room),
        }
    }

    /// Checks that there is something to read, or never will be.
    ///
    /// # Errors
    /// `EAGAIN`: not yet.
    pub fn check_filled(&self) -> Result<(), Errno> {
        if self.pages.is_empty() && self.writers > 0 { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// Copies what it holds from `offset` on, and keeps it. Returns how many bytes.
    pub fn peek(&self, offset: usize, room: &mut [u8]) -> usize {
        let (mut skipped, mut done) = (offset, 0);
        for page in &self.pages {
            let held = page.held();
            let piece = held.get(skipped..).unwrap_or_default();
            let bytes = piece.len().min(room.len() - done);
            room[done..done + bytes].copy_from_slice(&piece[..bytes]);
            skipped = skipped.saturating_sub(held.len());
            done += bytes;
        }
        done
    }

    /// Drops so many bytes, as if they were read.
    pub fn skip(&mut self, mut bytes: usize) {
        let was_full = self.used() >= self.capacity;
        while let Some(page) = self.pages.front_mut().filter(|_| bytes > 0) {
            let here = bytes.min(page.held().len());
            page.read += here;
            bytes -= here;
            if page.held().is_empty() {
                self.pages.pop_front();
            }
        }
        if was_full && self.used() < self.capacity {
            self.pulse.output();
        }
    }

    /// The packet that is to be read next, if it is one.
    #[must_use]
    pub fn packet(&self) -> Option<&[u8]> {
        self.pages.front().filter(|page| page.is_packet).map(Page::held)
    }

    /// Moves bytes to the application.
    ///
    /// # Errors
    /// `EAGAIN`: there are none yet. `EFAULT`.
    pub fn read(&mut self, to: UserRange) -> Result<u64, Errno> {
        if self.pages.is_empty() {
            return if self.writers == 0 || to.length() == 0 { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        let was_full = self.used() >= self.capacity;
        let done = self.drain(to)?;
        if was_full && self.used() < self.capacity {
            self.pulse.output();
        }
        Ok(done)
    }

    /// Moves what is there to the application, as far as that goes.
    fn drain(&mut self, to: UserRange) -> Result<u64, Errno> {
        let mut done = 0;
        while let Some(page) = self.pages.front_mut().filter(|page| done < to.length() && !page.is_packet) {
            let part = to.part(done, page.held().len() as u64);
            let moved = user::write_some(part.start(), &page.held()[..part.length() as usize]);
            page.read += moved;
            done += moved as u64;
            if page.held().is_empty() {
                self.pages.pop_front();
            } else if (moved as u64) < part.length() {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
        }
        Ok(done)
    }

    /// Moves bytes from the application, as many as fit.
    ///
    /// # Errors
    /// `EPIPE`: nobody reads. `EAGAIN`: none fits. `EFAULT`, `ENOMEM`.
    pub fn write(&mut self, from: UserRange) -> Result<u64, Errno> {
        let mut copied = 0;
        self.fill(from.length() as usize, false, |room| {
            let part = from.part(copied, room.len() as u64);
            let moved = user::read_some(part.start(), room);
            copied += moved as u64;
            moved
        })
        .map(|filled| filled as u64)
    }

    /// Takes bytes from the libOS, as many as fit. Returns how many.
    ///
    /// # Errors
    /// `EPIPE`, `EAGAIN`, `ENOMEM`.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.push_as(bytes, false)
    }

    /// The same, as packets of a page at most.
    ///
    /// # Errors
    /// `EPIPE`, `EAGAIN`, `ENOMEM`.
    pub fn push_packets(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.push_as(bytes, true)
    }

    fn push_as(&mut self, bytes: &[u8], packets: bool) -> Result<usize, Errno> {
        let mut rest = bytes;
        self.fill(bytes.len(), packets, |room| {
            let (piece, left) = rest.split_at(room.len());
            room.copy_from_slice(piece);
            rest = left;
            piece.len()
        })
    }

    /// Lets `give` fill pages with `length` bytes, as far as there is room: first what does not fill a page behind what was written last, if it fits there.
    fn fill(&mut self, length: usize, packets: bool, give: impl FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        if self.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let done = self.fill_pages(length, packets, give)?;
        if done > 0 {
            self.pulse.input();
        }
        Ok(done)
    }

    /// Takes memory that an application gives away, page by page of its own as Linux does, as far as there is room. Returns how many bytes.
    ///
    /// # Errors
    /// `EPIPE`: nobody reads. `EAGAIN`: none fits. `EFAULT`, `ENOMEM`.
    pub fn take_pages(&mut self, ranges: &[UserRange]) -> Result<u64, Errno> {
        let mut done = 0;
        for range in ranges {
            let mut here = 0;
            while here < range.length() {
                let start = range.start() + here;
                let part = range.part(here, PAGE as u64 - start % PAGE as u64);
                if self.readers > 0 && self.used() >= self.capacity && done > 0 {
                    return Ok(done);
                }
                match self.take_page(part) {
                    Ok(()) => (done, here) = (done + part.length(), here + part.length()),
                    Err(_) if done > 0 => return Ok(done),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(done)
    }

    /// Takes a part of one page of an application's.
    fn take_page(&mut self, part: UserRange) -> Result<(), Errno> {
        self.room()?;
        let mut page = Page::new(false)?;
        page.bytes.resize(part.length() as usize, 0);
        user::read(part.start(), &mut page.bytes)?;
        self.pages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.pages.push_back(page);
        self.pulse.input();
        Ok(())
    }

    fn fill_pages(&mut self, length: usize, packets: bool, mut give: impl FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        let small = length % PAGE;
        let mut done = 0;
        let is_joined = |page: &&mut Page| small > 0 && !packets && !page.is_packet && page.bytes.len() + small <= PAGE;
        if let Some(page) = self.pages.back_mut().filter(is_joined) {
            done = page.fill(small, &mut give);
            if done < small {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
        }
        while done < length && self.used() < self.capacity {
            let room = self.pages.try_reserve(1).map_err(|_| Errno::ENOMEM).and_then(|()| Page::new(packets));
            let mut page = match room {
                Ok(page) => page,
                // What is in the pipe already was written.
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            };
            let wanted = (length - done).min(PAGE);
            let given = page.fill(wanted, &mut give);
            if given > 0 {
                self.pages.push_back(page);
                done += given;
            }
            if given < wanted {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
        }
        if done == 0 && length > 0 { Err(Errno::EAGAIN) } else { Ok(done) }
    }

    /// How often somebody came to the other end of an open file, which can be read or written.
    #[must_use]
    pub fn others(&self, reads: bool) -> u64 {
        self.came[usize::from(reads)]
    }

    /// What a reader or a writer of it need not wait for.
    #[must_use]
    pub fn ready(&self, reads: bool, writes: bool) -> u16 {
        let mut ready = 0;
        if reads {
            ready |= if self.pages.is_empty() { 0 } else { READING } | if self.writers == 0 { POLLHUP } else { 0 };
        }
        if writes {
            ready |= if self.used() < self.capacity { WRITING } else { 0 } | if self.readers == 0 { POLLERR } else { 0 };
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
            Pipe {
                pages: VecDeque::new(),
                capacity: CAPACITY,
                readers: 0,
                writers: 0,
                number: self.made,
                place,
                pulse: Pulse::default(),
                came: [0; 2],
            }
        });
        pipe.readers += u32::from(reads);
        pipe.writers += u32::from(writes);
        pipe.came[0] += u64::from(reads);
        pipe.came[1] += u64::from(writes);
        pipe.pulse.other();
        Ok(PipeId(index))
    }

    /// Closes an end of a pipe; with the last one the pipe is gone.
    pub fn close(&mut self, id: PipeId, reads: bool, writes: bool) {
        let Some(Some(pipe)) = self.pipes.get_mut(id.0) else { return };
        pipe.readers -= u32::from(reads);
        pipe.writers -= u32::from(writes);
        // Only where one side is left alone is there something to tell.
        if (pipe.readers == 0) != (pipe.writers == 0) {
            pipe.pulse.other();
        }
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
        assert_eq!((pipe.push(&[7; 60_000]), pipe.push(&[7; 4096]), pipe.push(&[7; 10_000])), (Ok(60_000), Ok(4096), Err(Errno::EAGAIN)));
        assert_eq!((pipe.length(), pipe.used()), (64_096, CAPACITY));
        assert_eq!(pipe.push(&[7]), Err(Errno::EAGAIN));
        pipes.close(id, true, false);
        assert_eq!(pipes.get_mut(id).expect("a writer is left").push(&[7]), Err(Errno::EPIPE));
        pipes.close(id, false, true);
        assert!(pipes.get(id).is_err());
    }
}
