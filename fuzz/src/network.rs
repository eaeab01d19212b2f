// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet frames: into the stack, with a peer that plays TCP badly, and into a gateway.

use crate::pieces;
use pando_gateway::{Gateway, Handle, Inside};
use pando_stack::{Config, Doorkeeper, Happening, Hearing, Outlet, Stack, Station, Tuple, Verdict};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The stack's or the gateway's card, and who speaks with it.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const ADDRESS6: Ipv6Addr = Ipv6Addr::new(0xfd70, 0, 0, 0, 0, 0, 0, 1);
/// The port at which the stack lets everybody in.
const PORT: u16 = 80;
/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// Pieces of the fuzzer's that are used: each may be a frame and some time.
const PIECES: usize = 256;
/// Frames that one frame may lead to: full buffers of all connections in segments of one byte, and answers.
const FRAMES: u64 = 4 * 16_384 * 2;
/// Times that a stack may ask to be called again at the same moment.
const RUNS: u32 = 1000;
/// FIN and SYN among the flags of TCP.
const FIN: u8 = 1;
const SYN: u8 = 2;

/// Where the stack's frames go: there is always room, as with a peer that takes everything.
#[derive(Default)]
struct Wire {
    room: Vec<u8>,
    /// Frames since the last one that was taken.
    frames: u64,
    /// What the stack would say next on its last connection, and what it expects.
    next: [u32; 2],
}

impl Wire {
    /// Notes where a segment of TCP over IPv4 stands.
    fn look(&mut self, length: usize) {
        let frame = &self.room[..length];
        let number = |at: usize| u32::from_be_bytes(std::array::from_fn(|index| frame[at + index]));
        if length >= 54 && frame[12..14] == [8, 0] && frame[14] == 0x45 && frame[23] == 6 {
            let payload = length - 34 - usize::from(frame[46] >> 4) * 4;
            let marks = u32::from(frame[47] & SYN != 0) + u32::from(frame[47] & FIN != 0);
            self.next = [number(38).wrapping_add(payload as u32).wrapping_add(marks), number(42)];
        }
    }
}

impl Outlet for Wire {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.room.resize(length.max(self.room.len()), 0);
        Some(&mut self.room)
    }

    fn commit(&mut self, length: usize) {
        self.frames += 1;
        assert!(self.frames <= FRAMES, "the stack sends without end");
        self.look(length);
    }
}

/// Lets everybody in at [`PORT`].
struct Door;

impl Doorkeeper for Door {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        if tuple.local.port() == PORT { Verdict::Admit } else { Verdict::Ignore }
    }

    fn hears(&mut self, local: SocketAddr, _: SocketAddr) -> Hearing {
        if local.port() == PORT { Hearing::Heard } else { Hearing::Nobody }
    }
}

/// A segment of TCP from the peer. `said` is its sequence number, flags, window, port and payload, as the fuzzer wants them around what the stack expects.
fn segment(wire: &Wire, said: &[u8]) -> Vec<u8> {
    let byte = |at: usize| said.get(at).copied().unwrap_or(0);
    let signed = |at: usize| i32::from(i16::from_le_bytes([byte(at), byte(at + 1)])) as u32;
    let payload = said.get(8..).unwrap_or(&[]);
    let total = 40 + payload.len() as u16;
    let mut frame = [&MAC[..], &PEER, &[8, 0]].concat();
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend(PEER_ADDRESS.octets());
    frame.extend(ADDRESS.octets());
    frame.extend((40_000 + u16::from(byte(1) & 3)).to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend(wire.next[1].wrapping_add(signed(2)).to_be_bytes());
    frame.extend(wire.next[0].wrapping_add(signed(4)).to_be_bytes());
    frame.extend([0x50, byte(0)]);
    frame.extend([byte(6), byte(7), 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}

/// Does what a user of the stack does; how, the fuzzer says.
fn attend(stack: &mut Stack, how: u8, now: u64) {
    let mut happenings = 0;
    while let Some(happening) = stack.next_happening() {
        happenings += 1;
        assert!(happenings <= RUNS, "something happens without end");
        let (Happening::Accepted(id) | Happening::Opened(id) | Happening::Data(id) | Happening::Room(id)) = happening else { continue };
        stack.receive(id, &mut |piece| piece.len());
        // As much as there is room for, once: more would be asked for without end.
        let mut left = 16_384;
        stack.send(id, &mut |room| {
            let count = room.len().min(left);
            left -= count;
            count
        });
        match how {
            0xf0..=0xf7 => stack.finish(id, now),
            0xf8..=0xfb => stack.leave(id, now),
            0xfc..=0xfd => stack.desert(id, now),
            0xfe..=0xff => stack.abort(id),
            _ => {}
        }
    }
}

/// Frames into a stack: each piece is a kind, how much time passes before it, what its user does then, and a frame or a segment of a connection. What one frame leads to is bounded, and
/// whatever was said, the stack comes to rest in the end.
pub fn stack(data: &[u8]) {
    let addresses = vec![(ADDRESS.into(), 24), (ADDRESS6.into(), 64)];
    let config = Config {
        addresses,
        mtu: 1500,
        checksums: false,
        buffer: 16_384,
        connections: 4,
        half_open: 8,
        lingering: 8,
        ..Config::new(MAC, 1)
    };
    let mut stack = Stack::new(config, 0);
    let (mut wire, mut now) = (Wire::default(), 0);
    let go_on = |stack: &mut Stack, wire: &mut Wire, how, now: u64| {
        let mut runs = 0;
        while {
            attend(stack, how, now);
            stack.run(now, wire);
            attend(stack, how, now);
            stack.deadline().is_some_and(|deadline| deadline <= now)
        } {
            runs += 1;
            assert!(runs <= RUNS, "the stack asks for the same moment again and again");
        }
    };
    for piece in pieces(data).take(PIECES) {
        let [kind, wait, how, rest @ ..] = piece else { continue };
        now += u64::from(*wait) * u64::from(*wait) * MS;
        wire.frames = 0;
        let frame = match kind % 2 {
            0 => [&MAC, rest.get(6..).unwrap_or(&[])].concat(),
            _ => segment(&wire, rest),
        };
        stack.take(&frame, now, &mut Door, &mut wire);
        go_on(&mut stack, &mut wire, *how, now);
        let counts = stack.counts();
        assert!(counts.connections <= 4 && counts.half_open <= 8, "{counts:?}");
    }
    // Nobody answers any more: retransmissions become rarer, and end.
    for _ in 0..PIECES {
        let Some(deadline) = stack.deadline() else { break };
        now = now.max(deadline);
        wire.frames = 0;
        go_on(&mut stack, &mut wire, 0, now);
    }
}

/// A station whose frames are the fuzzer's; once all were taken the gateway is told to stop.
struct Card<'a> {
    frames: Box<dyn Iterator<Item = &'a [u8]> + 'a>,
    wire: Wire,
    handle: Handle,
}

impl Outlet for Card<'_> {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.wire.room(length)
    }

    fn commit(&mut self, length: usize) {
        self.wire.commit(length);
    }
}

impl Station for Card<'_> {
    type Frame = Vec<u8>;

    fn receive(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.next().map(|frame| [&MAC, frame.get(6..).unwrap_or(&[])].concat());
        if frame.is_none() {
            self.handle.stop();
        }
        frame
    }

    fn flush(&mut self) {}
}

/// Frames of a cell to a gateway that leads nowhere but to resolvers of which it has none: so nothing leaves this process.
pub fn gateway(data: &[u8]) {
    let rules = ["dns"].map(|rule| rule.parse().expect("a rule"));
    let gateway = Gateway::bind(&[], rules.into(), Vec::new(), 800).expect("the host has descriptors");
    let inside = Inside {
        mac: MAC,
        address4: ADDRESS,
        prefix4: 16,
        address6: ADDRESS6,
        prefix6: 64,
        mtu: 1500,
        cell: PEER_ADDRESS,
        leases: |mac| (mac == PEER).then_some(PEER_ADDRESS),
        seed: 1,
    };
    let card = Card { frames: Box::new(pieces(data).take(PIECES)), wire: Wire::default(), handle: gateway.handle() };
    let report = gateway.run(&inside, card, |_| ()).expect("the host lets it wait");
    assert_eq!(report.counts.carried, pando_gateway::Counts::default().carried, "a connection of the host's");
}
