// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of a migration: frames of bounded length on a TCP connection.
//!
//! ```text
//! frame     length of the rest (4 bytes, little-endian), type (1 byte), payload
//! ```
//!
//! Everything from a peer is checked: a frame that is longer than its sender may send, or of an unknown type, ends the connection.

use pando_abi::PAGE_SIZE;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of a page.
const PAGE: usize = PAGE_SIZE as usize;
/// Pages of a frame.
pub(super) const FRAME_PAGES: u32 = 64;
/// Bytes of a frame's header.
const HEADER: usize = 5;
/// Bytes of the longest payload: pages that cannot be compressed, and their numbers.
pub(super) const PAYLOAD_MAX: usize = FRAME_PAGES as usize * PAGE + 4096;
/// Bytes of the longest payload of a peer that has not shown its token.
pub(super) const GREETING_MAX: usize = 256;
/// The fastest level of compression: the program waits for the pages.
const LEVEL: i32 = 1;
/// Bytes that may wait until they are processed.
const RECEIVED_MAX: usize = 4 * PAYLOAD_MAX;
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// The types of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameType {
    /// Source: its nonce.
    Hello = 1,
    /// Destination: its nonce, and the proof that it has the token.
    Answer = 2,
    /// Source: the proof that it has the token.
    Proof = 3,
    /// Source: the program, and its requirements of a machine.
    Offer = 4,
    /// Destination: asks for the program. The payload is its own name.
    Move = 5,
    /// Source: a part of the image.
    Image = 6,
    /// Source: the image is complete.
    ImageEnd = 7,
    /// Source: pages that the destination has not asked for.
    Pages = 8,
    /// Source: pages that it has asked for.
    NeededPages = 9,
    /// Destination: the program's cell is built.
    Ready = 10,
    /// Source: the program is the destination's.
    HandOver = 11,
    /// Destination: the program runs.
    Started = 12,
    /// Destination: asks for a page, and those after it in its group.
    Need = 13,
    /// Destination: so many further frames of pages may be sent without a request.
    Credit = 14,
    /// Source: all pages were sent once.
    AllSent = 15,
    /// Destination: it needs nothing more.
    Done = 16,
    /// Both: nothing else was sent for a while.
    Keepalive = 17,
    /// Both: the move fails, and the program does not run at the destination. The payload is the reason.
    Failed = 18,
}

impl FrameType {
    fn from_byte(byte: u8) -> Option<FrameType> {
        let all = [
            FrameType::Hello,
            FrameType::Answer,
            FrameType::Proof,
            FrameType::Offer,
            FrameType::Move,
            FrameType::Image,
            FrameType::ImageEnd,
            FrameType::Pages,
            FrameType::NeededPages,
            FrameType::Ready,
            FrameType::HandOver,
            FrameType::Started,
            FrameType::Need,
            FrameType::Credit,
            FrameType::AllSent,
            FrameType::Done,
            FrameType::Keepalive,
            FrameType::Failed,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: FrameType,
    pub(super) payload: Vec<u8>,
}

/// The bytes of a frame.
pub(super) fn encode(kind: FrameType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32 + 1).to_le_bytes());
    bytes.push(kind as u8);
    bytes.extend_from_slice(payload);
    bytes
}

/// The payload of a frame of pages with consecutive numbers.
///
/// # Errors
/// There is not enough memory.
pub(super) fn encode_pages(first: u32, pages: &[u8]) -> Result<Vec<u8>> {
    let mut payload = first.to_le_bytes().to_vec();
    payload.extend_from_slice(&((pages.len() / PAGE) as u32).to_le_bytes());
    payload.extend(zstd::bulk::compress(pages, LEVEL)?);
    Ok(payload)
}

/// The number of the first page of such a payload, and the bytes of all. `None`: it is invalid.
pub(super) fn decode_pages(payload: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (first, rest) = payload.split_first_chunk::<4>()?;
    let (count, compressed) = rest.split_first_chunk::<4>()?;
    let (first, count) = (u32::from_le_bytes(*first), u32::from_le_bytes(*count));
    if count == 0 || count > FRAME_PAGES || first.checked_add(count).is_none() {
        return None;
    }
    let bytes = zstd::bulk::decompress(compressed, count as usize * PAGE).ok()?;
    (bytes.len() == count as usize * PAGE).then_some((first, bytes))
}

/// The number that is the whole payload.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(payload.try_into().ok()?))
}

/// The text of a payload, as much of it as a message has room for.
pub(super) fn text(payload: &[u8]) -> String {
    const MESSAGE_MAX: usize = 500;
    String::from_utf8_lossy(&payload[..payload.len().min(MESSAGE_MAX)]).into_owned()
}

/// The text of an error, as much of it as each peer accepts.
pub(super) fn reason(error: &Error) -> String {
    let text = error.to_string();
    text[..text.floor_char_boundary(GREETING_MAX)].into()
}

/// A connection on which frames are sent and received.
#[derive(Debug)]
pub(super) struct FrameStream {
    pub(super) socket: TcpStream,
    /// Bytes that were received and belong to no frame yet.
    received: Vec<u8>,
    /// Bytes of the longest payload that the peer may send now.
    pub(super) payload_max: usize,
    /// When bytes were received last.
    pub(super) last_received: Instant,
}

impl FrameStream {
    pub(super) fn new(socket: TcpStream) -> Result<FrameStream> {
        socket.set_nodelay(true)?;
        Ok(FrameStream { socket, received: Vec::new(), payload_max: GREETING_MAX, last_received: Instant::now() })
    }

    /// The next frame, if all of it was received.
    ///
    /// # Errors
    /// The peer breaks the protocol.
    pub(super) fn next(&mut self) -> Result<Option<Frame>> {
        let Some((header, rest)) = self.received.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [length @ .., kind] = *header;
        let length = u32::from_le_bytes(length) as usize;
        let kind = FrameType::from_byte(kind).filter(|_| (1..=self.payload_max + 1).contains(&length));
        let kind = kind.ok_or_else(broken_protocol)?;
        if rest.len() < length - 1 {
            return Ok(None);
        }
        let payload = rest[..length - 1].to_vec();
        self.received.drain(..HEADER + payload.len());
        Ok(Some(Frame { kind, payload }))
    }

    /// Reads bytes that are there, or waits for some. `false`: the time of the socket is over.
    ///
    /// # Errors
    /// The connection has ended or is broken.
    pub(super) fn fill(&mut self) -> Result<bool> {
        let before = self.received.len();
        if before > RECEIVED_MAX {
            return Err(broken_protocol());
        }
        self.received.resize(before + PIECE, 0);
        let result = self.socket.read(&mut self.received[before..]);
        self.received.truncate(before + result.as_ref().map_or(0, |count| *count));
        match result {
            Ok(0) => Err(Error::new(ErrorKind::UnexpectedEof, "the other side has ended the connection")),
            Ok(_) => {
                self.last_received = Instant::now();
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for a frame of any type until a time.
    ///
    /// # Errors
    /// None came, the connection has ended, or the peer breaks the protocol.
    pub(super) fn receive_any(&mut self, until: Instant) -> Result<Frame> {
        loop {
            if let Some(frame) = self.next()? {
                return Ok(frame);
            }
            self.socket.set_read_timeout(Some(left(until)?))?;
            self.fill()?;
        }
    }

    /// Waits for a frame that is no keepalive until a time.
    ///
    /// # Errors
    /// None came, the peer has failed, the connection has ended, or the peer breaks the protocol.
    pub(super) fn receive(&mut self, until: Instant) -> Result<Frame> {
        loop {
            let frame = self.receive_any(until)?;
            match frame.kind {
                FrameType::Keepalive => {}
                FrameType::Failed => return Err(Error::other(text(&frame.payload))),
                _ => return Ok(frame),
            }
        }
    }

    /// Waits for a frame of a type until a time. Returns its payload.
    ///
    /// # Errors
    /// None came, the connection has ended, or the peer sends another one.
    pub(super) fn expect(&mut self, kind: FrameType, until: Instant) -> Result<Vec<u8>> {
        let frame = self.receive(until)?;
        if frame.kind == kind { Ok(frame.payload) } else { Err(broken_protocol()) }
    }

    /// Sends a frame until a time.
    ///
    /// # Errors
    /// The peer does not receive it in time, or the connection is broken.
    pub(super) fn send(&mut self, kind: FrameType, payload: &[u8], until: Instant) -> Result<()> {
        let bytes = encode(kind, payload);
        let mut done = 0;
        while done < bytes.len() {
            self.socket.set_write_timeout(Some(left(until)?))?;
            match self.socket.write(&bytes[done..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The time until another one.
///
/// # Errors
/// It is over.
pub(in crate::checkpointer) fn left(until: Instant) -> Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Error::new(ErrorKind::TimedOut, "the other side did not answer in time")) } else { Ok(left) }
}

/// The error about a peer that breaks the protocol.
pub(super) fn broken_protocol() -> Error {
    Error::new(ErrorKind::InvalidData, "the other side does not speak the protocol of `pando restore`, or another version of it")
}

#[cfg(test)]
mod tests {
    use super::{FRAME_PAGES, Frame, FrameStream, FrameType, PAGE, decode_pages, encode, encode_pages};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// Both ends of a connection.
    fn pair() -> (TcpStream, FrameStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let one = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        (one, FrameStream::new(listener.accept().expect("it has connected").0).expect("a socket"))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn frames_arrive_in_order_however_they_are_cut() {
        let (mut one, mut other) = pair();
        let bytes =
            [encode(FrameType::Hello, &[7; 200]), encode(FrameType::Keepalive, &[]), encode(FrameType::Need, &[1, 2, 3, 4])].concat();
        let writer = std::thread::spawn(move || bytes.iter().for_each(|byte| one.write_all(&[*byte]).expect("it is open")));
        assert_eq!(other.receive(soon()).expect("it came"), Frame { kind: FrameType::Hello, payload: vec![7; 200] });
        assert_eq!(other.receive(soon()).expect("it came"), Frame { kind: FrameType::Need, payload: vec![1, 2, 3, 4] });
        writer.join().expect("it wrote all");
        assert!(other.receive(soon()).is_err(), "the connection has ended");
    }

    #[test]
    fn frames_that_are_too_long_or_unknown_end_the_connection_before_they_are_read() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 0, 1], &[2, 0, 0, 0, 99, 0], &encode(FrameType::Hello, &[0; 257])[..5]] {
            let (mut one, mut other) = pair();
            one.write_all(bytes).expect("it is open");
            let error = other.receive(soon()).expect_err("it is invalid");
            assert!(error.to_string().contains("does not speak the protocol"), "{error}");
        }
    }

    #[test]
    fn a_silent_peer_is_given_up() {
        let (one, mut other) = pair();
        let error = other.receive(Instant::now() + Duration::from_millis(20)).expect_err("nothing comes");
        assert!(error.to_string().contains("did not answer in time"), "{error}");
        drop(one);
    }

    #[test]
    fn pages_are_checked_before_they_are_unpacked() {
        let pages: Vec<u8> = (0..3 * PAGE).map(|at| (at / 7) as u8).collect();
        let payload = encode_pages(5, &pages).expect("there is memory");
        assert_eq!(decode_pages(&payload), Some((5, pages.clone())));
        let with = |first: u32, count: u32| [&first.to_le_bytes()[..], &count.to_le_bytes(), &payload[8..]].concat();
        for wrong in [with(5, 2), with(5, 4), with(5, 0), with(5, FRAME_PAGES + 1), with(u32::MAX, 3), payload[..7].to_vec(), vec![0; 8]] {
            assert_eq!(decode_pages(&wrong), None);
        }
    }
}
