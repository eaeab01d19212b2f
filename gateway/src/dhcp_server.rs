// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DHCP server (RFC 2131): it gives a cell the address of its port, for programs that expect DHCP.
//!
//! It is stateless: the Ethernet address determines the IP address, and the kernel prevents spoofed source addresses.

use crate::GatewayAddresses;
use pando_stack::{TxSink, mask};
use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::wire::{
    DHCP_CLIENT_PORT, DHCP_SERVER_PORT, DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress, EthernetFrame,
    EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};
use std::net::Ipv4Addr;

/// Lease time in seconds: a day. The address stays valid as long as the cell runs.
const LEASE: u32 = 86_400;
/// The option that names resolvers.
const RESOLVERS: u8 = 6;
/// Bytes of the shortest message that every client accepts.
const MESSAGE_MIN: usize = 300;
/// Bytes of UDP's header.
const UDP: usize = 8;
/// The TTL of replies.
const HOPS: u8 = 64;

impl GatewayAddresses {
    /// Answers a frame if it is a DHCP request. Returns whether it is: it needs no other handling then.
    pub(crate) fn serve_dhcp(&self, frame: &[u8], sink: &mut dyn TxSink) -> bool {
        let Some((mac, message)) = dhcp_message(frame, self.address4) else { return false };
        if let Ok(packet) = DhcpPacket::new_checked(message)
            && let Ok(request) = DhcpRepr::parse(&packet)
            && request.client_hardware_address == mac
            && let Some(own) = (self.dhcp_address)(mac.0)
        {
            self.reply(&request, own, sink);
        }
        true
    }

    /// Answers the client of this address. If the queue is full, the client retries.
    fn reply(&self, request: &DhcpRepr, own: Ipv4Addr, sink: &mut dyn TxSink) {
        let is_own = |address: Ipv4Addr| address == own || address.is_unspecified();
        let is_for_another = request.server_identifier.is_some_and(|server| server != self.address4);
        let message_type = match request.message_type {
            DhcpMessageType::Discover => DhcpMessageType::Offer,
            DhcpMessageType::Request if is_for_another => return,
            DhcpMessageType::Request if is_own(request.requested_ip.unwrap_or(request.client_ip)) => DhcpMessageType::Ack,
            DhcpMessageType::Request => DhcpMessageType::Nak,
            DhcpMessageType::Inform => DhcpMessageType::Ack,
            _ => return,
        };
        let has_configuration = message_type != DhcpMessageType::Nak;
        let has_lease = has_configuration && request.message_type != DhcpMessageType::Inform;
        let resolver = [DhcpOption { kind: RESOLVERS, data: &self.address4.octets() }];
        let reply = DhcpRepr {
            message_type,
            transaction_id: request.transaction_id,
            secs: 0,
            client_hardware_address: request.client_hardware_address,
            client_ip: if has_configuration { request.client_ip } else { Ipv4Addr::UNSPECIFIED },
            your_ip: if has_lease { own } else { Ipv4Addr::UNSPECIFIED },
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: has_configuration.then_some(self.address4),
            subnet_mask: has_configuration.then(|| mask(self.prefix4)),
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            broadcast: request.broadcast,
            requested_ip: None,
            client_identifier: None,
            server_identifier: Some(self.address4),
            parameter_request_list: None,
            dns_servers: None,
            max_size: None,
            lease_duration: has_lease.then_some(LEASE),
            renew_duration: None,
            rebind_duration: None,
            additional_options: if has_configuration { &resolver } else { &[] },
        };
        // A client without an address receives broadcasts only.
        let to = if request.client_ip == own && has_configuration { own } else { Ipv4Addr::BROADCAST };
        self.send(&reply, to, sink);
    }

    fn send(&self, reply: &DhcpRepr, to: Ipv4Addr, sink: &mut dyn TxSink) {
        let length = reply.buffer_len().max(MESSAGE_MIN);
        let ethernet = EthernetRepr {
            src_addr: EthernetAddress(self.mac),
            dst_addr: reply.client_hardware_address,
            ethertype: EthernetProtocol::Ipv4,
        };
        let header =
            Ipv4Repr { src_addr: self.address4, dst_addr: to, next_header: IpProtocol::Udp, payload_len: UDP + length, hop_limit: HOPS };
        let udp = UdpRepr { src_port: DHCP_SERVER_PORT, dst_port: DHCP_CLIENT_PORT };
        let [before, whole] = [ethernet.buffer_len() + header.buffer_len(), ethernet.buffer_len() + header.buffer_len() + UDP + length];
        let Some(room) = sink.room(whole).and_then(|room| room.get_mut(..whole)) else { return };
        room.fill(0);
        let mut checksums = ChecksumCapabilities::ignored();
        (checksums.ipv4, checksums.udp) = (Checksum::Tx, Checksum::Tx);
        ethernet.emit(&mut EthernetFrame::new_unchecked(&mut *room));
        header.emit(&mut Ipv4Packet::new_unchecked(&mut room[ethernet.buffer_len()..]), &checksums);
        let mut is_emitted = false;
        let write = |message: &mut [u8]| is_emitted = reply.emit(&mut DhcpPacket::new_unchecked(message)).is_ok();
        udp.emit(&mut UdpPacket::new_unchecked(&mut room[before..]), &self.address4.into(), &to.into(), length, write, &checksums);
        if is_emitted {
            sink.commit(whole);
        }
    }
}

/// The DHCP message for a server in a frame, with the client's Ethernet address.
fn dhcp_message(frame: &[u8], server: Ipv4Addr) -> Option<(EthernetAddress, &[u8])> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let packet = Ipv4Packet::new_checked(frame.payload()).ok().filter(|_| frame.ethertype() == EthernetProtocol::Ipv4)?;
    let is_whole = packet.version() == 4 && !packet.more_frags() && packet.frag_offset() == 0;
    let is_here = packet.dst_addr() == server || packet.dst_addr().is_broadcast();
    if !is_whole || !is_here || packet.next_header() != IpProtocol::Udp {
        return None;
    }
    let datagram = UdpPacket::new_checked(packet.payload()).ok()?;
    let is_dhcp_request = (datagram.src_port(), datagram.dst_port()) == (DHCP_CLIENT_PORT, DHCP_SERVER_PORT);
    is_dhcp_request.then(|| (frame.src_addr(), datagram.payload()))
}

#[cfg(test)]
mod tests {
    use super::{DhcpMessageType, DhcpPacket, DhcpRepr, EthernetFrame, Ipv4Packet, UdpPacket};
    use crate::GatewayAddresses;
    use pando_stack::TxQueue;
    use std::net::Ipv4Addr;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

    /// A frame of a client with this kind of message, hardware address, own address and options.
    fn frame(kind: u8, mac: [u8; 6], own: Ipv4Addr, options: &[u8]) -> Vec<u8> {
        let mut message = vec![0; 240];
        message[..3].copy_from_slice(&[1, 1, 6]);
        message[4..8].copy_from_slice(&[1, 2, 3, 4]);
        message[12..16].copy_from_slice(&own.octets());
        message[28..34].copy_from_slice(&mac);
        message[236..].copy_from_slice(&[99, 130, 83, 99]);
        message.extend([&[53, 1, kind][..], options, &[255]].concat());
        let udp = [&[0, 68, 0, 67][..], &(8 + message.len() as u16).to_be_bytes(), &[0, 0], &message].concat();
        let length = (20 + udp.len() as u16).to_be_bytes();
        let header = [&[0x45, 0][..], &length, &[0, 0, 0, 0, 64, 17, 0, 0], &own.octets(), &[255; 4]].concat();
        [&[255; 6][..], &MAC, &[8, 0], &header, &udp].concat()
    }

    /// The reply: its kind, the address that it gives, and its destination.
    fn reply(frame: &[u8]) -> Option<(DhcpMessageType, Ipv4Addr, Ipv4Addr)> {
        let mut tx_queue = TxQueue::new(1 << 16);
        assert!(GatewayAddresses::example().serve_dhcp(frame, &mut tx_queue), "it is for a server");
        let mut reply = None;
        tx_queue.drain(&mut |frame| {
            let packet = Ipv4Packet::new_checked(EthernetFrame::new_checked(frame).expect("a frame").payload()).expect("a packet");
            let datagram = UdpPacket::new_checked(packet.payload()).expect("a datagram");
            assert!(packet.verify_checksum() && datagram.verify_checksum(&packet.src_addr().into(), &packet.dst_addr().into()));
            let message = DhcpPacket::new_checked(datagram.payload()).expect("a message");
            let repr = DhcpRepr::parse(&message).expect("a message");
            assert_eq!((repr.transaction_id, repr.server_identifier), (0x0102_0304, Some(Ipv4Addr::new(10, 77, 0, 1))));
            if repr.message_type != DhcpMessageType::Nak {
                assert_eq!((repr.router, repr.subnet_mask), (Some(Ipv4Addr::new(10, 77, 0, 1)), Some(Ipv4Addr::new(255, 255, 0, 0))));
                assert_eq!(repr.dns_servers.expect("it is told")[..], [Ipv4Addr::new(10, 77, 0, 1)]);
            }
            reply = Some((repr.message_type, repr.your_ip, packet.dst_addr()));
            true
        });
        reply
    }

    #[test]
    fn a_client_is_given_its_own_address_and_no_other() {
        use DhcpMessageType::{Ack, Nak, Offer};
        let (nobody, all) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
        assert_eq!(reply(&frame(1, MAC, nobody, &[])), Some((Offer, OWN, all)));
        assert_eq!(reply(&frame(3, MAC, nobody, &[50, 4, 10, 77, 0, 2])), Some((Ack, OWN, all)));
        assert_eq!(reply(&frame(3, MAC, OWN, &[])), Some((Ack, OWN, OWN)));
        assert_eq!(reply(&frame(3, MAC, nobody, &[50, 4, 10, 77, 0, 3])), Some((Nak, nobody, all)));
        assert_eq!(reply(&frame(8, MAC, OWN, &[])), Some((Ack, nobody, OWN)));
        // A request to another server, a release, and a request for another card.
        assert_eq!(reply(&frame(3, MAC, nobody, &[54, 4, 10, 77, 0, 9])), None);
        assert_eq!(reply(&frame(7, MAC, OWN, &[])), None);
        assert_eq!(reply(&frame(1, [2, 0, 0, 0, 0, 3], nobody, &[])), None);
    }

    #[test]
    fn truncated_frames_and_other_protocols_are_not_answered() {
        let whole = frame(1, MAC, Ipv4Addr::UNSPECIFIED, &[]);
        let mut tx_queue = TxQueue::new(1 << 16);
        for length in 0..whole.len() {
            GatewayAddresses::example().serve_dhcp(&whole[..length], &mut tx_queue);
        }
        assert!(tx_queue.is_empty());
        let mut other = whole;
        other[37] = 53;
        assert!(!GatewayAddresses::example().serve_dhcp(&other, &mut tx_queue) && tx_queue.is_empty());
    }
}
