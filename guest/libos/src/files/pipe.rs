// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes and FIFOs: byte buffers between open files of the cell.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pando_rt::user::{self, UserRange};

use super::edge::EventTimes;
use super::poll::{READING, WRITING};
use super::tree::InodeRef;
use crate::errno::Errno;
use crate::uapi::{POLLERR, POLLHUP};

/// Default capacity of a pipe in bytes.
pub const CAPACITY: usize = 64 << 10;
/// Maximum capacity of a pipe in bytes.
pub const CAPACITY_MAX: usize = 1 << 20;
/// Bytes that a pipe may hold beyond its capacity while a reader is about to run. Processes of a cell run in turn: with 64 KiB at a time, a
/// pipeline would spend its time on switches between them. On Linux the reader empties the pipe at the same time, on another core.
const OVERCOMMIT: usize = 1 << 20;
/// Page size of a pipe's buffer. Small writes share a page if they fit completely, and a page is freed once all of it was read.
const PAGE: usize = 4096;

/// The identity of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeId(pub(super) usize);

/// A page of a pipe.
#[derive(Debug)]
struct Page {
    /// The written bytes, with capacity for a whole page.
    bytes: Vec<u8>,
    /// The number of bytes read.
    read: usize,
    /// A packet: a read returns it alone, and discards its unread rest.
    is_packet: bool,
}

impl Page {
    fn new(is_packet: bool) -> Result<Page, Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(PAGE).map_err(|_| Errno::ENOMEM)?;
        Ok(Page { bytes, read: 0, is_packet })
    }

    /// The written bytes that have not been read.
    fn unread(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Lets `give` write up to `length` bytes, which fit. Returns how many it wrote.
    fn fill(&mut self, length: usize, give: &mut impl FnMut(&mut [u8]) -> usize) -> usize {
        let end = self.bytes.len();
        self.bytes.resize(end + length, 0);
        let count = give(&mut self.bytes[end..]);
        self.bytes.truncate(end + count);
        count
    }
}

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    pages: VecDeque<Page>,
    /// Its capacity in bytes, a multiple of pages.
    pub capacity: usize,
    /// The number of open files that read from it.
    pub readers: u32,
    /// The number of open files that write to it.
    pub writers: u32,
    /// Its inode number, if it has no name.
    pub number: u64,
    /// Its inode, if it is a FIFO.
    pub inode: Option<InodeRef>,
    /// When its ends last became ready.
    pub event_times: EventTimes,
    /// How often it was opened for reading, and for writing.
    pub opens: [u64; 2],
    /// Whether the last read found it empty and began to wait. Then the reader runs as soon as the writer waits. Stays set if a signal ends
    /// the wait.
    pub has_waiting_reader: bool,
}

impl Pipe {
    /// Bytes that can be read.
    #[must_use]
    pub fn length(&self) -> usize {
        self.pages.iter().map(|page| page.unread().len()).sum()
    }

    /// Bytes of the pages that are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// The number of bytes that fit, in whole pages, at least one page.
    ///
    /// # Errors
    /// `EPIPE`: it has no readers. `EAGAIN`: it is full.
    pub fn room(&self) -> Result<usize, Errno> {
        match self.capacity.saturating_sub(self.used()) {
            _ if self.readers == 0 => Err(Errno::EPIPE),
            0 => Err(Errno::EAGAIN),
            room => Ok(room),
        }
    }

    /// Checks that a read would not block: there are bytes, or no writers.
    ///
    /// # Errors
    /// `EAGAIN`: it would.
    pub fn check_filled(&self) -> Result<(), Errno> {
        if self.pages.is_empty() && self.writers > 0 { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// Copies its content from `offset` on without consuming it. Returns how many bytes.
    pub fn peek(&self, offset: usize, buffer: &mut [u8]) -> usize {
        let (mut skipped, mut done) = (offset, 0);
        for page in &self.pages {
            let unread = page.unread();
            let piece = unread.get(skipped..).unwrap_or_default();
            let bytes = piece.len().min(buffer.len() - done);
            buffer[done..done + bytes].copy_from_slice(&piece[..bytes]);
            skipped = skipped.saturating_sub(unread.len());
            done += bytes;
        }
        done
    }

    /// Consumes so many bytes.
    pub fn skip(&mut self, mut bytes: usize) {
        let was_full = self.used() >= self.capacity;
        while let Some(page) = self.pages.front_mut().filter(|_| bytes > 0) {
            let here = bytes.min(page.unread().len());
            page.read += here;
            bytes -= here;
            if page.unread().is_empty() {
                self.pages.pop_front();
            }
        }
        if was_full && self.used() < self.capacity {
            self.event_times.output();
        }
    }

    /// The next packet, if the next page is one.
    #[must_use]
    pub fn packet(&self) -> Option<&[u8]> {
        self.pages.front().filter(|page| page.is_packet).map(Page::unread)
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
            self.event_times.output();
        }
        Ok(done)
    }

    /// Moves available bytes to the application, as many as possible.
    fn drain(&mut self, to: UserRange) -> Result<u64, Errno> {
        let mut done = 0;
        while let Some(page) = self.pages.front_mut().filter(|page| done < to.length() && !page.is_packet) {
            let part = to.part(done, page.unread().len() as u64);
            let moved = user::write_some(part.start(), &page.unread()[..part.length() as usize]);
            page.read += moved;
            done += moved as u64;
            if page.unread().is_empty() {
                self.pages.pop_front();
            } else if (moved as u64) < part.length() {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
        }
        Ok(done)
    }

    /// Moves bytes from the application, as many as fit. `waits`: the writer waits if there is no room.
    ///
    /// # Errors
    /// `EPIPE`: it has no readers. `EAGAIN`: it is full. `EFAULT`, `ENOMEM`.
    pub fn write(&mut self, from: UserRange, waits: bool) -> Result<u64, Errno> {
        let mut copied = 0;
        self.fill(from.length() as usize, self.limit(waits), false, |room| {
            let part = from.part(copied, room.len() as u64);
            let moved = user::read_some(part.start(), room);
            copied += moved as u64;
            moved
        })
        .map(|filled| filled as u64)
    }

    /// Bytes that it holds before a write must wait.
    fn limit(&self, waits: bool) -> usize {
        self.capacity + if waits && self.has_waiting_reader { OVERCOMMIT } else { 0 }
    }

    /// Writes bytes from the libOS, as many as fit. Returns how many.
    ///
    /// # Errors
    /// `EPIPE`, `EAGAIN`, `ENOMEM`.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.push_as(bytes, false)
    }

    /// Writes bytes from the libOS as packets of at most a page. Returns how many.
    ///
    /// # Errors
    /// `EPIPE`, `EAGAIN`, `ENOMEM`.
    pub fn push_packets(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.push_as(bytes, true)
    }

    fn push_as(&mut self, bytes: &[u8], packets: bool) -> Result<usize, Errno> {
        let mut rest = bytes;
        self.fill(bytes.len(), self.capacity, packets, |room| {
            let (piece, left) = rest.split_at(room.len());
            room.copy_from_slice(piece);
            rest = left;
            piece.len()
        })
    }

    /// Fills pages with `length` bytes from `give`, as many as fit into `limit` bytes. The part that does not fill a page goes first,
    /// behind the last written bytes, if it fits there.
    fn fill(&mut self, length: usize, limit: usize, packets: bool, give: impl FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        if self.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let done = self.fill_pages(length, limit, packets, give)?;
        if done > 0 {
            self.event_times.input();
        }
        Ok(done)
    }

    /// Takes memory that an application gives away (`vmsplice`), one buffer page per page as on Linux, as much as fits. Returns how many
    /// bytes.
    ///
    /// # Errors
    /// `EPIPE`: it has no readers. `EAGAIN`: it is full. `EFAULT`, `ENOMEM`.
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

    /// Takes a part of one application page.
    fn take_page(&mut self, part: UserRange) -> Result<(), Errno> {
        self.room()?;
        let mut page = Page::new(false)?;
        page.bytes.resize(part.length() as usize, 0);
        user::read(part.start(), &mut page.bytes)?;
        self.pages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.pages.push_back(page);
        self.event_times.input();
        Ok(())
    }

    fn fill_pages(&mut self, length: usize, limit: usize, packets: bool, mut give: impl FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        let small = length % PAGE;
        let mut done = 0;
        let is_joined = |page: &&mut Page| small > 0 && !packets && !page.is_packet && page.bytes.len() + small <= PAGE;
        if let Some(page) = self.pages.back_mut().filter(is_joined) {
            done = page.fill(small, &mut give);
            if done < small {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
        }
        while done < length && self.used() < limit {
            let room = self.pages.try_reserve(1).map_err(|_| Errno::ENOMEM).and_then(|()| Page::new(packets));
            let mut page = match room {
                Ok(page) => page,
                // The bytes in the pipe already count as written.
                Err(_) if done > 0 => return Ok(done),
                Err(_) if self.used() >= self.capacity => return Err(Errno::EAGAIN),
                Err(error) => return Err(error),
            };
            let wanted = (length - done).min(PAGE);
            let count = page.fill(wanted, &mut give);
            if count > 0 {
                self.pages.push_back(page);
                done += count;
            }
            if count < wanted {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
        }
        if done == 0 && length > 0 { Err(Errno::EAGAIN) } else { Ok(done) }
    }

    /// How often the other end of an open file with this access was opened.
    #[must_use]
    pub fn other_opens(&self, reads: bool) -> u64 {
        self.opens[usize::from(reads)]
    }

    /// Its `poll` events for a reader or a writer.
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
    last_number: u64,
}

impl Pipes {
    /// Opens the pipe of a FIFO, or a new one, for reading, writing or both.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn open(&mut self, inode: Option<InodeRef>, reads: bool, writes: bool) -> Result<PipeId, Errno> {
        let is_its_pipe = |pipe: &Option<Pipe>| inode.is_some() && pipe.as_ref().is_some_and(|pipe| pipe.inode == inode);
        let index =
            self.pipes.iter().position(is_its_pipe).or_else(|| self.pipes.iter().position(Option::is_none)).unwrap_or(self.pipes.len());
        if index == self.pipes.len() {
            self.pipes.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.pipes.push(None);
        }
        let pipe = self.pipes[index].get_or_insert_with(|| {
            self.last_number += 1;
            Pipe {
                pages: VecDeque::new(),
                capacity: CAPACITY,
                readers: 0,
                writers: 0,
                number: self.last_number,
                inode,
                event_times: EventTimes::default(),
                opens: [0; 2],
                has_waiting_reader: false,
            }
        });
        pipe.readers += u32::from(reads);
        pipe.writers += u32::from(writes);
        pipe.opens[0] += u64::from(reads);
        pipe.opens[1] += u64::from(writes);
        pipe.event_times.other();
        Ok(PipeId(index))
    }

    /// Closes an end of a pipe; the pipe is freed with the last one.
    pub fn close(&mut self, id: PipeId, reads: bool, writes: bool) {
        let Some(Some(pipe)) = self.pipes.get_mut(id.0) else { return };
        pipe.readers -= u32::from(reads);
        pipe.writers -= u32::from(writes);
        // The reader that waits may be the one that is gone, such as a process that was killed.
        pipe.has_waiting_reader &= !reads;
        // Only the loss of one side is an event for the other.
        if (pipe.readers == 0) != (pipe.writers == 0) {
            pipe.event_times.other();
        }
        if pipe.readers == 0 && pipe.writers == 0 {
            self.pipes[id.0] = None;
        }
    }

    /// A pipe.
    ///
    /// # Errors
    /// `EBADF`: it does not exist, which cannot happen for an open file.
    pub fn get(&self, id: PipeId) -> Result<&Pipe, Errno> {
        self.pipes.get(id.0).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    /// A pipe, mutably.
    ///
    /// # Errors
    /// `EBADF`: it does not exist, which cannot happen for an open file.
    pub fn get_mut(&mut self, id: PipeId) -> Result<&mut Pipe, Errno> {
        self.pipes.get_mut(id.0).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// Whether the pipe of a FIFO has readers, and whether it has writers.
    #[must_use]
    pub fn ends(&self, inode: InodeRef) -> (bool, bool) {
        let pipe = self.pipes.iter().flatten().find(|pipe| pipe.inode == Some(inode));
        pipe.map_or((false, false), |pipe| (pipe.readers > 0, pipe.writers > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, OVERCOMMIT, Pipe, Pipes};
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

    #[test]
    fn a_writer_that_would_wait_goes_on_while_a_reader_is_about_to_run() {
        let mut pipes = Pipes::default();
        let id = pipes.open(None, true, true).expect("there is memory");
        let pipe = pipes.get_mut(id).expect("it is open");
        let write = |pipe: &mut Pipe, waits| pipe.fill(2 * OVERCOMMIT, pipe.limit(waits), false, |room| room.len());
        for (has_waiting_reader, waits) in [(false, true), (true, false)] {
            pipe.has_waiting_reader = has_waiting_reader;
            assert_eq!(write(pipe, waits), Ok(CAPACITY), "{has_waiting_reader} {waits}");
            pipe.skip(CAPACITY);
        }
        pipe.has_waiting_reader = true;
        assert_eq!(write(pipe, true), Ok(CAPACITY + OVERCOMMIT));
        assert_eq!((write(pipe, true), pipe.ready(false, true)), (Err(Errno::EAGAIN), 0));
        pipe.skip(OVERCOMMIT);
        assert_eq!(pipe.ready(false, true), 0, "it is still full");
        pipe.skip(CAPACITY);
        pipe.readers += 1;
        pipes.close(id, true, false);
        assert_eq!(write(pipes.get_mut(id).expect("it is open"), true), Ok(CAPACITY), "the reader may be gone");
    }
}
