// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsing and writing of packets: IPv4 and IPv6 in one form, straight from a frame and straight into a tx sink.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv6Packet, IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet,
};

use crate::TxSink;

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];

/// Bytes of Ethernet before a packet.
pub(crate) const HEADER: usize = 14;

/// A whole IP packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: IpProtocol,
    pub(crate) hops: u8,
    /// All of it.
    pub(crate) bytes: &'a [u8],
    /// The data after the IP header.
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses an unfragmented IPv4 packet. `checks` verifies the header checksum.
    pub(crate) fn v4(bytes: &'a [u8], checks: bool) -> Option<Self> {
        let packet = Ipv4Packet::new_checked(bytes).ok()?;
        if packet.version() != 4 || packet.header_len() < 20 || packet.more_frags() || packet.frag_offset() != 0 {
            return None;
        }
        if checks && !packet.verify_checksum() {
            return None;
        }
        Some(Self {
            source: packet.src_addr().into(),
            destination: packet.dst_addr().into(),
            protocol: packet.next_header(),
            hops: packet.hop_limit(),
            bytes: &bytes[..usize::from(packet.total_len())],
            payload: packet.payload(),
        })
    }

    /// Parses an IPv6 packet. One with extension headers appears as an unsupported protocol.
    pub(crate) fn v6(bytes: &'a [u8]) -> Option<Self> {
        let packet = Ipv6Packet::new_checked(bytes).ok()?;
        if packet.version() != 6 {
            return None;
        }
        Some(Self {
            source: packet.src_addr().into(),
            destination: packet.dst_addr().into(),
            protocol: packet.next_header(),
            hops: packet.hop_limit(),
            bytes: &bytes[..packet.total_len()],
            payload: packet.payload(),
        })
    }
}

/// A packet in a buffer of its own; `write` writes the payload after the header.
pub(crate) fn compose(header: &IpRepr, checksums: &ChecksumCapabilities, write: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0; header.buffer_len()];
    header.emit(&mut packet[..], checksums);
    write(&mut packet[header.header_len()..]);
    packet
}

/// Writes the checksum of an ICMP message; that of ICMPv6 covers the addresses too. A message that is too short for one stays unchanged.
pub fn fill_icmp_checksum(from: IpAddr, to: IpAddr, message: &mut [u8]) {
    const SUM_END: usize = 4;
    match (from, to) {
        _ if message.len() < SUM_END => {}
        (IpAddr::V6(from), IpAddr::V6(to)) => Icmpv6Packet::new_unchecked(message).fill_checksum(&from, &to),
        _ => Icmpv4Packet::new_unchecked(message).fill_checksum(),
    }
}

/// The checksums to compute and verify. Those of headers and of ICMP are short, so they are always computed, for the reader of a capture.
pub(crate) fn checksums(of_payloads: bool) -> ChecksumCapabilities {
    let (short, long) = if of_payloads { (Checksum::Both, Checksum::Both) } else { (Checksum::Tx, Checksum::None) };
    let mut checksums = ChecksumCapabilities::ignored();
    (checksums.ipv4, checksums.icmpv4, checksums.icmpv6, checksums.tcp, checksums.udp) = (short, short, short, long, long);
    checksums
}

/// Source and destination of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MacPair {
    pub(crate) from: Mac,
    pub(crate) to: Mac,
}

impl MacPair {
    /// Writes a frame with `length` bytes of payload. Returns whether there was room.
    pub(crate) fn frame(&self, sink: &mut dyn TxSink, kind: EthernetProtocol, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(room) = sink.room(HEADER + length) else { return false };
        let Some(room) = room.get_mut(..HEADER + length) else { return false };
        let mut frame = EthernetFrame::new_unchecked(&mut *room);
        frame.set_src_addr(EthernetAddress(self.from));
        frame.set_dst_addr(EthernetAddress(self.to));
        frame.set_ethertype(kind);
        write(&mut room[HEADER..]);
        sink.commit(HEADER + length);
        true
    }

    /// Writes a frame with a packet. Returns whether there was room.
    pub(crate) fn packet(
        &self,
        sink: &mut dyn TxSink,
        header: &IpRepr,
        checksums: &ChecksumCapabilities,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let kind = match header {
            IpRepr::Ipv4(_) => EthernetProtocol::Ipv4,
            IpRepr::Ipv6(_) => EthernetProtocol::Ipv6,
        };
        self.frame(sink, kind, header.buffer_len(), |room| {
            header.emit(&mut *room, checksums);
            write(&mut room[header.header_len()..]);
        })
    }
}
