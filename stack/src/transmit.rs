// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transmission that no received frame triggers: data of connections, due work, and address resolution.

use core::net::IpAddr;

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol, Icmpv6Packet, Icmpv6Repr, IpProtocol, IpRepr, NdiscRepr,
};

use crate::connection_state::ConnectionState;
use crate::icmp_arp::UnreachableReport;
use crate::neighbours::{QueuedTraffic, Task};
use crate::packet::{Mac, MacPair, Packet};
use crate::smoltcp_device::TxSummary;
use crate::{ConnectionId, Failure, Stack, TxSink, Unreachable, limits, network, socket_events};

impl Stack {
    /// Transmits all pending data as far as the tx sink has room, and does all due work. Returns whether nothing is left to send.
    pub fn run(&mut self, now: u64, sink: &mut dyn TxSink) -> bool {
        self.time_wait.expire(now);
        while let Some(id) = self.timer_queue.take_due(now) {
            self.queue_for_tx(id);
        }
        // Each connection with data has its turn. Those with more than one turn's data come again, up to a limit.
        for _ in 0..limits::TURNS_PER_RUN {
            for _ in 0..self.tx_ready.len() {
                let Some(id) = self.tx_ready.pop_front() else { break };
                if self.send_queued(id, now, sink) {
                    return false;
                }
            }
        }
        while let Some((tuple, mac, answer)) = self.syn_backlog.take_due(now) {
            if !self.send_segment(&tuple, &answer, mac, sink) {
                self.syn_backlog.put_back(&tuple, now);
                return false;
            }
        }
        while let Some(task) = self.neighbours.take_due(now) {
            match task {
                Task::Solicit(address) => self.solicit(address, sink),
                Task::GiveUp(waiting) => self.give_up(waiting),
            }
        }
        self.tx_ready.is_empty()
    }

    /// Transmits for a connection. Returns whether the tx sink ran out of room.
    fn send_queued(&mut self, id: ConnectionId, now: u64, sink: &mut dyn TxSink) -> bool {
        // The user's calls may have changed the timers.
        self.update(id, now);
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.is_tx_ready = false;
        if connection.state == ConnectionState::Closed {
            return false;
        }
        if !connection.state.is_closed() && connection.is_timed_out(now) {
            self.fail(id, Failure::TimedOut);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let Some(next_hop) = self.network.next_hop(connection.tuple.remote.ip()) else { return false };
        let Some(to) = self.neighbours.find(next_hop, now) else {
            self.neighbours.wait(next_hop, id, now);
            self.timer_queue.set(id, Some(now.saturating_add(limits::SOLICITATION_INTERVAL)));
            return false;
        };
        let ends = MacPair { from: self.network.mac, to };
        let mut transmitter = connection.transmitter(&self.capabilities, sink, ends);
        for turn in 1..=limits::FRAMES_PER_TURN {
            connection.send_queued(&mut self.interface, &mut transmitter, now);
            if transmitter.tx.frames < turn {
                break;
            }
        }
        let tx = transmitter.tx;
        self.counts.polls += 1;
        self.counts.sent += tx.frames as u64;
        self.counts.retransmitted += tx.retransmitted;
        connection.tx = tx;
        if connection.socket().local_endpoint().is_none() {
            connection.state.reset_done();
        }
        self.update(id, now);
        self.close_if_done(id);
        self.schedule(id, now, tx);
        tx.is_out_of_room
    }

    /// Sets the time of a connection's next poll.
    pub(crate) fn schedule(&mut self, id: ConnectionId, now: u64, tx: TxSummary) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state == ConnectionState::Closed {
            return self.timer_queue.set(id, None);
        }
        let next = connection.deadline(&mut self.interface, now);
        if tx.is_out_of_room || (tx.frames > 0 && next.is_some_and(|moment| moment <= now)) {
            connection.is_tx_ready = true;
            if tx.is_out_of_room {
                self.tx_ready.push_front(id)
            } else {
                self.tx_ready.push_back(id)
            }
            return self.timer_queue.set(id, None);
        }
        // A connection that is due at once and then sends nothing is polled again only after an interval.
        self.timer_queue.set(id, next.map(|moment| if moment <= now { now.saturating_add(limits::MIN_POLL_INTERVAL) } else { moment }));
    }

    /// Ends a connection that cannot go on.
    pub(crate) fn fail(&mut self, id: ConnectionId, failure: Failure) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.failure = failure;
        connection.abort();
        self.events.add(id, connection, socket_events::FAILED);
        self.detach(id);
        self.close_if_done(id);
    }

    /// Fails all that waited for a neighbour that does not answer.
    fn give_up(&mut self, waiting: QueuedTraffic) {
        for id in waiting.connections {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            match connection.state {
                ConnectionState::Opening | ConnectionState::OpeningFinished => self.fail(id, Failure::Unreachable(Unreachable::Host)),
                ConnectionState::Open | ConnectionState::Finishing => {}
                ConnectionState::Resetting | ConnectionState::Closed => {
                    connection.state.reset_done();
                    self.close_if_done(id);
                }
            }
        }
        for packet in waiting.packets {
            let Some(source) = sender(&packet) else { continue };
            self.process_unreachable(&packet, UnreachableReport::own(source));
        }
    }

    /// Resumes the connections and packets that waited for a neighbour.
    pub(crate) fn resume_waiting(&mut self, waiting: QueuedTraffic, to: Mac, sink: &mut dyn TxSink) {
        for id in waiting.connections {
            self.queue_for_tx(id);
        }
        for packet in waiting.packets {
            let kind = if packet.first().is_some_and(|byte| byte >> 4 == 6) { EthernetProtocol::Ipv6 } else { EthernetProtocol::Ipv4 };
            let is_sent = MacPair { from: self.network.mac, to }.frame(sink, kind, packet.len(), |room| room.copy_from_slice(&packet));
            self.counts.sent += u64::from(is_sent);
        }
    }

    /// Sends a neighbour request to all hosts. One without room is sent again later.
    fn solicit(&mut self, address: IpAddr, sink: &mut dyn TxSink) {
        let Some(source) = self.network.address_for(address) else { return };
        let from = self.network.mac;
        let is_sent = match (address, source) {
            (IpAddr::V4(address), IpAddr::V4(source)) => {
                let request = ArpRepr::EthernetIpv4 {
                    operation: ArpOperation::Request,
                    source_hardware_addr: EthernetAddress(from),
                    source_protocol_addr: source,
                    target_hardware_addr: EthernetAddress([0; 6]),
                    target_protocol_addr: address,
                };
                MacPair { from, to: [0xff; 6] }.frame(sink, EthernetProtocol::Arp, request.buffer_len(), |room| {
                    request.emit(&mut ArpPacket::new_unchecked(room));
                })
            }
            (IpAddr::V6(address), IpAddr::V6(_)) => {
                let group = network::solicited(address);
                let request = NdiscRepr::NeighborSolicit { target_addr: address, lladdr: Some(EthernetAddress(from).into()) };
                let to = self.network.group_mac(group.into()).unwrap_or([0xff; 6]);
                self.send_icmp6(source, group.into(), &Icmpv6Repr::Ndisc(request), 255, to, sink)
            }
            _ => false,
        };
        self.counts.sent += u64::from(is_sent);
    }

    /// Sends an ICMPv6 message. Returns whether there was room.
    pub(crate) fn send_icmp6(&self, from: IpAddr, remote: IpAddr, what: &Icmpv6Repr, hops: u8, to: Mac, sink: &mut dyn TxSink) -> bool {
        let header = IpRepr::new(from.into(), remote.into(), IpProtocol::Icmpv6, what.buffer_len(), hops);
        let checksums = &self.capabilities.checksum;
        let (IpAddr::V6(from), IpAddr::V6(remote)) = (from, remote) else { return false };
        MacPair { from: self.network.mac, to }.packet(sink, &header, checksums, |room| {
            what.emit(&from, &remote, &mut Icmpv6Packet::new_unchecked(room), checksums);
        })
    }
}

/// The source address of a packet that this stack has composed.
fn sender(packet: &[u8]) -> Option<IpAddr> {
    Packet::v4(packet, false).or_else(|| Packet::v6(packet)).map(|packet| packet.source)
}
