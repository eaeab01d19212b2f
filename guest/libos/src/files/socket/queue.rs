// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has arrived at a socket: bytes of a stream, or datagrams, with what was sent beside them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::Who;
use super::address::Address;
use super::notices::Told;
use crate::errno::Errno;

/// Bytes of a piece of a stream that more is added to.
const PAGE: usize = 4096;
/// Bytes that a datagram takes beside its own, so that empty ones are not free.
const OVERHEAD: usize = 256;

/// What a packet of the Internet says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// How far it may go.
    pub hops: Option<i32>,
    /// Its class of traffic.
    pub class: Option<i32>,
    /// Where it was sent to.
    pub to: Option<IpAddr>,
    /// The number of the interface that it came by.
    pub by: u32,
    /// When it arrived, in nanoseconds of the wall clock.
    pub time: Option<u64>,
}

/// What is sent beside bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Open files, by their numbers in the table of open files. Each counts as a descriptor of its file.
    pub files: Vec<usize>,
    /// Who sent it.
    pub who: Who,
    /// The sender says so itself, whether anybody asks or not.
    pub is_said: bool,
    /// What its packet says.
    pub packet: Packet,
}

/// What one send brought, or a part of a stream.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    /// How many of them were read.
    read: usize,
    from: Option<Box<Address>>,
    beside: Beside,
}

/// What a receiver is given.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes that were taken.
    pub bytes: usize,
    /// Bytes that the datagram has.
    pub whole: usize,
    /// It comes from here.
    pub from: Option<Address>,
    /// Open files that came with it.
    pub files: Vec<usize>,
    /// Who sent it.
    pub who: Option<Who>,
    /// What its packet says.
    pub packet: Packet,
    /// What it is about, if it is something that was sent and did not arrive.
    pub told: Option<Box<Told>>,
}

/// The last byte of a stream that its sender called urgent. It leaves a mark, which no one read goes across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Urgent {
    /// Bytes that wait before the mark.
    ahead: usize,
    byte: u8,
    /// It stands in the stream, behind the mark.
    in_line: bool,
    /// It was received by itself.
    received: bool,
}

/// What has arrived.
#[derive(Debug, Default)]
pub struct Queue {
    pieces: VecDeque<Piece>,
    /// Bytes that it takes.
    used: usize,
    urgent: Option<Urgent>,
}

impl Queue {
    /// How many bytes it takes of what it may hold.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// How many datagrams wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that wait: of a stream all, of datagrams those of the first.
    #[must_use]
    pub fn length(&self, is_stream: bool) -> usize {
        let lengths = self.pieces.iter().map(|piece| piece.bytes.len() - piece.read);
        if is_stream { lengths.sum() } else { lengths.take(1).sum() }
    }

    /// Adds to a stream, as far as `room` goes: `give` fills what it is handed and says how much it filled. Returns how many bytes were added.
    ///
    /// # Errors
    /// `ENOMEM`; `EFAULT`: nothing could be filled.
    pub fn push(&mut self, room: usize, beside: Beside, give: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        let Beside { mut files, who, .. } = beside;
        let mut done = 0;
        while done < room {
            let last = match self.open_piece(room - done, files.is_empty(), who) {
                Ok(last) => last,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            };
            let (filled, wanted) = fill(&mut last.bytes, room - done, give);
            if last.bytes.is_empty() {
                self.pieces.pop_back();
            } else {
                // Files go with the first byte that they were sent with.
                last.beside.files.append(&mut files);
            }
            done += filled;
            self.used += filled;
            if filled < wanted {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
        }
        Ok(done)
    }

    /// Adds bytes that the libOS has itself to a stream, as far as there is memory: unlike [`Queue::push`] it need not clear the room for them first. Returns how many.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty()
            && let Ok(last) = self.open_piece(rest.len(), true, Who::default())
        {
            let (first, later) = rest.split_at(rest.len().min(last.bytes.capacity() - last.bytes.len()));
            last.bytes.extend_from_slice(first);
            rest = later;
        }
        let done = bytes.len() - rest.len();
        self.used += done;
        done
    }

    /// The piece of a stream that `who`'s next bytes go into, of which there are so many: the last, if that has room and they may join it, or a new one.
    fn open_piece(&mut self, bytes: usize, may_join: bool, who: Who) -> Result<&mut Piece, Errno> {
        let joins = |last: &Piece| last.bytes.len() < last.bytes.capacity() && last.beside.files.is_empty() && last.beside.who == who;
        if !may_join || !self.pieces.back().is_some_and(joins) {
            let mut room = Vec::new();
            room.try_reserve_exact(bytes.clamp(PAGE, 4 * PAGE)).map_err(|_| Errno::ENOMEM)?;
            self.pieces.push_back(Piece { bytes: room, read: 0, from: None, beside: Beside { who, ..Beside::default() } });
        }
        self.pieces.back_mut().ok_or(Errno::ENOMEM)
    }

    /// Adds an urgent byte to a stream: into it, or beside it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn push_urgent(&mut self, byte: u8, in_line: bool, who: Who) -> Result<(), Errno> {
        let ahead = self.length(true);
        if in_line {
            let mut give = |room: &mut [u8]| {
                room.fill(byte);
                room.len()
            };
            self.push(1, Beside { who, ..Beside::default() }, &mut give)?;
        }
        self.urgent = Some(Urgent { ahead, byte, in_line, received: false });
        Ok(())
    }

    /// The urgent byte, if it is beside the stream and was not received yet. `peeks`: it stays.
    pub fn take_urgent(&mut self, peeks: bool) -> Option<u8> {
        let urgent = self.urgent.as_mut().filter(|urgent| !urgent.in_line && !urgent.received)?;
        urgent.received = !peeks;
        Some(urgent.byte)
    }

    /// Goes past a mark where the stream stands, as every read does that finds nothing behind it.
    pub fn pass_mark(&mut self) {
        self.urgent = self.urgent.filter(|urgent| urgent.ahead > 0);
    }

    /// Whether an urgent byte waits.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.urgent.is_some_and(|urgent| !urgent.received)
    }

    /// Whether the next byte is the one behind the mark.
    #[must_use]
    pub fn is_at_mark(&self) -> bool {
        self.urgent.is_some_and(|urgent| urgent.ahead == 0)
    }

    /// Adds a datagram.
    ///
    /// # Errors
    /// `ENOMEM`; `EFAULT`: not all could be filled.
    pub fn push_whole(
        &mut self,
        length: usize,
        from: Address,
        beside: Beside,
        give: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        while bytes.len() < length {
            let left = length - bytes.len();
            let (filled, wanted) = fill(&mut bytes, left, give);
            if filled < wanted {
                return Err(Errno::EFAULT);
            }
        }
        self.used += length + OVERHEAD;
        self.pieces.push_back(Piece { bytes, read: 0, from: Some(Box::new(from)), beside });
        Ok(())
    }

    /// Hands bytes of a stream to `take`, which says how many it took. What came with files ends there. `peeks`: everything stays.
    ///
    /// # Errors
    /// `EFAULT`: nothing could be taken.
    pub fn take(&mut self, room: usize, peeks: bool, mixes: bool, take: &mut dyn FnMut(&[u8]) -> usize) -> Result<Received, Errno> {
        let mut received = Received::default();
        let mut index = 0;
        let room = self.urgent.filter(|urgent| urgent.ahead > 0).map_or(room, |urgent| room.min(urgent.ahead));
        while received.bytes < room
            && let Some(piece) = self.pieces.get_mut(index)
        {
            if !mixes && received.who.is_some_and(|who| who != piece.beside.who) {
                break;
            }
            let unread = &piece.bytes[piece.read..];
            let wanted = unread.len().min(room - received.bytes);
            let taken = take(&unread[..wanted]);
            received.bytes += taken;
            if taken == 0 && wanted > 0 {
                if received.bytes == 0 {
                    return Err(Errno::EFAULT);
                }
                break;
            }
            received.who.get_or_insert(piece.beside.who);
            let carries = !piece.beside.files.is_empty();
            if peeks {
                received.files.extend(&piece.beside.files);
                index += 1;
            } else {
                received.files.append(&mut piece.beside.files);
                piece.read += taken;
                self.used -= taken;
                if piece.read == piece.bytes.len() {
                    self.pieces.pop_front();
                }
            }
            if taken < wanted || carries {
                break;
            }
        }
        received.whole = received.bytes;
        if !peeks && received.bytes > 0 {
            let ahead = |urgent: Urgent| Some(Urgent { ahead: urgent.ahead.checked_sub(received.bytes)?, ..urgent });
            self.urgent = self.urgent.and_then(ahead);
        }
        Ok(received)
    }

    /// Hands the first datagram to `take`, as much as there is room for. `peeks`: it stays. `None`: there is none.
    ///
    /// # Errors
    /// `EFAULT`: what there is room for could not be taken.
    pub fn take_whole(&mut self, room: usize, peeks: bool, take: &mut dyn FnMut(&[u8]) -> usize) -> Result<Option<Received>, Errno> {
        let Some(piece) = self.pieces.front() else { return Ok(None) };
        let (whole, bytes) = (piece.bytes.len(), piece.bytes.len().min(room));
        let is_taken = take(&piece.bytes[..bytes]) == bytes;
        let (who, packet) = (Some(piece.beside.who), piece.beside.packet);
        let from = piece.from.as_deref().cloned();
        if !is_taken {
            return Err(Errno::EFAULT);
        }
        let files = if peeks {
            piece.beside.files.clone()
        } else {
            self.used -= whole + OVERHEAD;
            self.pieces.pop_front().map(|piece| piece.beside.files).unwrap_or_default()
        };
        Ok(Some(Received { bytes, whole, from, files, who, packet, told: None }))
    }

    /// Forgets everything. Returns the files that came with it.
    pub fn clear(&mut self) -> Vec<usize> {
        self.used = 0;
        self.urgent = None;
        self.pieces.drain(..).flat_map(|piece| piece.beside.files).collect()
    }
}

/// Lets `give` fill what a vector has room for, at most so many bytes. Returns how many were filled, and how many should have been.
fn fill(bytes: &mut Vec<u8>, most: usize, give: &mut dyn FnMut(&mut [u8]) -> usize) -> (usize, usize) {
    let start = bytes.len();
    let wanted = most.min(bytes.capacity() - start);
    bytes.resize(start + wanted, 0);
    let filled = give(&mut bytes[start..]);
    bytes.truncate(start + filled);
    (filled, wanted)
}
