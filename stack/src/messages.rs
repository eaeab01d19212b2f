// SPDX-License-Identifier: MIT OR Apache-2.0
//! ARP, and ICMP of both versions: who has which address, echoes, and what could not be reached.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol, Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4Repr,
    Icmpv6DstUnreachable, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, IpProtocol, IpRepr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr, RawHardwareAddress, TcpPacket, TcpRepr,
};

use crate::connection::Stage;
use crate::hear::Context;
use crate::network::Audience;
use crate::packet::{Ends, Mac, Packet, compose};
use crate::{Error, Failure, Happening, Message, Notice, Obstacle, Outlet, Stack, Tuple};

/// Bytes of a packet that are sent back with the reason why it did not arrive: what fits into the shortest packets that every link carries.
const QUOTED4: usize = 576 - 20 - 8 - 20;
const QUOTED6: usize = 1280 - 40 - 8 - 40;

/// What is said of a packet that did not arrive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Complaint {
    pub(crate) obstacle: Obstacle,
    /// Who says so.
    pub(crate) from: IpAddr,
    /// ICMP's numbers of that.
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) mtu: u32,
}

impl Complaint {
    /// What a stack tells itself when no neighbour answers.
    pub(crate) const fn own(own: IpAddr) -> Self {
        let (kind, code) = match own {
            IpAddr::V4(_) => (3, 1),
            IpAddr::V6(_) => (1, 3),
        };
        Self { obstacle: Obstacle::Host, from: own, kind, code, mtu: 0 }
    }
}

impl Stack {
    pub(crate) fn hear_arp(&mut self, bytes: &[u8], from: Mac, now: u64, outlet: &mut dyn Outlet) -> Option<()> {
        let ArpRepr::EthernetIpv4 { operation, source_hardware_addr, source_protocol_addr, target_protocol_addr, .. } =
            ArpRepr::parse(&ArpPacket::new_checked(bytes).ok()?).ok()?
        else {
            return None;
        };
        let is_sound = source_hardware_addr == EthernetAddress(from)
            && self.network.is_sender(source_protocol_addr.into())
            && self.network.is_near(source_protocol_addr.into())
            && self.network.is_own(target_protocol_addr.into());
        if !is_sound {
            return None;
        }
        let waiting = self.neighbours.learn(source_protocol_addr.into(), from, now);
        if operation == ArpOperation::Request {
            let answer = ArpRepr::EthernetIpv4 {
                operation: ArpOperation::Reply,
                source_hardware_addr: EthernetAddress(self.network.mac),
                source_protocol_addr: target_protocol_addr,
                target_hardware_addr: source_hardware_addr,
                target_protocol_addr: source_protocol_addr,
            };
            let ends = Ends { from: self.network.mac, to: from };
            let is_said = ends.frame(outlet, EthernetProtocol::Arp, answer.buffer_len(), |room| {
                answer.emit(&mut ArpPacket::new_unchecked(room));
            });
            self.counts.sent += u64::from(is_said);
        }
        self.go_on(waiting, from, outlet);
        Some(())
    }

    pub(crate) fn hear_icmp4(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let message = Icmpv4Packet::new_checked(packet.payload).ok()?;
        let (obstacle, quoted) = match message.msg_type() {
            Icmpv4Message::EchoRequest if self.network.is_own(packet.destination) => {
                let Icmpv4Repr::EchoRequest { ident, seq_no, data } = Icmpv4Repr::parse(&message, &self.capabilities.checksum).ok()? else {
                    return None;
                };
                let answer = Icmpv4Repr::EchoReply { ident, seq_no, data };
                self.say_icmp4(packet.destination, packet.source, &answer, 64, context.from, context.outlet);
                return Some(());
            }
            Icmpv4Message::EchoRequest => return self.hear_question(packet, context),
            Icmpv4Message::DstUnreachable => (obstacle4(message.msg_code()), message.data()),
            Icmpv4Message::TimeExceeded => (Obstacle::TooFar, message.data()),
            _ => return None,
        };
        // The lower half of what stands before the packet (RFC 1191).
        let mtu =
            packet.payload.get(6..8).filter(|_| obstacle == Obstacle::TooLong).map_or(0, |mtu| u32::from(mtu[0]) << 8 | u32::from(mtu[1]));
        let (kind, code) = (message.msg_type().into(), message.msg_code());
        self.hear_obstacle(quoted, Complaint { obstacle, from: packet.source, kind, code, mtu })
    }

    pub(crate) fn hear_icmp6(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (packet.source, packet.destination) else { return None };
        let message = Icmpv6Packet::new_checked(packet.payload).ok()?;
        let (obstacle, quoted) = match message.msg_type() {
            Icmpv6Message::EchoRequest | Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert => {
                return match Icmpv6Repr::parse(&source, &destination, &message, &self.capabilities.checksum).ok()? {
                    Icmpv6Repr::EchoRequest { ident, seq_no, data } if self.network.is_own(packet.destination) => {
                        let answer = Icmpv6Repr::EchoReply { ident, seq_no, data };
                        let is_said = self.say_icmp6(packet.destination, packet.source, &answer, 64, context.from, context.outlet);
                        self.counts.sent += u64::from(is_said);
                        Some(())
                    }
                    Icmpv6Repr::EchoRequest { .. } => self.hear_question(packet, context),
                    Icmpv6Repr::Ndisc(talk) => self.hear_neighbour(packet, &talk, context),
                    _ => None,
                };
            }
            Icmpv6Message::DstUnreachable => (obstacle6(message.msg_code()), message.payload()),
            Icmpv6Message::PktTooBig => (Obstacle::TooLong, message.payload()),
            Icmpv6Message::TimeExceeded => (Obstacle::TooFar, message.payload()),
            Icmpv6Message::ParamProblem => (Obstacle::Port, message.payload()),
            _ => return None,
        };
        let mtu = packet.payload.get(4..8).filter(|_| obstacle == Obstacle::TooLong).and_then(|mtu| mtu.first_chunk().copied());
        let (kind, code) = (message.msg_type().into(), message.msg_code());
        self.hear_obstacle(quoted, Complaint { obstacle, from: packet.source, kind, code, mtu: mtu.map_or(0, u32::from_be_bytes) })
    }

    /// Somebody is asked for an echo who is not this stack, and is not beside it.
    fn hear_question(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let number = packet.payload.get(4..6).filter(|_| context.audience == Audience::Own)?;
        let remote = SocketAddr::new(packet.source, u16::from_be_bytes([number[0], number[1]]));
        match context.doorkeeper.asks(packet.destination, remote) {
            Ok(()) => {
                let (local, remote, hops) = (packet.destination, packet.source, packet.hops);
                self.news.post(Happening::Message(Message { local, remote, bytes: Vec::from(packet.payload), hops }));
            }
            Err(obstacle) => self.send_back(packet, obstacle, context.from, context.outlet),
        }
        Some(())
    }

    /// A neighbour asks who has an address, or says that it has one. Hops of 255 say that it is a neighbour.
    fn hear_neighbour(&mut self, packet: &Packet, talk: &NdiscRepr, context: &mut Context) -> Option<()> {
        let is_from = |lladdr: Option<RawHardwareAddress>| lladdr.is_none_or(|address| address.as_bytes() == context.from);
        if packet.hops != 255 || !self.network.is_near(packet.source) {
            return None;
        }
        match *talk {
            NdiscRepr::NeighborSolicit { target_addr, lladdr } if is_from(lladdr) && self.network.is_own(target_addr.into()) => {
                let waiting = self.neighbours.learn(packet.source, context.from, context.now);
                let answer = NdiscRepr::NeighborAdvert {
                    flags: NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE,
                    target_addr,
                    lladdr: Some(EthernetAddress(self.network.mac).into()),
                };
                let is_said =
                    self.say_icmp6(target_addr.into(), packet.source, &Icmpv6Repr::Ndisc(answer), 255, context.from, context.outlet);
                self.counts.sent += u64::from(is_said);
                self.go_on(waiting, context.from, context.outlet);
                Some(())
            }
            NdiscRepr::NeighborAdvert { target_addr, lladdr, .. } if is_from(lladdr) && self.network.is_sender(target_addr.into()) => {
                if !self.neighbours.is_wanted(target_addr.into()) {
                    return None;
                }
                let waiting = self.neighbours.learn(target_addr.into(), context.from, context.now);
                self.go_on(waiting, context.from, context.outlet);
                Some(())
            }
            _ => None,
        }
    }

    /// The packet that begins with `quoted` met an obstacle. The end of it may be cut off.
    pub(crate) fn hear_obstacle(&mut self, quoted: &[u8], complaint: Complaint) -> Option<()> {
        let Complaint { obstacle, from, kind, code, mtu } = complaint;
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
        self.network.audience(local)?;
        let port = |at: usize| payload.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let (source, destination) = match protocol {
            IpProtocol::Tcp | IpProtocol::Udp => (port(0)?, port(2)?),
            IpProtocol::Icmp | IpProtocol::Icmpv6 => (0, 0),
            _ => return None,
        };
        let tuple = Tuple { local: SocketAddr::new(local, source), remote: SocketAddr::new(remote, destination) };
        if protocol != IpProtocol::Tcp {
            let Tuple { local, remote } = tuple;
            self.news.post(Happening::Unreachable(Notice { local, remote, obstacle, from, kind, code, mtu, quoted: Vec::from(payload) }));
            return Some(());
        }
        // What is open goes on: the obstacle may pass, and anybody can claim one.
        let id = *self.tuples.get(&tuple)?;
        if self.connections.get(&id)?.stage == Stage::Opening && obstacle != Obstacle::TooLong {
            self.break_off(id, Failure::Unreachable(obstacle));
        }
        Some(())
    }

    /// Tells the sender of a packet that it did not arrive, if it was for this stack alone.
    pub(crate) fn say_unreachable(&mut self, packet: &Packet, obstacle: Obstacle, context: &mut Context) -> Option<()> {
        if context.audience == Audience::Own {
            self.send_back(packet, obstacle, context.from, context.outlet);
        }
        Some(())
    }

    /// Tells a stranger that its knock did not arrive.
    pub(crate) fn say_unreachable_to(&mut self, tuple: &Tuple, syn: &TcpRepr, obstacle: Obstacle, to: Mac, outlet: &mut dyn Outlet) {
        let (source, destination) = (tuple.remote.ip(), tuple.local.ip());
        let header = IpRepr::new(source.into(), destination.into(), IpProtocol::Tcp, syn.buffer_len(), 64);
        let sums = &self.capabilities.checksum;
        let bytes = compose(&header, sums, |room| {
            syn.emit(&mut TcpPacket::new_unchecked(room), &source.into(), &destination.into(), sums);
        });
        if let Some(packet) = Packet::v4(&bytes, false).or_else(|| Packet::v6(&bytes)) {
            self.send_back(&packet, obstacle, to, outlet);
        }
    }

    fn send_back(&mut self, packet: &Packet, obstacle: Obstacle, to: Mac, outlet: &mut dyn Outlet) {
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
                let what = Icmpv4Repr::DstUnreachable { reason: reason4(obstacle), header, data: quoted(QUOTED4) };
                self.say_icmp4(packet.destination, packet.source, &what, 64, to, outlet);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Repr {
                    src_addr: source,
                    dst_addr: destination,
                    next_header: packet.protocol,
                    payload_len: packet.payload.len(),
                    hop_limit: packet.hops,
                };
                let what = Icmpv6Repr::DstUnreachable { reason: reason6(obstacle), header, data: quoted(QUOTED6) };
                let is_said = self.say_icmp6(packet.destination, packet.source, &what, 64, to, outlet);
                self.counts.sent += u64::from(is_said);
            }
            _ => {}
        }
    }

    /// Sends a message of ICMP as it is. Where the neighbour is not known yet, it waits a while for it.
    pub fn send_message(&mut self, message: &Message, now: u64, outlet: &mut dyn Outlet) -> Result<(), Error> {
        let Message { local, remote, bytes, hops } = message;
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Unaddressable);
        }
        let protocol = if remote.is_ipv4() { IpProtocol::Icmp } else { IpProtocol::Icmpv6 };
        let header = IpRepr::new((*local).into(), (*remote).into(), protocol, bytes.len(), (*hops).max(1));
        self.send_packet(&header, now, outlet, &mut |room| room.copy_from_slice(bytes))
    }

    fn say_icmp4(&mut self, from: IpAddr, remote: IpAddr, what: &Icmpv4Repr, hops: u8, to: Mac, outlet: &mut dyn Outlet) {
        let header = IpRepr::new(from.into(), remote.into(), IpProtocol::Icmp, what.buffer_len(), hops);
        let sums = &self.capabilities.checksum;
        let is_said = Ends { from: self.network.mac, to }.packet(outlet, &header, sums, |room| {
            what.emit(&mut Icmpv4Packet::new_unchecked(room), sums);
        });
        self.counts.sent += u64::from(is_said);
    }
}

const fn obstacle4(code: u8) -> Obstacle {
    match code {
        0 | 5 | 6 | 11 => Obstacle::Network,
        2 | 3 => Obstacle::Port,
        4 => Obstacle::TooLong,
        9 | 10 | 13 => Obstacle::Forbidden,
        _ => Obstacle::Host,
    }
}

const fn obstacle6(code: u8) -> Obstacle {
    match code {
        0 => Obstacle::Network,
        1 | 5 | 6 => Obstacle::Forbidden,
        4 => Obstacle::Port,
        _ => Obstacle::Host,
    }
}

const fn reason4(obstacle: Obstacle) -> Icmpv4DstUnreachable {
    match obstacle {
        Obstacle::Network | Obstacle::TooFar => Icmpv4DstUnreachable::NetUnreachable,
        Obstacle::Host => Icmpv4DstUnreachable::HostUnreachable,
        Obstacle::Port => Icmpv4DstUnreachable::PortUnreachable,
        Obstacle::Forbidden => Icmpv4DstUnreachable::CommProhibited,
        Obstacle::TooLong => Icmpv4DstUnreachable::FragRequired,
    }
}

const fn reason6(obstacle: Obstacle) -> Icmpv6DstUnreachable {
    match obstacle {
        Obstacle::Network | Obstacle::TooFar => Icmpv6DstUnreachable::NoRoute,
        Obstacle::Host | Obstacle::TooLong => Icmpv6DstUnreachable::AddrUnreachable,
        Obstacle::Port => Icmpv6DstUnreachable::PortUnreachable,
        Obstacle::Forbidden => Icmpv6DstUnreachable::AdminProhibit,
    }
}
