// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive queues: bytes of a stream, or datagrams, with their control messages.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::PeerCredentials;
use super::address::Address;
use super::error_queue::SocketError;
use crate::errno::Errno;

/// Size in bytes up to which a piece of a stream is extended.
const PAGE: usize = 4096;
/// Accounting overhead of a datagram in bytes, so that empty ones are not free.
const OVERHEAD: usize = 256;

/// Header fields of a received IP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Its TTL or hop limit.
    pub hops: Option<i32>,
    /// Its traffic class.
    pub class: Option<i32>,
    /// Its destination address.
    pub to: Option<IpAddr>,
    /// The index of the interface on which it arrived.
    pub by: u32,
    /// When it arrived, in nanoseconds of the wall clock.
    pub time: Option<u64>,
}

/// Control messages and sender of a send operation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ControlMessage {
    /// Open files, by their numbers in the table of open files. Each holds a reference to its file.
    pub files: Vec<usize>,
    /// The credentials of the sender.
    pub credentials: PeerCredentials,
    /// The sender sent its credentials explicitly (`SCM_CREDENTIALS`).
    pub has_credentials: bool,
    /// The header fields of its packet.
    pub packet: Packet,
}

/// A datagram, or a part of a stream.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    /// How many of its bytes were read.
    read: usize,
    from: Option<Box<Address>>,
    control: ControlMessage,
}

/// The result of a receive operation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReceiveResult {
    /// Bytes received.
    pub bytes: usize,
    /// Size of the datagram in bytes.
    pub whole: usize,
    /// The sender's address.
    pub from: Option<Address>,
    /// Open files that arrived with it.
    pub files: Vec<usize>,
    /// The credentials of the sender.
    pub credentials: Option<PeerCredentials>,
    /// The header fields of its packet.
    pub packet: Packet,
    /// The error, if it comes from the error queue.
    pub queued_error: Option<Box<SocketError>>,
}

/// The urgent byte of a stream. It leaves a mark, at which every read stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Urgent {
    /// Unread bytes before the mark.
    bytes_before: usize,
    byte: u8,
    /// It is in the stream, behind the mark (`SO_OOBINLINE`).
    in_line: bool,
    /// It was received out of band.
    received: bool,
}

/// A receive queue.
#[derive(Debug, Default)]
pub struct Queue {
    pieces: VecDeque<Piece>,
    /// Bytes that it counts against the limit.
    used: usize,
    urgent: Option<Urgent>,
}

impl Queue {
    /// Bytes that it counts against its limit.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// The number of queued datagrams.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Unread bytes: of a stream all, of datagrams those of the first.
    #[must_use]
    pub fn length(&self, is_stream: bool) -> usize {
        let lengths = self.pieces.iter().map(|piece| piece.bytes.len() - piece.read);
        if is_stream { lengths.sum() } else { lengths.take(1).sum() }
    }

    /// Appends to a stream up to `room` bytes. `give` fills the given buffer and returns how many bytes it filled. Returns how many bytes
    /// were added.
    ///
    /// # Errors
    /// `ENOMEM`; `EFAULT`: no byte could be filled.
    pub fn push(&mut self, room: usize, control: ControlMessage, give: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        let ControlMessage { mut files, credentials, .. } = control;
        let mut done = 0;
        while done < room {
            let last = match self.open_piece(room - done, files.is_empty(), credentials) {
                Ok(last) => last,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            };
            let (filled, wanted) = fill(&mut last.bytes, room - done, give);
            if last.bytes.is_empty() {
                self.pieces.pop_back();
            } else {
                // Files belong to the first byte that they were sent with.
                last.control.files.append(&mut files);
            }
            done += filled;
            self.used += filled;
            if filled < wanted {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
        }
        Ok(done)
    }

    /// Appends bytes of the libOS to a stream, as far as there is memory. Unlike [`Queue::push`] it does not zero the buffer first.
    /// Returns how many.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty()
            && let Ok(last) = self.open_piece(rest.len(), true, PeerCredentials::default())
        {
            let (first, later) = rest.split_at(rest.len().min(last.bytes.capacity() - last.bytes.len()));
            last.bytes.extend_from_slice(first);
            rest = later;
        }
        let done = bytes.len() - rest.len();
        self.used += done;
        done
    }

    /// The piece of a stream for the next `bytes` bytes from `who`: the last one, if it has space and `may_join`, or a new one.
    fn open_piece(&mut self, bytes: usize, may_join: bool, credentials: PeerCredentials) -> Result<&mut Piece, Errno> {
        let joins = |last: &Piece| {
            last.bytes.len() < last.bytes.capacity() && last.control.files.is_empty() && last.control.credentials == credentials
        };
        if !may_join || !self.pieces.back().is_some_and(joins) {
            let mut room = Vec::new();
            room.try_reserve_exact(bytes.clamp(PAGE, 4 * PAGE)).map_err(|_| Errno::ENOMEM)?;
            self.pieces.push_back(Piece {
                bytes: room,
                read: 0,
                from: None,
                control: ControlMessage { credentials, ..ControlMessage::default() },
            });
        }
        self.pieces.back_mut().ok_or(Errno::ENOMEM)
    }

    /// Adds an urgent byte to a stream: in line, or out of band.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn push_urgent(&mut self, byte: u8, in_line: bool, credentials: PeerCredentials) -> Result<(), Errno> {
        let bytes_before = self.length(true);
        if in_line {
            let mut give = |room: &mut [u8]| {
                room.fill(byte);
                room.len()
            };
            self.push(1, ControlMessage { credentials, ..ControlMessage::default() }, &mut give)?;
        }
        self.urgent = Some(Urgent { bytes_before, byte, in_line, received: false });
        Ok(())
    }

    /// The unread out-of-band urgent byte. `peeks`: it stays.
    pub fn take_urgent(&mut self, peeks: bool) -> Option<u8> {
        let urgent = self.urgent.as_mut().filter(|urgent| !urgent.in_line && !urgent.received)?;
        urgent.received = !peeks;
        Some(urgent.byte)
    }

    /// Removes a mark at the current position, as every read does that finds no bytes behind it.
    pub fn pass_mark(&mut self) {
        self.urgent = self.urgent.filter(|urgent| urgent.bytes_before > 0);
    }

    /// Whether an urgent byte is pending.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.urgent.is_some_and(|urgent| !urgent.received)
    }

    /// Whether the next byte is directly behind the mark.
    #[must_use]
    pub fn is_at_mark(&self) -> bool {
        self.urgent.is_some_and(|urgent| urgent.bytes_before == 0)
    }

    /// Adds a datagram.
    ///
    /// # Errors
    /// `ENOMEM`; `EFAULT`: not all bytes could be filled.
    pub fn push_whole(
        &mut self,
        length: usize,
        from: Address,
        control: ControlMessage,
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
        self.pieces.push_back(Piece { bytes, read: 0, from: Some(Box::new(from)), control });
        Ok(())
    }

    /// Passes bytes of a stream to `take`, which returns how many it took. Stops after bytes that were sent with files. `peeks`:
    /// everything stays.
    ///
    /// # Errors
    /// `EFAULT`: no byte could be taken.
    pub fn take(&mut self, room: usize, peeks: bool, mixes: bool, take: &mut dyn FnMut(&[u8]) -> usize) -> Result<ReceiveResult, Errno> {
        let mut received = ReceiveResult::default();
        let mut index = 0;
        let room = self.urgent.filter(|urgent| urgent.bytes_before > 0).map_or(room, |urgent| room.min(urgent.bytes_before));
        while received.bytes < room
            && let Some(piece) = self.pieces.get_mut(index)
        {
            if !mixes && received.credentials.is_some_and(|credentials| credentials != piece.control.credentials) {
                break;
            }
            let unread = &piece.bytes[piece.read..];
            let wanted = unread.len().min(room - received.bytes);
            let count = take(&unread[..wanted]);
            received.bytes += count;
            if count == 0 && wanted > 0 {
                if received.bytes == 0 {
                    return Err(Errno::EFAULT);
                }
                break;
            }
            received.credentials.get_or_insert(piece.control.credentials);
            let carries = !piece.control.files.is_empty();
            if peeks {
                received.files.extend(&piece.control.files);
                index += 1;
            } else {
                received.files.append(&mut piece.control.files);
                piece.read += count;
                self.used -= count;
                if piece.read == piece.bytes.len() {
                    self.pieces.pop_front();
                }
            }
            if count < wanted || carries {
                break;
            }
        }
        received.whole = received.bytes;
        if !peeks && received.bytes > 0 {
            let bytes_before = |urgent: Urgent| Some(Urgent { bytes_before: urgent.bytes_before.checked_sub(received.bytes)?, ..urgent });
            self.urgent = self.urgent.and_then(bytes_before);
        }
        Ok(received)
    }

    /// Passes the first datagram, up to `room` bytes, to `take`. `peeks`: it stays. `None`: there is none.
    ///
    /// # Errors
    /// `EFAULT`: not all bytes that fit could be taken.
    pub fn take_whole(&mut self, room: usize, peeks: bool, take: &mut dyn FnMut(&[u8]) -> usize) -> Result<Option<ReceiveResult>, Errno> {
        let Some(piece) = self.pieces.front() else { return Ok(None) };
        let (whole, bytes) = (piece.bytes.len(), piece.bytes.len().min(room));
        let is_taken = take(&piece.bytes[..bytes]) == bytes;
        let (credentials, packet) = (Some(piece.control.credentials), piece.control.packet);
        let from = piece.from.as_deref().cloned();
        if !is_taken {
            return Err(Errno::EFAULT);
        }
        let files = if peeks {
            piece.control.files.clone()
        } else {
            self.used -= whole + OVERHEAD;
            self.pieces.pop_front().map(|piece| piece.control.files).unwrap_or_default()
        };
        Ok(Some(ReceiveResult { bytes, whole, from, files, credentials, packet, queued_error: None }))
    }

    /// Empties the queue. Returns the open files in it.
    pub fn clear(&mut self) -> Vec<usize> {
        self.used = 0;
        self.urgent = None;
        self.pieces.drain(..).flat_map(|piece| piece.control.files).collect()
    }
}

/// Lets `give` fill a vector's spare capacity, at most so many bytes. Returns how many were filled, and how many were requested.
fn fill(bytes: &mut Vec<u8>, max: usize, give: &mut dyn FnMut(&mut [u8]) -> usize) -> (usize, usize) {
    let start = bytes.len();
    let wanted = max.min(bytes.capacity() - start);
    bytes.resize(start + wanted, 0);
    let filled = give(&mut bytes[start..]);
    bytes.truncate(start + filled);
    (filled, wanted)
}
