// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ethernet frames: into the stack, with a peer that violates TCP, and into a gateway.

use crate::pieces;
use pando_gateway::{Gateway, GatewayAddresses, Handle};
use pando_stack::{Config, DatagramVerdict, FramePort, Listeners, SocketEvent, Stack, Tuple, TxSink, Verdict};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The card of the stack or the gateway, and its peer.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const ADDRESS6: Ipv6Addr = Ipv6Addr::new(0xfd70, 0, 0, 0, 0, 0, 0, 1);
/// The port at which the stack accepts all connections.
const PORT: u16 = 80;
/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// The maximum number of pieces used from the input: each may be a frame and some time.
const PIECES: usize = 256;
/// The maximum number of frames that one received frame may cause: full buffers of all connections in segments of one byte,
/// and answers.
const FRAMES: u64 = 4 * 16_384 * 2;
/// The maximum number of times that a stack may ask to be run again at the same moment.
const RUNS: u32 = 1000;
/// The TCP flags FIN and SYN.
const FIN: u8 = 1;
const SYN: u8 = 2;

/// The sink of the stack's frames, which always has room, like a peer that receives everything.
#[derive(Default)]
struct FrameSink {
    room: Vec<u8>,
    /// Frames sent since the last received one.
    frames: u64,
    /// The next sequence number of the stack on its last connection, and the one that it expects.
    next: [u32; 2],
}

impl FrameSink {
    /// Records the sequence numbers of a TCP segment over IPv4.
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

impl TxSink for FrameSink {
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

/// Accepts all connections at [`PORT`].
struct TestListeners;

impl Listeners for TestListeners {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        if tuple.local.port() == PORT { Verdict::Admit } else { Verdict::Ignore }
    }

    fn accepts_datagram(&mut self, local: SocketAddr, _: SocketAddr) -> DatagramVerdict {
        if local.port() == PORT { DatagramVerdict::Accepted } else { DatagramVerdict::Closed }
    }
}

/// A TCP segment from the peer. `said` has its sequence numbers (relative to those that the stack expects), flags, window,
/// port and payload, as fuzzed.
fn segment(wire: &FrameSink, said: &[u8]) -> Vec<u8> {
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

/// Acts as a user of the stack, with fuzzed actions.
fn attend(stack: &mut Stack, how: u8, now: u64) {
    let mut events = 0;
    while let Some(event) = stack.next_event() {
        events += 1;
        assert!(events <= RUNS, "something happens without end");
        let (SocketEvent::Accepted(id) | SocketEvent::Opened(id) | SocketEvent::Readable(id) | SocketEvent::Writable(id)) = event else {
            continue;
        };
        stack.receive(id, &mut |piece| piece.len());
        // Sends until the buffer is full, but only once: there is always more room later.
        let mut left = 16_384;
        stack.send(id, &mut |room| {
            let count = room.len().min(left);
            left -= count;
            count
        });
        match how {
            0xf0..=0xf7 => stack.finish(id, now),
            0xf8..=0xfb => stack.release(id, now),
            0xfc..=0xfd => stack.orphan(id, now),
            0xfe..=0xff => stack.abort(id),
            _ => {}
        }
    }
}

/// Frames into a stack: each piece is a kind, the time that passes before it, a user action, and a frame or a segment of a
/// connection. The effect of one frame is bounded, and after any input the stack becomes idle in the end.
pub fn stack(data: &[u8]) {
    let addresses = vec![(ADDRESS.into(), 24), (ADDRESS6.into(), 64)];
    let config = Config {
        addresses,
        mtu: 1500,
        checksums: false,
        buffer: 16_384,
        connections: 4,
        half_open: 8,
        time_wait: 8,
        ..Config::new(MAC, 1)
    };
    let mut stack = Stack::new(config, 0);
    let (mut wire, mut now) = (FrameSink::default(), 0);
    let go_on = |stack: &mut Stack, wire: &mut FrameSink, how, now: u64| {
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
        stack.receive_frame(&frame, now, &mut TestListeners, &mut wire);
        go_on(&mut stack, &mut wire, *how, now);
        let counts = stack.counts();
        assert!(counts.connections <= 4 && counts.half_open <= 8, "{counts:?}");
    }
    // The peer no longer answers: retransmissions become rarer, and end.
    for _ in 0..PIECES {
        let Some(deadline) = stack.deadline() else { break };
        now = now.max(deadline);
        wire.frames = 0;
        go_on(&mut stack, &mut wire, 0, now);
    }
}

/// A host port with fuzzed frames; after the last one the gateway is stopped.
struct Card<'a> {
    frames: Box<dyn Iterator<Item = &'a [u8]> + 'a>,
    wire: FrameSink,
    handle: Handle,
}

impl TxSink for Card<'_> {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.wire.room(length)
    }

    fn commit(&mut self, length: usize) {
        self.wire.commit(length);
    }
}

impl FramePort for Card<'_> {
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

/// Frames of a cell to a gateway that only allows DNS and has no resolvers: so nothing leaves this process.
pub fn gateway(data: &[u8]) {
    let rules = ["dns"].map(|rule| rule.parse().expect("a rule"));
    let gateway = Gateway::bind(&[], rules.into(), Vec::new(), 800).expect("the host has descriptors");
    let inside = GatewayAddresses {
        mac: MAC,
        address4: ADDRESS,
        prefix4: 16,
        address6: ADDRESS6,
        prefix6: 64,
        mtu: 1500,
        cell: PEER_ADDRESS,
        dhcp_address: |mac| (mac == PEER).then_some(PEER_ADDRESS),
        seed: 1,
    };
    let card = Card { frames: Box::new(pieces(data).take(PIECES)), wire: FrameSink::default(), handle: gateway.handle() };
    let report = gateway.run(&inside, card, |_| ()).expect("the host lets it wait");
    assert_eq!(report.counts.tcp, pando_gateway::Counts::default().tcp, "a connection of the host's");
}
