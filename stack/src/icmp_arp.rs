// SPDX-License-Identifier: MIT OR Apache-2.0
//! ARP and ICMP of both versions: address resolution, echoes and unreachable messages.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol, Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4Repr,
    Icmpv6DstUnreachable, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, IpProtocol, IpRepr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr, RawHardwareAddress, TcpPacket, TcpRepr,
};

use crate::network::Recipients;
use crate::packet::{Mac, MacPair, Packet, compose};
use crate::receive::Context;
use crate::{Error, Failure, IcmpError, IcmpMessage, SocketEvent, Stack, Tuple, TxSink, Unreachable};

/// Bytes of an undeliverable packet that an ICMP error quotes: as much as fits into the minimum MTU of 576 or 1280.
const QUOTED4: usize = 576 - 20 - 8 - 20;
const QUOTED6: usize = 1280 - 40 - 8 - 40;

/// An error about a packet that did not arrive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnreachableReport {
    pub(crate) unreachable: Unreachable,
    /// The sender of the error.
    pub(crate) from: IpAddr,
    /// Type and code of ICMP.
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) mtu: u32,
}

impl UnreachableReport {
    /// The error of the stack itself when no neighbour answers.
    pub(crate) const fn own(own: IpAddr) -> Self {
        let (kind, code) = match own {
            IpAddr::V4(_) => (3, 1),
            IpAddr::V6(_) => (1, 3),
        };
        Self { unreachable: Unreachable::Host, from: own, kind, code, mtu: 0 }
    }
}

impl Stack {
    pub(crate) fn process_arp(&mut self, bytes: &[u8], from: Mac, now: u64, sink: &mut dyn TxSink) -> Option<()> {
        let ArpRepr::EthernetIpv4 { operation, source_hardware_addr, source_protocol_addr, target_protocol_addr, .. } =
            ArpRepr::parse(&ArpPacket::new_checked(bytes).ok()?).ok()?
        else {
            return None;
        };
        let is_valid = source_hardware_addr == EthernetAddress(from)
            && self.network.is_valid_source(source_protocol_addr.into())
            && self.network.is_on_link(source_protocol_addr.into())
            && self.network.is_own(target_protocol_addr.into());
        if !is_valid {
            return None;
        }
        let waiting = self.neighbours.learn(source_protocol_addr.into(), from, now);
        if operation == ArpOperation::Request {
            let reply = ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Reply,
                source_hardware_addr: EthernetAddress(self.network.mac),
                source_protocol_addr: target_protocol_addr,
                target_hardware_addr: source_hardware_addr,
                target_protocol_addr: source_protocol_addr,
            };
            let ends = MacPair { from: self.network.mac, to: from };
            let is_sent = ends.frame(sink, EthernetProtocol::Arp, reply.buffer_len(), |room| {
                reply.emit(&mut ArpPacket::new_unchecked(room));
            });
            self.counts.sent += u64::from(is_sent);
        }
        self.resume_waiting(waiting, from, sink);
        Some(())
    }

    pub(crate) fn process_icmp4(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let message = Icmpv4Packet::new_checked(packet.payload).ok()?;
        let (unreachable, quoted) = match message.msg_type() {
            Icmpv4Message::EchoRequest if self.network.is_own(packet.destination) => {
                let Icmpv4Repr::EchoRequest { ident, seq_no, data } = Icmpv4Repr::parse(&message, &self.capabilities.checksum).ok()? else {
                    return None;
                };
                let reply = Icmpv4Repr::EchoReply { ident, seq_no, data };
                self.send_icmp4(packet.destination, packet.source, &reply, 64, context.from, context.sink);
                return Some(());
            }
            Icmpv4Message::EchoRequest => return self.process_echo_request(packet, context),
            Icmpv4Message::DstUnreachable => (unreachable4(message.msg_code()), message.data()),
            Icmpv4Message::TimeExceeded => (Unreachable::TimeExceeded, message.data()),
            _ => return None,
        };
        // The lower half of the second word of the ICMP header (RFC 1191).
        let mtu = packet
            .payload
            .get(6..8)
            .filter(|_| unreachable == Unreachable::PacketTooBig)
            .map_or(0, |mtu| u32::from(mtu[0]) << 8 | u32::from(mtu[1]));
        let (kind, code) = (message.msg_type().into(), message.msg_code());
        self.process_unreachable(quoted, UnreachableReport { unreachable, from: packet.source, kind, code, mtu })
    }

    pub(crate) fn process_icmp6(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (packet.source, packet.destination) else { return None };
        let message = Icmpv6Packet::new_checked(packet.payload).ok()?;
        let (unreachable, quoted) = match message.msg_type() {
            Icmpv6Message::EchoRequest | Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert => {
                return match Icmpv6Repr::parse(&source, &destination, &message, &self.capabilities.checksum).ok()? {
                    Icmpv6Repr::EchoRequest { ident, seq_no, data } if self.network.is_own(packet.destination) => {
                        let reply = Icmpv6Repr::EchoReply { ident, seq_no, data };
                        let is_sent = self.send_icmp6(packet.destination, packet.source, &reply, 64, context.from, context.sink);
                        self.counts.sent += u64::from(is_sent);
                        Some(())
                    }
                    Icmpv6Repr::EchoRequest { .. } => self.process_echo_request(packet, context),
                    Icmpv6Repr::Ndisc(message) => self.process_neighbour(packet, &message, context),
                    _ => None,
                };
            }
            Icmpv6Message::DstUnreachable => (unreachable6(message.msg_code()), message.payload()),
            Icmpv6Message::PktTooBig => (Unreachable::PacketTooBig, message.payload()),
            Icmpv6Message::TimeExceeded => (Unreachable::TimeExceeded, message.payload()),
            Icmpv6Message::ParamProblem => (Unreachable::Port, message.payload()),
            _ => return None,
        };
        let mtu = packet.payload.get(4..8).filter(|_| unreachable == Unreachable::PacketTooBig).and_then(|mtu| mtu.first_chunk().copied());
        let (kind, code) = (message.msg_type().into(), message.msg_code());
        self.process_unreachable(
            quoted,
            UnreachableReport { unreachable, from: packet.source, kind, code, mtu: mtu.map_or(0, u32::from_be_bytes) },
        )
    }

    /// Receives an echo request for an address that is not this stack's own.
    fn process_echo_request(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let identifier = packet.payload.get(4..6).filter(|_| context.recipients == Recipients::Own)?;
        let remote = SocketAddr::new(packet.source, u16::from_be_bytes([identifier[0], identifier[1]]));
        match context.listeners.accepts_echo(packet.destination, remote) {
            Ok(()) => {
                let (local, remote, hops) = (packet.destination, packet.source, packet.hops);
                self.events.post(SocketEvent::Message(IcmpMessage { local, remote, bytes: Vec::from(packet.payload), hops }));
            }
            Err(unreachable) => self.send_error(packet, unreachable, context.from, context.sink),
        }
        Some(())
    }

    /// Receives a neighbour solicitation or advertisement. A hop limit of 255 proves that the sender is on the link.
    fn process_neighbour(&mut self, packet: &Packet, message: &NdiscRepr, context: &mut Context) -> Option<()> {
        let is_from = |lladdr: Option<RawHardwareAddress>| lladdr.is_none_or(|address| address.as_bytes() == context.from);
        if packet.hops != 255 || !self.network.is_on_link(packet.source) {
            return None;
        }
        match *message {
            NdiscRepr::NeighborSolicit { target_addr, lladdr } if is_from(lladdr) && self.network.is_own(target_addr.into()) => {
                let waiting = self.neighbours.learn(packet.source, context.from, context.now);
                let reply = NdiscRepr::NeighborAdvert {
                    flags: NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE,
                    target_addr,
                    lladdr: Some(EthernetAddress(self.network.mac).into()),
                };
                let is_sent =
                    self.send_icmp6(target_addr.into(), packet.source, &Icmpv6Repr::Ndisc(reply), 255, context.from, context.sink);
                self.counts.sent += u64::from(is_sent);
                self.resume_waiting(waiting, context.from, context.sink);
                Some(())
            }
            NdiscRepr::NeighborAdvert { target_addr, lladdr, .. }
                if is_from(lladdr) && self.network.is_valid_source(target_addr.into()) =>
            {
                if !self.neighbours.is_known(target_addr.into()) {
                    return None;
                }
                let waiting = self.neighbours.learn(target_addr.into(), context.from, context.now);
                self.resume_waiting(waiting, context.from, context.sink);
                Some(())
            }
            _ => None,
        }
    }

    /// Receives an ICMP error about the packet that begins with `quoted`, whose end may be cut off.
    pub(crate) fn process_unreachable(&mut self, quoted: &[u8], report: UnreachableReport) -> Option<()> {
        let UnreachableReport { unreachable, from, kind, code, mtu } = report;
        let (protocol, local, remote, payload): (_, IpAddr, IpAddr, _) = match quoted.first()? >> 4 {
            4 if quoted.len() >= 20 => {
                let header = Ipv4Packet::new_unchecked(quoted);
                let payload = quoted.get(usize::from(header.header_len()).max(20)..)?;
                (header.next_header(), header.src_addr().into(), header.dst_addr().into(), payload)
            }
            6 if quoted.len() >= 40 => {
                let header = Ipv6Packet::new_unchecked(quoted);
                (header.next_header(), header.src_addr().into(), header.dst_addr().into(), &quoted[40..])
            }
            _ => return None,
        };
        self.network.recipients(local)?;
        let port = |at: usize| payload.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let (source, destination) = match protocol {
            IpProtocol::Tcp | IpProtocol::Udp => (port(0)?, port(2)?),
            IpProtocol::Icmp | IpProtocol::Icmpv6 => (0, 0),
            _ => return None,
        };
        let tuple = Tuple { local: SocketAddr::new(local, source), remote: SocketAddr::new(remote, destination) };
        if protocol != IpProtocol::Tcp {
            let Tuple { local, remote } = tuple;
            self.events.post(SocketEvent::Unreachable(IcmpError {
                local,
                remote,
                unreachable,
                from,
                kind,
                code,
                mtu,
                quoted: Vec::from(payload),
            }));
            return Some(());
        }
        // An open connection goes on: the error may be temporary, and any host can forge one.
        let id = *self.tuples.get(&tuple)?;
        if self.connections.get(&id)?.state.is_opening() && unreachable != Unreachable::PacketTooBig {
            self.fail(id, Failure::Unreachable(unreachable));
        }
        Some(())
    }

    /// Sends an unreachable message for a packet, if it was for this stack alone.
    pub(crate) fn send_unreachable(&mut self, packet: &Packet, unreachable: Unreachable, context: &mut Context) -> Option<()> {
        if context.recipients == Recipients::Own {
            self.send_error(packet, unreachable, context.from, context.sink);
        }
        Some(())
    }

    /// Sends an unreachable message for a connection request.
    pub(crate) fn send_unreachable_to(&mut self, tuple: &Tuple, syn: &TcpRepr, unreachable: Unreachable, to: Mac, sink: &mut dyn TxSink) {
        let (source, destination) = (tuple.remote.ip(), tuple.local.ip());
        let header = IpRepr::new(source.into(), destination.into(), IpProtocol::Tcp, syn.buffer_len(), 64);
        let checksums = &self.capabilities.checksum;
        let bytes = compose(&header, checksums, |room| {
            syn.emit(&mut TcpPacket::new_unchecked(room), &source.into(), &destination.into(), checksums);
        });
        if let Some(packet) = Packet::v4(&bytes, false).or_else(|| Packet::v6(&bytes)) {
            self.send_error(&packet, unreachable, to, sink);
        }
    }

    fn send_error(&mut self, packet: &Packet, unreachable: Unreachable, to: Mac, sink: &mut dyn TxSink) {
        let quoted = |most: usize| &packet.payload[..packet.payload.len().min(most)];
        match (packet.source, packet.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4Repr {
                    src_addr: source,
                    dst_addr: destination,
                    next_header: packet.protocol,
                    payload_len: packet.payload.len(),
                    hop_limit: packet.hops,
                };
                let repr = Icmpv4Repr::DstUnreachable { reason: reason4(unreachable), header, data: quoted(QUOTED4) };
                self.send_icmp4(packet.destination, packet.source, &repr, 64, to, sink);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Repr {
                    src_addr: source,
                    dst_addr: destination,
                    next_header: packet.protocol,
                    payload_len: packet.payload.len(),
                    hop_limit: packet.hops,
                };
                let repr = Icmpv6Repr::DstUnreachable { reason: reason6(unreachable), header, data: quoted(QUOTED6) };
                let is_sent = self.send_icmp6(packet.destination, packet.source, &repr, 64, to, sink);
                self.counts.sent += u64::from(is_sent);
            }
            _ => {}
        }
    }

    /// Sends an ICMP message unchanged. If the link address of the next hop is unknown, the packet waits for address resolution.
    pub fn send_message(&mut self, message: &IcmpMessage, now: u64, sink: &mut dyn TxSink) -> Result<(), Error> {
        let IcmpMessage { local, remote, bytes, hops } = message;
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Unaddressable);
        }
        let protocol = if remote.is_ipv4() { IpProtocol::Icmp } else { IpProtocol::Icmpv6 };
        let header = IpRepr::new((*local).into(), (*remote).into(), protocol, bytes.len(), (*hops).max(1));
        self.send_packet(&header, now, sink, &mut |room| room.copy_from_slice(bytes))
    }

    fn send_icmp4(&mut self, from: IpAddr, remote: IpAddr, repr: &Icmpv4Repr, hops: u8, to: Mac, sink: &mut dyn TxSink) {
        let header = IpRepr::new(from.into(), remote.into(), IpProtocol::Icmp, repr.buffer_len(), hops);
        let checksums = &self.capabilities.checksum;
        let is_sent = MacPair { from: self.network.mac, to }.packet(sink, &header, checksums, |room| {
            repr.emit(&mut Icmpv4Packet::new_unchecked(room), checksums);
        });
        self.counts.sent += u64::from(is_sent);
    }
}

const fn unreachable4(code: u8) -> Unreachable {
    match code {
        0 | 5 | 6 | 11 => Unreachable::Network,
        2 | 3 => Unreachable::Port,
        4 => Unreachable::PacketTooBig,
        9 | 10 | 13 => Unreachable::AdminProhibited,
        _ => Unreachable::Host,
    }
}

const fn unreachable6(code: u8) -> Unreachable {
    match code {
        0 => Unreachable::Network,
        1 | 5 | 6 => Unreachable::AdminProhibited,
        4 => Unreachable::Port,
        _ => Unreachable::Host,
    }
}

const fn reason4(unreachable: Unreachable) -> Icmpv4DstUnreachable {
    match unreachable {
        Unreachable::Network | Unreachable::TimeExceeded => Icmpv4DstUnreachable::NetUnreachable,
        Unreachable::Host => Icmpv4DstUnreachable::HostUnreachable,
        Unreachable::Port => Icmpv4DstUnreachable::PortUnreachable,
        Unreachable::AdminProhibited => Icmpv4DstUnreachable::CommProhibited,
        Unreachable::PacketTooBig => Icmpv4DstUnreachable::FragRequired,
    }
}

const fn reason6(unreachable: Unreachable) -> Icmpv6DstUnreachable {
    match unreachable {
        Unreachable::Network | Unreachable::TimeExceeded => Icmpv6DstUnreachable::NoRoute,
        Unreachable::Host | Unreachable::PacketTooBig => Icmpv6DstUnreachable::AddrUnreachable,
        Unreachable::Port => Icmpv6DstUnreachable::PortUnreachable,
        Unreachable::AdminProhibited => Icmpv6DstUnreachable::AdminProhibit,
    }
}
