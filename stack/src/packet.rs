// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets as they are read and written: IP of both versions in one form, straight from a frame and straight into an outlet.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv6Packet, IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet,
};

use crate::Outlet;

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
    /// What it carries.
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads an IPv4 packet that is no fragment; with its sum, if that counts.
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

    /// Reads an IPv6 packet. One with extension headers has a protocol that nobody here speaks.
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

/// A packet by itself, of which `write` writes what follows the header.
pub(crate) fn compose(header: &IpRepr, sums: &ChecksumCapabilities, write: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = vec![0; header.buffer_len()];
    header.emit(&mut packet[..], sums);
    write(&mut packet[header.header_len()..]);
    packet
}

/// Writes its sum into a message of ICMP: of IPv6 the addresses count too. What is too short to have one stays as it is.
pub fn sum(from: IpAddr, to: IpAddr, message: &mut [u8]) {
    const SUM_END: usize = 4;
    match (from, to) {
        _ if message.len() < SUM_END => {}
        (IpAddr::V6(from), IpAddr::V6(to)) => Icmpv6Packet::new_unchecked(message).fill_checksum(&from, &to),
        _ => Icmpv4Packet::new_unchecked(message).fill_checksum(),
    }
}

/// Which sums are computed and checked. Those of headers and of ICMP are short, so they are always there for whoever looks at a capture.
pub(crate) fn sums(of_payloads: bool) -> ChecksumCapabilities {
    let (short, long) = if of_payloads { (Checksum::Both, Checksum::Both) } else { (Checksum::Tx, Checksum::None) };
    let mut sums = ChecksumCapabilities::ignored();
    (sums.ipv4, sums.icmpv4, sums.icmpv6, sums.tcp, sums.udp) = (short, short, short, long, long);
    sums
}

/// Where a frame comes from and where it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) from: Mac,
    pub(crate) to: Mac,
}

impl Ends {
    /// Writes a frame around `length` bytes of something. Whether there was room.
    pub(crate) fn frame(&self, outlet: &mut dyn Outlet, kind: EthernetProtocol, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(room) = outlet.room(HEADER + length) else { return false };
        let Some(room) = room.get_mut(..HEADER + length) else { return false };
        let mut frame = EthernetFrame::new_unchecked(&mut *room);
        frame.set_src_addr(EthernetAddress(self.from));
        frame.set_dst_addr(EthernetAddress(self.to));
        frame.set_ethertype(kind);
        write(&mut room[HEADER..]);
        outlet.commit(HEADER + length);
        true
    }

    /// Writes a frame with a packet whose header is `header`. Whether there was room.
    pub(crate) fn packet(
        &self,
        outlet: &mut dyn Outlet,
        header: &IpRepr,
        sums: &ChecksumCapabilities,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let kind = match header {
            IpRepr::Ipv4(_) => EthernetProtocol::Ipv4,
            IpRepr::Ipv6(_) => EthernetProtocol::Ipv6,
        };
        self.frame(outlet, kind, header.buffer_len(), |room| {
            header.emit(&mut *room, sums);
            write(&mut room[header.header_len()..]);
        })
    }
}
