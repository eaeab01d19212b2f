// SPDX-License-Identifier: MIT OR Apache-2.0
//! The anti-spoofing filter (BCP 38): a cell sends only from its own addresses.
//!
//! A frame must carry IPv4, IPv6 or ARP. Every address in it that names the sender must be the cell's own: the Ethernet source, the
//! IP source, ARP's sender fields, and the claims of IPv6 neighbour discovery. A cell without an address may ask for one. Other
//! kinds of frames are dropped, because their sender cannot be verified.

use super::address::Addresses;
use crate::limits::MAX_NEIGHBOUR_OPTIONS;
use pando_abi::frame::ETHERNET_HEADER;
use std::net::{Ipv4Addr, Ipv6Addr};

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Whether every sender address in a frame is the sender's own.
#[must_use]
pub(super) fn passes_filter(frame: &[u8], own: &Addresses) -> bool {
    let Some((header, packet)) = frame.split_first_chunk::<{ ETHERNET_HEADER }>() else { return false };
    let [_, _, _, _, _, _, source @ .., kind_high, kind_low] = *header;
    source == own.mac.0
        && match [kind_high, kind_low] {
            IPV4 => is_genuine_ipv4(packet, own),
            ARP => is_genuine_arp(packet, own),
            IPV6 => is_genuine_ipv6(packet, own),
            _ => false,
        }
}

/// Whether the first bytes of a frame (a hundred, or all) contain everything that [`passes_filter`] checks.
pub(super) fn contains_all_checked(head: &[u8]) -> bool {
    const TCP: u8 = 6;
    let kind = head.get(12..ETHERNET_HEADER);
    kind == Some(&IPV4) || kind == Some(&IPV6) && head.get(ETHERNET_HEADER + 6).is_some_and(|next| [TCP, UDP].contains(next))
}

/// Checks ARP's sender fields. The IP address may be unspecified: a card then probes whether an address is free.
fn is_genuine_arp(packet: &[u8], own: &Addresses) -> bool {
    let is_of_ethernet = packet.get(..6).is_some_and(|kinds| kinds == [0, 1, 8, 0, 6, 4]);
    let hardware = packet.get(8..14).is_some_and(|sender| sender == own.mac.0);
    let protocol = packet.get(14..18).is_some_and(|sender| sender == own.v4.octets() || sender == Ipv4Addr::UNSPECIFIED.octets());
    is_of_ethernet && hardware && protocol
}

/// Checks the source address. It may be unspecified only in a broadcast DHCP request.
fn is_genuine_ipv4(packet: &[u8], own: &Addresses) -> bool {
    let Some(source) = packet.get(12..16) else { return false };
    source == own.v4.octets() && !is_from_dhcp_server(packet) || source == Ipv4Addr::UNSPECIFIED.octets() && is_dhcp_request(packet)
}

/// Whether an IPv4 packet is from a DHCP server.
fn is_from_dhcp_server(packet: &[u8]) -> bool {
    const PORTS: [u8; 4] = [0, 67, 0, 68];
    let header = packet.first().map_or(0, |first| 4 * usize::from(first & 0xf));
    packet.get(9) == Some(&UDP) && packet.get(header..header + 4) == Some(&PORTS)
}

/// Whether an IPv4 packet is an unfragmented broadcast from a DHCP client.
fn is_dhcp_request(packet: &[u8]) -> bool {
    const VERSION_AND_LENGTH: u8 = 0x45;
    const HEADER: usize = 20;
    /// Source port 68, destination port 67.
    const PORTS: [u8; 4] = [0, 68, 0, 67];
    /// The more-fragments flag and the upper bits of the fragment offset.
    const FRAGMENTS: u8 = 0x3f;
    packet.first() == Some(&VERSION_AND_LENGTH)
        && packet.get(6..8).is_some_and(|fragment| fragment[0] & FRAGMENTS == 0 && fragment[1] == 0)
        && packet.get(9) == Some(&UDP)
        && packet.get(16..HEADER) == Some(&Ipv4Addr::BROADCAST.octets())
        && packet.get(HEADER..HEADER + 4) == Some(&PORTS)
}

fn is_genuine_ipv6(packet: &[u8], own: &Addresses) -> bool {
    let Some(source) = packet.get(8..24).and_then(|bytes| bytes.first_chunk::<16>()) else { return false };
    let source = Ipv6Addr::from(*source);
    is_own6(source, own) && !claims(packet, own) || source.is_unspecified() && is_icmp(packet) && !claims(packet, own)
}

fn is_own6(address: Ipv6Addr, own: &Addresses) -> bool {
    address == own.v6 || address == own.mac.link_local()
}

const HOP_BY_HOP: u8 = 0;
const UDP: u8 = 17;
const ICMP: u8 = 58;

/// The payload's protocol and offset in an IPv6 packet, after hop-by-hop options. `None`: the packet is truncated.
fn payload(packet: &[u8]) -> Option<(u8, usize)> {
    const HEADER: usize = 40;
    match *packet.get(6)? {
        HOP_BY_HOP => match *packet.get(HEADER..HEADER + 2)? {
            [next, length] => Some((next, HEADER + 8 + 8 * usize::from(length))),
            _ => None,
        },
        next => Some((next, HEADER)),
    }
}

fn is_icmp(packet: &[u8]) -> bool {
    payload(packet).is_some_and(|(next, _)| next == ICMP)
}

/// Whether an IPv6 packet makes a neighbour-discovery claim about another node than its sender, or may hide such a claim (RFC
/// 4861). Router advertisements and DHCP offers count as claims.
fn claims(packet: &[u8], own: &Addresses) -> bool {
    const ROUTER_SOLICITATION: u8 = 133;
    const ROUTER_ADVERTISEMENT: u8 = 134;
    const NEIGHBOUR_SOLICITATION: u8 = 135;
    const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    const REDIRECT: u8 = 137;
    /// Extension headers that may hide the payload: routing, fragment, authentication, destination options.
    const HIDING: [u8; 4] = [43, 44, 51, 60];
    /// Source port 547, destination port 546: a DHCPv6 server.
    const ADDRESS_SERVER: [u8; 4] = [2, 0x23, 2, 0x22];
    let Some((next, at)) = payload(packet) else { return true };
    if next != ICMP {
        return next == HOP_BY_HOP || HIDING.contains(&next) || next == UDP && packet.get(at..at + 4) == Some(&ADDRESS_SERVER);
    }
    match packet.get(at) {
        Some(&NEIGHBOUR_ADVERTISEMENT) => {
            let target = packet.get(at + 8..at + 24).and_then(|bytes| bytes.first_chunk::<16>());
            !target.is_some_and(|target| is_own6(Ipv6Addr::from(*target), own)) || names_other_address(packet, at + 24, own)
        }
        Some(&NEIGHBOUR_SOLICITATION) => names_other_address(packet, at + 24, own),
        Some(&ROUTER_SOLICITATION) => names_other_address(packet, at + 8, own),
        Some(&kind) => matches!(kind, ROUTER_ADVERTISEMENT | REDIRECT),
        None => true,
    }
}

/// Whether neighbour-discovery options, from offset `at` to the packet's end, name an Ethernet address other than the sender's, or
/// are malformed.
fn names_other_address(packet: &[u8], at: usize, own: &Addresses) -> bool {
    const HEADER: usize = 40;
    /// Source and target link-layer address options.
    const ADDRESSES: [u8; 2] = [1, 2];
    let length = packet.get(4..6).map_or(0, |length| usize::from(length[0]) << 8 | usize::from(length[1]));
    let Some(mut rest) = packet.get(at..HEADER + length) else { return true };
    for _ in 0..MAX_NEIGHBOUR_OPTIONS {
        let Some(&[kind, units]) = rest.first_chunk() else { return !rest.is_empty() };
        let Some((option, others)) = rest.split_at_checked(8 * usize::from(units)).filter(|(option, _)| !option.is_empty()) else {
            return true;
        };
        if ADDRESSES.contains(&kind) && option.get(2..8) != Some(&own.mac.0) {
            return true;
        }
        rest = others;
    }
    !rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::address::AddressPool;
    use super::passes_filter;

    fn frame(source: [u8; 6], kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[0xff; 6][..], &source, &kind, packet].concat()
    }

    #[test]
    fn a_cell_sends_from_its_own_addresses_only() {
        let (own, other) = (AddressPool::default().port(3).expect("there is room"), AddressPool::default().port(4).expect("there is room"));
        let mut ip4 = [0; 20];
        for (source, genuine) in [(own.v4, true), (other.v4, false), ([0; 4].into(), false)] {
            ip4[12..16].copy_from_slice(&source.octets());
            assert_eq!(passes_filter(&frame(own.mac.0, [8, 0], &ip4), &own), genuine, "{source}");
            assert!(!passes_filter(&frame(other.mac.0, [8, 0], &ip4), &own), "another's Ethernet address");
        }
        let arp = |mac: [u8; 6], ip: [u8; 4]| [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac, &ip, &[0; 10]].concat();
        for (mac, ip, genuine) in
            [(own.mac.0, own.v4.octets(), true), (other.mac.0, own.v4.octets(), false), (own.mac.0, other.v4.octets(), false)]
        {
            assert_eq!(passes_filter(&frame(own.mac.0, [8, 6], &arp(mac, ip)), &own), genuine);
        }
        // VLAN tags and truncated frames.
        assert!(!passes_filter(&frame(own.mac.0, [0x81, 0], &ip4), &own));
        assert!(!passes_filter(&frame(own.mac.0, [8, 0], &ip4[..15]), &own));
        assert!(!passes_filter(&own.mac.0, &own));
    }

    #[test]
    fn a_cell_without_an_address_may_only_ask_for_one() {
        let own = AddressPool::default().port(3).expect("there is room");
        let mut packet = [0; 28];
        (packet[0], packet[9]) = (0x45, 17);
        packet[16..20].fill(255);
        packet[20..24].copy_from_slice(&[0, 68, 0, 67]);
        assert!(passes_filter(&frame(own.mac.0, [8, 0], &packet), &own));
        // A longer header, two fragments, TCP, another destination address, another source port, another destination port.
        for (at, byte) in [(0, 0x46), (7, 1), (6, 0x20), (9, 6), (19, 1), (21, 67), (23, 53)] {
            let mut other = packet;
            other[at] = byte;
            assert!(!passes_filter(&frame(own.mac.0, [8, 0], &other), &own), "{at}");
        }
        assert!(!passes_filter(&frame(own.mac.0, [8, 0], &packet[..22]), &own));
    }

    #[test]
    fn a_cell_advertises_no_other_neighbour_of_ipv6() {
        let (own, other) = (AddressPool::default().port(3).expect("there is room"), AddressPool::default().port(4).expect("there is room"));
        let packet = |next: u8, more: &[u8]| {
            let mut header = [0; 40];
            header[6] = next;
            header[4..6].copy_from_slice(&(more.len() as u16).to_be_bytes());
            header[8..24].copy_from_slice(&own.v6.octets());
            frame(own.mac.0, [0x86, 0xdd], &[&header, more].concat())
        };
        let claim = |of: std::net::Ipv6Addr| [&[136, 0, 0, 0, 0, 0, 0, 0][..], &of.octets()].concat();
        assert!(passes_filter(&packet(58, &claim(own.v6)), &own));
        assert!(passes_filter(&packet(58, &claim(own.mac.link_local())), &own));
        assert!(passes_filter(&packet(6, &[0; 20]), &own));
        // Solicitations name the sender's Ethernet address.
        let option = |kind: u8, mac: [u8; 6]| [&[kind, 1][..], &mac].concat();
        for (kind, before) in [(133, 8), (135, 24), (136, 24)] {
            let mut talk = vec![0; before];
            talk[0] = kind;
            if before == 24 {
                talk[8..].copy_from_slice(&own.v6.octets());
            }
            let with = |options: &[u8]| passes_filter(&packet(58, &[&talk, options].concat()), &own);
            let (true_one, false_one) = (option(1, own.mac.0), option(2, other.mac.0));
            assert!(with(&[]) && with(&true_one) && with(&[&[14, 1, 0, 0, 0, 0, 0, 0][..], &true_one].concat()), "{kind}");
            assert!(!with(&false_one) && !with(&[true_one.clone(), false_one].concat()) && !with(&true_one.repeat(9)), "{kind}");
            assert!(!with(&[1]) && !with(&[1, 0, 0, 0, 0, 0, 0, 0]) && !with(&true_one[..7]), "{kind}");
            // A truncated packet.
            assert!(!passes_filter(&packet(58, &talk)[..60], &own), "{kind}");
        }
        let hidden = [&[58, 0, 0, 0, 0, 0, 0, 0][..], &claim(other.v6)].concat();
        for (next, more) in
            [(58, claim(other.v6)), (0, hidden), (44, claim(other.v6)), (51, claim(own.v6)), (58, vec![134; 16]), (58, vec![]), (0, vec![])]
        {
            assert!(!passes_filter(&packet(next, &more), &own), "{next} {more:?}");
        }
    }

    #[test]
    fn a_cell_gives_no_other_an_address() {
        let own = AddressPool::default().port(3).expect("there is room");
        let packet4 = |from: u8, to: u8| {
            let mut packet = [0; 28];
            (packet[0], packet[9], packet[21], packet[23]) = (0x45, 17, from, to);
            packet[12..16].copy_from_slice(&own.v4.octets());
            frame(own.mac.0, [8, 0], &packet)
        };
        let packet6 = |from: u16, to: u16| {
            let mut header = [0; 40];
            (header[5], header[6]) = (8, 17);
            header[8..24].copy_from_slice(&own.v6.octets());
            frame(own.mac.0, [0x86, 0xdd], &[&header[..], &from.to_be_bytes(), &to.to_be_bytes(), &[0; 4]].concat())
        };
        assert!(passes_filter(&packet4(68, 67), &own) && !passes_filter(&packet4(67, 68), &own));
        assert!(passes_filter(&packet6(546, 547), &own) && !passes_filter(&packet6(547, 546), &own));
    }
}
