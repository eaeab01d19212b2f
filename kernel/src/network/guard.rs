// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guards: a cell sends in its own name only.
//!
//! What a frame carries must be IPv4, IPv6 or ARP, and every address in it that says who sent it must be the cell's own: the Ethernet address, that of IP, those of ARP's sender, and in IPv6
//! what a neighbour advertisement claims. Other kinds of frames are dropped, because nobody could say in whose name they speak.

use super::address::Addresses;
use std::net::{Ipv4Addr, Ipv6Addr};

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Whether a frame says truly who sends it.
#[must_use]
pub(super) fn is_honest(frame: &[u8], own: &Addresses) -> bool {
    let Some((header, packet)) = frame.split_first_chunk::<{ pando_abi::frame::ETHERNET_HEADER }>() else { return false };
    let [_, _, _, _, _, _, source @ .., kind_high, kind_low] = *header;
    source == own.mac.0
        && match [kind_high, kind_low] {
            IPV4 => packet.get(12..16).is_some_and(|source| source == own.v4.octets() || source == Ipv4Addr::UNSPECIFIED.octets()),
            ARP => is_honest_arp(packet, own),
            IPV6 => is_honest_ipv6(packet, own),
            _ => false,
        }
}

/// The sender's two addresses; none of IP where a card asks whether an address is free.
fn is_honest_arp(packet: &[u8], own: &Addresses) -> bool {
    let is_of_ethernet = packet.get(..6).is_some_and(|kinds| kinds == [0, 1, 8, 0, 6, 4]);
    let hardware = packet.get(8..14).is_some_and(|sender| sender == own.mac.0);
    let protocol = packet.get(14..18).is_some_and(|sender| sender == own.v4.octets() || sender == Ipv4Addr::UNSPECIFIED.octets());
    is_of_ethernet && hardware && protocol
}

fn is_honest_ipv6(packet: &[u8], own: &Addresses) -> bool {
    let address = |at: usize| packet.get(at..at + 16).and_then(|bytes| bytes.first_chunk::<16>()).map(|bytes| Ipv6Addr::from(*bytes));
    let is_own = |address: Ipv6Addr| address == own.v6 || address == own.mac.link_local();
    address(8).is_some_and(|source| is_own(source) || source.is_unspecified()) && !advertises_another(packet, is_own)
}

/// Whether an IPv6 packet advertises a neighbour that its sender is not, or a router, or may do so unseen (RFC 4861).
fn advertises_another(packet: &[u8], is_own: impl Fn(Ipv6Addr) -> bool) -> bool {
    const HOP_BY_HOP: u8 = 0;
    const ICMP: u8 = 58;
    const ROUTER_ADVERTISEMENT: u8 = 134;
    const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    const REDIRECT: u8 = 137;
    /// Headers behind which others hide: routing, fragments, options of the destination.
    const HIDING: [u8; 3] = [43, 44, 60];
    const HEADER: usize = 40;
    let (next, at) = match packet.get(6) {
        Some(&HOP_BY_HOP) => match packet.get(HEADER..HEADER + 2) {
            Some(&[next, length]) => (next, HEADER + 8 + 8 * usize::from(length)),
            _ => return true,
        },
        Some(&next) => (next, HEADER),
        None => return true,
    };
    match next {
        ICMP => match packet.get(at) {
            Some(&NEIGHBOUR_ADVERTISEMENT) => {
                let target = packet.get(at + 8..at + 24).and_then(|bytes| bytes.first_chunk::<16>());
                !target.is_some_and(|target| is_own(Ipv6Addr::from(*target)))
            }
            Some(&kind) => matches!(kind, ROUTER_ADVERTISEMENT | REDIRECT),
            None => true,
        },
        HOP_BY_HOP => true,
        next => HIDING.contains(&next),
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::Pool;
    use super::is_honest;

    fn frame(source: [u8; 6], kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[0xff; 6][..], &source, &kind, packet].concat()
    }

    #[test]
    fn a_cell_speaks_in_its_own_name_only() {
        let (own, other) = (Pool::default().port(3).expect("there is room"), Pool::default().port(4).expect("there is room"));
        let mut ip4 = [0; 20];
        for (source, honest) in [(own.v4, true), (other.v4, false), ([0; 4].into(), true)] {
            ip4[12..16].copy_from_slice(&source.octets());
            assert_eq!(is_honest(&frame(own.mac.0, [8, 0], &ip4), &own), honest, "{source}");
            assert!(!is_honest(&frame(other.mac.0, [8, 0], &ip4), &own), "another's Ethernet address");
        }
        let arp = |mac: [u8; 6], ip: [u8; 4]| [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac, &ip, &[0; 10]].concat();
        for (mac, ip, honest) in
            [(own.mac.0, own.v4.octets(), true), (other.mac.0, own.v4.octets(), false), (own.mac.0, other.v4.octets(), false)]
        {
            assert_eq!(is_honest(&frame(own.mac.0, [8, 6], &arp(mac, ip)), &own), honest);
        }
        // VLANs, and what is cut short.
        assert!(!is_honest(&frame(own.mac.0, [0x81, 0], &ip4), &own));
        assert!(!is_honest(&frame(own.mac.0, [8, 0], &ip4[..15]), &own));
        assert!(!is_honest(&own.mac.0, &own));
    }

    #[test]
    fn a_cell_advertises_no_other_neighbour_of_ipv6() {
        let (own, other) = (Pool::default().port(3).expect("there is room"), Pool::default().port(4).expect("there is room"));
        let packet = |next: u8, more: &[u8]| {
            let mut header = [0; 40];
            header[6] = next;
            header[8..24].copy_from_slice(&own.v6.octets());
            frame(own.mac.0, [0x86, 0xdd], &[&header, more].concat())
        };
        let claim = |of: std::net::Ipv6Addr| [&[136, 0, 0, 0, 0, 0, 0, 0][..], &of.octets()].concat();
        assert!(is_honest(&packet(58, &claim(own.v6)), &own));
        assert!(is_honest(&packet(58, &claim(own.mac.link_local())), &own));
        assert!(is_honest(&packet(6, &[0; 20]), &own));
        let hidden = [&[58, 0, 0, 0, 0, 0, 0, 0][..], &claim(other.v6)].concat();
        for (next, more) in [(58, claim(other.v6)), (0, hidden), (44, claim(other.v6)), (58, vec![134; 16]), (58, vec![]), (0, vec![])] {
            assert!(!is_honest(&packet(next, &more), &own), "{next} {more:?}");
        }
    }
}
