// SPDX-License-Identifier: MIT OR Apache-2.0
//! Received frames: address filtering, dispatch to a protocol, and lookup of the TCP connection. An answer goes back to the frame's sender.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr};

use crate::connection::Change;
use crate::connection_state::{ConnectionState, OpenMode};
use crate::network::Recipients;
use crate::packet::{Mac, MacPair, Packet};
use crate::segment::{empty_segment, parse_segment, without_payload};
use crate::smoltcp_device::TxSummary;
use crate::socket_events;
use crate::syn_backlog::AcceptOptions;
use crate::time_wait::LastSegment;
use crate::{ConnectionId, Failure, IcmpMessage, Listeners, SocketEvent, Stack, SynRefusal, Tuple, TxSink, Verdict};

/// The metadata of a received packet, and the means to answer it.
pub(crate) struct Context<'a> {
    pub(crate) now: u64,
    pub(crate) from: Mac,
    pub(crate) recipients: Recipients,
    pub(crate) listeners: &'a mut dyn Listeners,
    pub(crate) sink: &'a mut dyn TxSink,
}

impl Stack {
    /// Receives an Ethernet frame. Urgent answers are sent at once; [`Stack::run`] sends the rest.
    pub fn receive_frame(&mut self, frame: &[u8], now: u64, listeners: &mut dyn Listeners, sink: &mut dyn TxSink) {
        self.counts.received += 1;
        if self.process(frame, now, listeners, sink).is_none() {
            self.counts.ignored += 1;
        }
    }

    /// `None`: the frame is ignored.
    fn process(&mut self, frame: &[u8], now: u64, listeners: &mut dyn Listeners, sink: &mut dyn TxSink) -> Option<()> {
        let frame = EthernetFrame::new_checked(frame).ok()?;
        let EthernetAddress(from) = frame.src_addr();
        let is_own = frame.dst_addr() == EthernetAddress(self.network.mac);
        if !frame.src_addr().is_unicast() || !(is_own || frame.dst_addr().is_multicast() || frame.dst_addr().is_broadcast()) {
            return None;
        }
        let packet = match frame.ethertype() {
            EthernetProtocol::Arp => return self.process_arp(frame.payload(), from, now, sink),
            EthernetProtocol::Ipv4 => Packet::v4(frame.payload(), self.capabilities.checksum.ipv4.rx())?,
            EthernetProtocol::Ipv6 => Packet::v6(frame.payload())?,
            EthernetProtocol::Unknown(_) => return None,
        };
        let recipients = self.network.recipients(packet.destination)?;
        // Unicast packets in broadcast frames are ignored.
        if !self.network.is_valid_source(packet.source) || (recipients == Recipients::Own && !is_own) {
            return None;
        }
        if self.network.is_on_link(packet.source) {
            self.neighbours.confirm(packet.source, from, now);
        }
        if matches!(packet.protocol, IpProtocol::Icmp | IpProtocol::Icmpv6) && listeners.wants_icmp() {
            let (local, remote, hops) = (packet.destination, packet.source, packet.hops);
            self.events.post(SocketEvent::Message(IcmpMessage { local, remote, bytes: Vec::from(packet.payload), hops }));
        }
        let mut context = Context { now, from, recipients, listeners, sink };
        match (packet.protocol, packet.source) {
            (IpProtocol::Tcp, _) if recipients == Recipients::Own => self.process_segment(&packet, &mut context),
            (IpProtocol::Tcp, _) => None,
            (IpProtocol::Udp, _) => self.process_datagram(&packet, &mut context),
            (IpProtocol::Icmp, IpAddr::V4(_)) => self.process_icmp4(&packet, &mut context),
            (IpProtocol::Icmpv6, IpAddr::V6(_)) => self.process_icmp6(&packet, &mut context),
            _ if recipients == Recipients::Own => self.send_unreachable(&packet, crate::Unreachable::Port, &mut context),
            _ => None,
        }
    }

    fn process_segment(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let repr = parse_segment(packet, &self.capabilities.checksum)?;
        let tuple =
            Tuple { local: SocketAddr::new(packet.destination, repr.dst_port), remote: SocketAddr::new(packet.source, repr.src_port) };
        if let Some(&id) = self.tuples.get(&tuple) {
            self.process_connection(id, packet, &repr, context);
            return Some(());
        }
        let is_connection_request = repr.control == TcpControl::Syn && repr.ack_number.is_none();
        if self.syn_backlog.get(&tuple).is_some() {
            return self.process_half_open(&tuple, packet, &repr, context);
        }
        if let Some(last) = self.time_wait.get(&tuple, context.now) {
            let is_new = is_connection_request && (repr.seq_number > last.acknowledged || self.time_wait.may_reuse(&tuple, context.now));
            if !is_new {
                if repr.control != TcpControl::Rst && repr.segment_len() > 0 {
                    self.send_last_segment(&tuple, last, context.from, context.sink);
                    self.time_wait.add(tuple, last, context.now);
                }
                return Some(());
            }
            self.time_wait.remove(&tuple);
        }
        if is_connection_request {
            return self.process_syn(&tuple, &repr, context);
        }
        if repr.control != TcpControl::Rst {
            self.send_reset(&tuple, &repr, context.from, context.sink);
        }
        Some(())
    }

    /// Receives a connection request (SYN).
    fn process_syn(&mut self, tuple: &Tuple, syn: &TcpRepr, context: &mut Context) -> Option<()> {
        let is_held = match context.listeners.admits(tuple) {
            Verdict::Admit => false,
            Verdict::Hold => true,
            Verdict::Refuse(refusal) => {
                self.refuse_half_open(tuple, &without_payload(syn), context.from, refusal, context.sink);
                return Some(());
            }
            Verdict::Ignore => return Some(()),
        };
        let options = AcceptOptions { is_held, seed: self.random(), buffer: self.sockets.size(self.syn_backlog.reserved()) };
        let has_dropped = self.syn_backlog.add(*tuple, without_payload(syn), context.from, options, context.now)?;
        self.counts.half_open_dropped += u64::from(has_dropped);
        Some(())
    }

    fn process_half_open(&mut self, tuple: &Tuple, packet: &Packet, repr: &TcpRepr, context: &mut Context) -> Option<()> {
        let half_open = self.syn_backlog.get(tuple)?;
        let expected = half_open.syn.seq_number + 1;
        match (repr.control, repr.ack_number) {
            (TcpControl::Syn, None) if repr.seq_number == half_open.syn.seq_number => self.syn_backlog.resend_syn_ack(tuple, context.now),
            (TcpControl::Syn, None) => {
                self.syn_backlog.remove(tuple);
                return self.process_syn(tuple, repr, context);
            }
            (TcpControl::Rst, _) if repr.seq_number == expected => {
                self.syn_backlog.remove(tuple);
            }
            (TcpControl::None | TcpControl::Psh | TcpControl::Fin, Some(number))
                if !half_open.is_held && number == half_open.syn_ack.seq_number + 1 =>
            {
                // When the connection table is full, the peer retries.
                if !self.is_full() {
                    let (mut connection, is_same_syn_ack) = self.syn_backlog.open(tuple, &mut self.sockets, context.now)?;
                    connection.open_mode = OpenMode::Passive;
                    let id = self.insert(connection);
                    if is_same_syn_ack {
                        self.process_connection(id, packet, repr, context);
                    } else {
                        self.abort(id);
                    }
                }
            }
            (TcpControl::Rst, _) => {}
            _ => self.send_reset(tuple, repr, context.from, context.sink),
        }
        Some(())
    }

    /// Passes a segment to its connection.
    fn process_connection(&mut self, id: ConnectionId, packet: &Packet, segment: &TcpRepr, context: &mut Context) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let ends = MacPair { from: self.network.mac, to: context.from };
        let mut transmitter = connection.transmitter(&self.capabilities, context.sink, ends);
        connection.process(&mut self.interface, &mut transmitter, packet, segment, context.now);
        self.counts.polls += 1;
        self.counts.sent += transmitter.tx.frames as u64;
        connection.tx = transmitter.tx;
        let end = segment.seq_number + segment.segment_len();
        self.update(id, context.now);
        // Both have finished: the last acknowledgement remains, perhaps more than once.
        if let Some(connection) = self.connections.get(&id)
            && connection.state.is_closed()
            && connection.is_time_wait()
            && let Some(last) = connection.tx.last
        {
            let (tuple, last) = (connection.tuple, LastSegment { acknowledged: end, ..last });
            self.send_last_segment(&tuple, last, context.from, context.sink);
            self.time_wait.add(tuple, last, context.now);
        }
        self.close_if_done(id);
        if self.connections.get_mut(&id).is_some_and(|connection| connection.must_transmit(context.now)) {
            self.queue_for_tx(id);
        } else {
            self.schedule(id, context.now, TxSummary::default());
        }
    }

    /// Turns the changes of a connection into events.
    pub(crate) fn update(&mut self, id: ConnectionId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut bits = 0;
        let opened = match connection.open_mode {
            OpenMode::Passive => socket_events::ACCEPTED,
            OpenMode::Active => socket_events::OPENED,
        };
        connection.update(now, &mut |change| {
            bits |= match change {
                Change::Opened => opened,
                Change::Readable => socket_events::READABLE,
                Change::Writable => socket_events::WRITABLE,
                Change::Reset => socket_events::FAILED,
                Change::TimeWait | Change::Closed => 0,
            };
        });
        if bits != 0 {
            self.events.add(id, connection, bits);
        }
        if connection.state.is_closed() {
            self.detach(id);
        } else if connection.is_orphaned() && connection.socket().recv_queue() > 0 {
            // This data will never be read.
            self.fail(id, Failure::Reset);
        }
    }

    /// Reports that a connection is closed, or removes it if its id is released.
    pub(crate) fn close_if_done(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state != ConnectionState::Closed {
            return;
        }
        if connection.hold.is_released() {
            self.remove_connection(id);
        } else if connection.socket().recv_queue() == 0 || connection.is_orphaned() {
            self.events.add(id, connection, socket_events::CLOSED);
        }
    }

    /// Answers a connection request with a refusal.
    pub(crate) fn refuse_half_open(&mut self, tuple: &Tuple, syn: &TcpRepr, to: Mac, refusal: SynRefusal, sink: &mut dyn TxSink) {
        match refusal {
            SynRefusal::Reset => self.send_reset(tuple, syn, to, sink),
            SynRefusal::Unreachable(unreachable) => self.send_unreachable_to(tuple, syn, unreachable, to, sink),
        }
    }

    /// Answers a segment that belongs to no connection with a reset.
    fn send_reset(&mut self, tuple: &Tuple, segment: &TcpRepr, to: Mac, sink: &mut dyn TxSink) {
        let has_no_ack = segment.ack_number.is_none();
        let reset = TcpRepr {
            control: TcpControl::Rst,
            seq_number: segment.ack_number.unwrap_or_default(),
            ack_number: has_no_ack.then(|| segment.seq_number + segment.segment_len()),
            ..empty_segment(tuple)
        };
        self.send_segment(tuple, &reset, to, sink);
    }

    fn send_last_segment(&mut self, tuple: &Tuple, last: LastSegment, to: Mac, sink: &mut dyn TxSink) {
        let repr = TcpRepr { seq_number: last.sequence, ack_number: Some(last.acknowledged), ..empty_segment(tuple) };
        self.send_segment(tuple, &repr, to, sink);
    }

    /// Sends a segment outside any connection. Returns whether there was room.
    pub(crate) fn send_segment(&mut self, tuple: &Tuple, repr: &TcpRepr, to: Mac, sink: &mut dyn TxSink) -> bool {
        let (from, remote) = (tuple.local.ip().into(), tuple.remote.ip().into());
        let header = IpRepr::new(from, remote, IpProtocol::Tcp, repr.buffer_len(), 64);
        let checksums = &self.capabilities.checksum;
        let is_sent = MacPair { from: self.network.mac, to }.packet(sink, &header, checksums, |room| {
            repr.emit(&mut TcpPacket::new_unchecked(room), &from, &remote, checksums);
        });
        self.counts.sent += u64::from(is_sent);
        is_sent
    }

    /// A random number that peers cannot guess from the ones before.
    fn random(&mut self) -> u64 {
        // SplitMix64: a step, and a mix of it.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
