// SPDX-License-Identifier: MIT OR Apache-2.0
//! The SYN backlog: half-open connections, one to two KiB each, independent of the size of connections' buffers.
//!
//! smoltcp has no backlog and cannot resize a socket's buffers, so a half-open connection keeps no socket. Its SYN goes to a
//! temporary socket almost without buffers, whose SYN-ACK is sent with the window of a real one. When the peer acknowledges
//! the SYN-ACK, a real socket gets the same SYN. It draws the same random numbers, so it gives the same answer.

use alloc::collections::BTreeMap;

use smoltcp::iface::{Config, Interface};
use smoltcp::phy::{ChecksumCapabilities, DeviceCapabilities};
use smoltcp::wire::{HardwareAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr};

use crate::connection::{Connection, to_smoltcp_time};
use crate::packet::{HEADER, Mac, MacPair, Packet, compose};
use crate::segment::{parse_segment, window_scale, without_payload};
use crate::smoltcp_device::IdleDevice;
use crate::sockets::{SingleSocket, Sockets};
use crate::timer_queue::TimerQueue;
use crate::{Tuple, TxSink, limits};

/// A half-open connection.
#[derive(Debug, Clone)]
pub(crate) struct HalfOpen {
    /// The peer's SYN.
    pub(crate) syn: TcpRepr<'static>,
    /// The SYN-ACK.
    pub(crate) syn_ack: TcpRepr<'static>,
    /// The user has not decided yet.
    pub(crate) is_held: bool,
    /// The peer's Ethernet address.
    pub(crate) mac: Mac,
    /// The seed of its random numbers.
    seed: u64,
    /// The number of SYN-ACKs, and the time of the first.
    syn_acks: u32,
    first_syn_ack: u64,
    serial: u64,
    /// The size of its future buffers.
    buffer: usize,
}

/// How a connection request is accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcceptOptions {
    pub(crate) is_held: bool,
    pub(crate) seed: u64,
    pub(crate) buffer: usize,
}

#[derive(Debug)]
pub(crate) struct SynBacklog {
    all: BTreeMap<Tuple, HalfOpen>,
    /// By time of arrival.
    order: BTreeMap<u64, Tuple>,
    timer_queue: TimerQueue<Tuple>,
    serial: u64,
    bound: usize,
    /// Bytes of their future buffers.
    reserved: usize,
    capabilities: DeviceCapabilities,
}

impl SynBacklog {
    pub(crate) fn new(bound: usize, capabilities: DeviceCapabilities) -> Self {
        Self {
            all: BTreeMap::new(),
            order: BTreeMap::new(),
            timer_queue: TimerQueue::new(),
            serial: 0,
            bound: bound.max(1),
            reserved: 0,
            capabilities,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes of their future buffers.
    pub(crate) const fn reserved(&self) -> usize {
        self.reserved
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.timer_queue.next()
    }

    pub(crate) fn get(&self, tuple: &Tuple) -> Option<&HalfOpen> {
        self.all.get(tuple)
    }

    /// Adds a connection request. Returns whether another was dropped for it; `None` if the SYN is invalid.
    pub(crate) fn add(&mut self, tuple: Tuple, syn: TcpRepr<'static>, mac: Mac, options: AcceptOptions, now: u64) -> Option<bool> {
        let AcceptOptions { is_held, seed, buffer } = options;
        self.remove(&tuple);
        let mut syn_ack = self.replay(tuple, &syn, seed, SingleSocket::new(1), now).1?;
        syn_ack.window_len = u16::try_from(buffer).unwrap_or(u16::MAX);
        syn_ack.window_scale = syn.window_scale.map(|_| window_scale(buffer));
        let is_full = self.all.len() >= self.bound;
        if is_full && let Some(oldest) = self.order.first_key_value().map(|(_, oldest)| *oldest) {
            self.remove(&oldest);
        }
        self.reserved += 2 * buffer;
        self.serial += 1;
        let serial = self.serial;
        self.order.insert(serial, tuple);
        self.timer_queue.set(tuple, Some(if is_held { now.saturating_add(limits::HOLD_TIMEOUT) } else { now }));
        self.all.insert(tuple, HalfOpen { syn, syn_ack, is_held, mac, seed, syn_acks: 0, first_syn_ack: now, serial, buffer });
        Some(is_full)
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) -> Option<HalfOpen> {
        let half_open = self.all.remove(tuple)?;
        self.order.remove(&half_open.serial);
        self.reserved -= 2 * half_open.buffer;
        self.timer_queue.set(*tuple, None);
        Some(half_open)
    }

    /// Schedules the SYN-ACK of a held request. Returns whether it is still there.
    pub(crate) fn admit(&mut self, tuple: &Tuple, now: u64) -> bool {
        let Some(half_open) = self.all.get_mut(tuple) else { return false };
        half_open.is_held = false;
        self.timer_queue.set(*tuple, Some(now));
        true
    }

    /// Schedules another SYN-ACK, because the SYN was retransmitted.
    pub(crate) fn resend_syn_ack(&mut self, tuple: &Tuple, now: u64) {
        if self.all.get(tuple).is_some_and(|half_open| !half_open.is_held) {
            self.timer_queue.set(*tuple, Some(now));
        }
    }

    /// Returns the next due SYN-ACK, and drops expired requests.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<(Tuple, Mac, TcpRepr<'static>)> {
        loop {
            let tuple = self.timer_queue.take_due(now)?;
            let Some(half_open) = self.all.get_mut(&tuple).filter(|half_open| !half_open.is_held && half_open.syn_acks < limits::SYN_ACKS)
            else {
                self.remove(&tuple);
                continue;
            };
            if half_open.syn_acks == 0 {
                half_open.first_syn_ack = now;
            }
            let pause = limits::SYN_ACK_INTERVAL << half_open.syn_acks;
            half_open.syn_acks += 1;
            self.timer_queue.set(tuple, Some(now.saturating_add(pause)));
            return Some((tuple, half_open.mac, half_open.syn_ack));
        }
    }

    /// Reschedules a SYN-ACK that could not be sent for lack of room.
    pub(crate) fn put_back(&mut self, tuple: &Tuple, now: u64) {
        if let Some(half_open) = self.all.get_mut(tuple) {
            half_open.syn_acks -= 1;
            self.timer_queue.set(*tuple, Some(now));
        }
    }

    /// Makes a connection of a completed handshake. Returns it, and whether its SYN-ACK equals the one that was sent.
    pub(crate) fn open(&mut self, tuple: &Tuple, sockets: &mut Sockets, now: u64) -> Option<(Connection, bool)> {
        let half_open = self.remove(tuple)?;
        // Only a SYN-ACK that was sent once gives a valid RTT.
        let first_syn_ack = if half_open.syn_acks == 1 { half_open.first_syn_ack } else { now };
        let (connection, syn_ack) = self.replay(*tuple, &half_open.syn, half_open.seed, sockets.make(half_open.buffer), first_syn_ack);
        Some((connection, syn_ack == Some(half_open.syn_ack)))
    }

    /// Passes a SYN to a new socket, and returns its SYN-ACK too.
    fn replay(
        &self,
        tuple: Tuple,
        syn: &TcpRepr<'static>,
        seed: u64,
        single: SingleSocket,
        now: u64,
    ) -> (Connection, Option<TcpRepr<'static>>) {
        let mut connection = Connection::new(tuple, single, now);
        let header = IpRepr::new(tuple.remote.ip().into(), tuple.local.ip().into(), IpProtocol::Tcp, syn.buffer_len(), 64);
        let checksums = &self.capabilities.checksum;
        let bytes = compose(&header, checksums, |room| {
            syn.emit(&mut TcpPacket::new_unchecked(room), &tuple.remote.ip().into(), &tuple.local.ip().into(), checksums);
        });
        let listens = connection.socket_mut().listen(tuple.local).is_ok();
        let Some(packet) = Packet::v4(&bytes, false).or_else(|| Packet::v6(&bytes)).filter(|_| listens) else { return (connection, None) };

        let mut capture = SegmentCapture { bytes: [0; CAPTURE_SIZE], length: 0 };
        let ends = MacPair { from: [0; 6], to: [0; 6] };
        let mut transmitter = connection.transmitter(&self.capabilities, &mut capture, ends);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut IdleDevice(&self.capabilities), to_smoltcp_time(now));
        interface.set_any_ip(true);
        connection.process(&mut interface, &mut transmitter, &packet, syn, now);
        connection.send_queued(&mut interface, &mut transmitter, now);
        connection.tx = transmitter.tx;
        connection.update(now, &mut |_| {});
        let syn_ack = capture.segment(checksums);
        (connection, syn_ack)
    }
}

/// Longer than the headers of Ethernet, IPv6 and TCP with all options.
const CAPTURE_SIZE: usize = 256;

/// A buffer for the one packet that a new socket sends.
struct SegmentCapture {
    bytes: [u8; CAPTURE_SIZE],
    length: usize,
}

impl SegmentCapture {
    /// Parses the SYN-ACK.
    fn segment(&self, checksums: &ChecksumCapabilities) -> Option<TcpRepr<'static>> {
        let bytes = self.bytes[..self.length].get(HEADER..)?;
        let packet = Packet::v4(bytes, false).or_else(|| Packet::v6(bytes))?;
        let segment = parse_segment(&packet, checksums)?;
        (segment.control == TcpControl::Syn && segment.ack_number.is_some()).then(|| without_payload(&segment))
    }
}

impl TxSink for SegmentCapture {
    /// Ignores the requested length: only a short packet will be written.
    fn room(&mut self, _: usize) -> Option<&mut [u8]> {
        Some(&mut self.bytes)
    }

    fn commit(&mut self, length: usize) {
        self.length = length;
    }
}
