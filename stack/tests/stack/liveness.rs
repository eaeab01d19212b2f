// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hostile TCP peer cannot keep a stack busy. Every `run` ends, even if the tx sink takes every frame; a wait costs
//! few runs; and a peer that behaves again gets every byte.

use std::collections::BTreeSet;

use fastrand::Rng;
use pando_stack::{ConnectionId, SocketEvent, Stack, TxSink, Verdict};
use pando_testing::lab::seeds;

use crate::net::{MS, TestListeners, config, mac};

const SECOND: u64 = 1000 * MS;
/// Frames that one `run` may send for one connection: 64 turns of 16 frames, each with an immediate answer of smoltcp.
const FRAMES_OF_A_RUN: usize = 64 * 17;
/// Frames and calls of `run` that one point in time may take: the whole buffer in segments of 48 bytes, once.
const FRAMES_OF_A_MOMENT: usize = 2048;
/// The same in each second of silence: an expired timer, a segment, an acknowledgement. (A window of 10 segments is
/// retransmitted at the first timeout.)
const LOOKS_OF_A_WAIT: u64 = 64;
const LOOKS_OF_A_SECOND: u64 = 16;

/// Acknowledgements of a peer that behaves, a second apart: more than a congestion window needs that has shrunk to one small segment.
const ROUNDS: u32 = 200;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// The byte of the stream at this offset.
fn byte(at: u32) -> u8 {
    (at ^ at >> 8) as u8
}

/// A tx sink that always has room, and the state that a peer learns from the frames.
struct Sink {
    room: Vec<u8>,
    frames: usize,
    /// The first number of the stream, the next one that an honest peer waits for, and the end of the sent data.
    begin: u32,
    next: u32,
    end: u32,
    /// The next number that the stack expects.
    expected: u32,
    /// The stack's initial sequence number, from its SYN-ACK.
    opening: Option<u32>,
    /// The stack requests the peer's Ethernet address.
    has_arp_request: bool,
}

impl TxSink for Sink {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        if self.room.len() < length {
            self.room.resize(length, 0);
        }
        Some(&mut self.room[..length])
    }

    fn commit(&mut self, length: usize) {
        self.frames += 1;
        assert!(self.frames <= FRAMES_OF_A_MOMENT, "sending without end");
        let frame = &self.room[..length];
        if frame[12..14] != [8, 0] {
            self.has_arp_request = true;
            return;
        }
        let segment = &frame[34..];
        let (number, flags) = (u32::from_be_bytes(segment[4..8].try_into().unwrap()), segment[13]);
        self.expected = u32::from_be_bytes(segment[8..12].try_into().unwrap());
        if flags & SYN != 0 {
            self.opening = Some(number);
            return;
        }
        let payload = &segment[usize::from(segment[12] >> 4) * 4..];
        let offset = number.wrapping_sub(self.begin);
        // A keep-alive or an answer with an old number carries nothing of the stream.
        assert!(payload.iter().zip(offset..).all(|(sent, at)| *sent == byte(at)), "other bytes than those that were given");
        let end = number.wrapping_add(payload.len() as u32 + u32::from(flags & FIN));
        if (end.wrapping_sub(self.end) as i32) > 0 {
            self.end = end;
        }
        if (number.wrapping_sub(self.next) as i32) <= 0 && (end.wrapping_sub(self.next) as i32) > 0 {
            self.next = end;
        }
    }
}

/// A stack with one connection, and its peer.
struct Duel {
    stack: Stack,
    listeners: TestListeners,
    sink: Sink,
    now: u64,
    id: ConnectionId,
    /// The peer's next number, its last acknowledgement, and the bytes given to be sent.
    number: u32,
    acknowledged: u32,
    given: u32,
    is_over: bool,
}

/// The peer's ARP reply.
fn arp() -> Vec<u8> {
    let [stack, peer] = [mac(1), mac(0)];
    [&stack[..], &peer, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &peer, &[10, 1, 0, 1], &stack, &[10, 1, 0, 2]].concat()
}

/// A segment from the peer.
fn segment(flags: u8, number: u32, acknowledged: u32, window: u16, options: &[u8], length: usize) -> Vec<u8> {
    let header = 20 + options.len().next_multiple_of(4);
    let mut frame = vec![0; 34 + header];
    frame[..6].copy_from_slice(&mac(1));
    frame[6..12].copy_from_slice(&mac(0));
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&((20 + header + length) as u16).to_be_bytes());
    (frame[22], frame[23]) = (64, 6);
    frame[26..34].copy_from_slice(&[10, 1, 0, 1, 10, 1, 0, 2]);
    frame[34..38].copy_from_slice(&[0x9c, 0x40, 0, 80]);
    frame[38..42].copy_from_slice(&number.to_be_bytes());
    frame[42..46].copy_from_slice(&acknowledged.to_be_bytes());
    (frame[46], frame[47]) = ((header as u8 / 4) << 4, flags);
    frame[48..50].copy_from_slice(&window.to_be_bytes());
    frame[54..54 + options.len()].copy_from_slice(options);
    frame.resize(34 + header + length, b'x');
    frame
}

impl Duel {
    /// A connection that the peer has opened, with random options.
    fn new(rng: &mut Rng) -> Self {
        let buffer = [8 << 10, 16 << 10, 64 << 10][rng.usize(..3)];
        let scale = [0, 0, 2, 7, 14][rng.usize(..5)];
        Self::open(rng, buffer, scale)
    }

    /// The same with buffers of this size, and this scale of the peer's windows.
    fn open(rng: &mut Rng, buffer: usize, scale: u8) -> Self {
        let mut settings = config(1);
        settings.buffer = buffer;
        let listeners = TestListeners { tcp: [(80, Verdict::Admit)].into(), udp: BTreeSet::new(), asked: Vec::new() };
        let sink = Sink { room: Vec::new(), frames: 0, begin: 0, next: 0, end: 0, expected: 0, opening: None, has_arp_request: false };
        let number = rng.u32(..);
        let mut duel = Self {
            stack: Stack::new(settings, 0),
            listeners,
            sink,
            now: SECOND,
            id: ConnectionId::default(),
            number: number.wrapping_add(1),
            acknowledged: 0,
            given: 0,
            is_over: false,
        };
        let size: u16 = [1, 100, 536, 1460, 1460, 9000][rng.usize(..6)];
        let [high, low] = size.to_be_bytes();
        let options = [2, 4, high, low, 4, 2, 1, 3, 3, scale, 1, 1];
        duel.take(&segment(SYN, number, 0, [0, 1000, 0xffff][rng.usize(..3)], &options, 0));
        let begin = duel.sink.opening.expect("it answers").wrapping_add(1);
        (duel.sink.begin, duel.sink.next, duel.sink.end, duel.acknowledged) = (begin, begin, begin, begin);
        duel.now += [0, MS / 100, MS, 50 * MS][rng.usize(..4)];
        duel.take(&segment(ACK, duel.number, begin, [0, 1000, 0xffff][rng.usize(..3)], &[], 0));
        assert_ne!(duel.id, ConnectionId::default(), "it is let in");
        duel
    }

    /// The stack receives a frame and sends what is due. Frames and calls are bounded.
    fn take(&mut self, frame: &[u8]) {
        self.sink.frames = 0;
        self.stack.receive_frame(frame, self.now, &mut self.listeners, &mut self.sink);
        self.run();
    }

    /// Sends until nothing is left. Returns the number of calls.
    fn run(&mut self) -> u64 {
        self.sink.frames = 0;
        for call in 1..=FRAMES_OF_A_MOMENT as u64 {
            let before = self.sink.frames;
            let is_done = self.stack.run(self.now, &mut self.sink);
            assert!(self.sink.frames - before <= FRAMES_OF_A_RUN, "one run sends {} frames", self.sink.frames - before);
            while let Some(event) = self.stack.next_event() {
                match event {
                    SocketEvent::Accepted(id) => self.id = id,
                    SocketEvent::Failed(..) | SocketEvent::Closed(_) => self.is_over = true,
                    _ => {}
                }
            }
            if is_done && !std::mem::take(&mut self.sink.has_arp_request) {
                return call;
            }
            self.stack.receive_frame(&arp(), self.now, &mut self.listeners, &mut self.sink);
        }
        panic!("there is always more to send");
    }

    /// Time passes, and the stack does its due work: in time, or late.
    fn wait(&mut self, span: u64, is_late: bool) {
        if is_late {
            self.now += span;
            self.run();
            return;
        }
        let (begin, until, mut looks) = (self.now, self.now + span, 0);
        while let Some(due) = self.stack.deadline().filter(|due| *due <= until) {
            // No clock stands still between two calls.
            self.now = due.max(self.now + 1000);
            looks += self.run();
            let most = LOOKS_OF_A_WAIT + (self.now - begin) / SECOND * LOOKS_OF_A_SECOND;
            assert!(looks <= most, "busy while nothing happens: {looks} calls in {} ms", (self.now - begin) / MS);
        }
        self.now = self.now.max(until);
    }

    fn send(&mut self, most: usize) {
        let (mut left, mut at) = (most, self.given);
        self.stack.send(self.id, &mut |room| {
            let length = left.min(room.len());
            room[..length].iter_mut().zip(at..).for_each(|(place, at)| *place = byte(at));
            (left, at) = (left - length, at + length as u32);
            length
        });
        self.given = at;
    }

    /// The peer sends a random segment, mostly near a valid one.
    fn attack(&mut self, rng: &mut Rng) {
        let length = [0, 0, 0, 1, 10, 1000][rng.usize(..6)];
        let near = |rng: &mut Rng, base: u32| match rng.u8(..8) {
            0..=3 => base,
            4 => base.wrapping_add(rng.u32(..40)).wrapping_sub(20),
            5 => base.wrapping_add(rng.u32(..6000)).wrapping_sub(3000),
            6 => base.wrapping_add(rng.u32(..200_000)).wrapping_sub(100_000),
            _ => rng.u32(..),
        };
        let sent = self.sink.end.wrapping_sub(self.acknowledged);
        let within = |rng: &mut Rng, own: &Self| own.acknowledged.wrapping_add(rng.u32(..=sent.min(1 << 20)));
        let number = near(rng, self.number);
        let acknowledged = match rng.u8(..8) {
            0..=2 => within(rng, self),
            3 => self.acknowledged,
            4 => self.sink.end,
            5 => self.sink.begin.wrapping_add(1460 * rng.u32(..20)),
            6 => self.acknowledged.wrapping_add(rng.u32(..200)).wrapping_sub(100),
            _ => near(rng, self.sink.end),
        };
        let mut options = Vec::new();
        if rng.bool() {
            let ranges = rng.u8(1..4);
            options.extend([1, 1, 5, 2 + 8 * ranges]);
            for _ in 0..ranges {
                let from = if rng.u8(..4) == 0 { rng.u32(..) } else { within(rng, self) };
                let to = if rng.bool() {
                    within(rng, self)
                } else {
                    from.wrapping_add([1460, 2920, rng.u32(..10_000), rng.u32(..)][rng.usize(..4)])
                };
                options.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
            }
        }
        let window = [0, 0, 1, 500, 1460, 0xffff, 0xffff, rng.u16(..)][rng.usize(..8)];
        let flags = if rng.u8(..64) == 0 { rng.u8(..64) } else { ACK | (rng.u8(..) & 8) };
        if flags & (ACK | SYN | 4) == ACK {
            let reaches = acknowledged.wrapping_sub(self.acknowledged) <= sent;
            self.acknowledged = if reaches { acknowledged } else { self.acknowledged };
        }
        if number == self.number {
            self.number = number.wrapping_add(length as u32 + u32::from(flags & FIN));
        }
        self.take(&segment(flags, number, acknowledged, window, &options, length));
    }

    /// A random step.
    fn step(&mut self, rng: &mut Rng) {
        match rng.u8(..20) {
            0..=2 => self.send([1, 100, 1460, 5000, 100_000][rng.usize(..5)]),
            3 => drop(self.stack.receive(self.id, &mut |piece| piece.len())),
            4..=6 => self.wait([1, MS, 50 * MS, 300 * MS, 2 * SECOND, 20 * SECOND][rng.usize(..6)], rng.bool()),
            7 if rng.u8(..6) == 0 => self.stack.finish(self.id, self.now),
            _ => return self.attack(rng),
        }
        self.run();
    }
}

/// A random attack, after which the peer behaves: it gets all data, unless one of its segments has ended the connection.
fn attack(seed: u64) {
    let rng = &mut Rng::with_seed(seed);
    let mut duel = Duel::new(rng);
    for _ in 0..rng.u32(5..60) {
        duel.step(rng);
    }
    for _ in 0..ROUNDS {
        if duel.is_over || duel.sink.next.wrapping_sub(duel.sink.begin) >= duel.given {
            return;
        }
        duel.stack.receive(duel.id, &mut |piece| piece.len());
        duel.take(&segment(ACK, duel.sink.expected, duel.sink.next, 0xffff, &[], 0));
        duel.wait(SECOND, false);
    }
    panic!("{} bytes of {} were sent", duel.sink.next.wrapping_sub(duel.sink.begin), duel.given);
}

fn attacks(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let result = std::panic::catch_unwind(|| attack(seed));
        assert!(result.is_ok(), "the attack with seed {seed}");
    }
}

#[test]
fn no_peer_keeps_a_stack_busy() {
    attacks(seeds(1000, 20_000, 1_000_000));
}

/// smoltcp panicked: it took the window of its SYN as scaled, here for twice the buffer.
#[test]
fn a_peer_sends_more_than_there_is_room_for() {
    const BUFFER: usize = 64 << 10;
    let mut duel = Duel::open(&mut Rng::with_seed(1), BUFFER, 0);
    let begin = duel.number;
    let from = |offset: u32, length: usize| segment(ACK, begin.wrapping_add(offset), duel.sink.begin, 0xffff, &[], length);
    let segments = [from(1000, 65_000), from(100_000, 1000), from(0, 1000)];
    for segment in segments {
        duel.take(&segment);
    }
    assert_eq!(duel.stack.receive(duel.id, &mut |piece| piece.len()), BUFFER);
    // Sends the window update.
    duel.run();
    duel.take(&segment(ACK, begin.wrapping_add(BUFFER as u32), duel.sink.begin, 0xffff, &[], 10));
    assert_eq!(duel.stack.receive(duel.id, &mut |piece| piece.len()), 10, "what comes after that is received");
}
