// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification of addresses: public, private, or the host's own.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The class of an address, for the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A public address.
    Public,
    /// An address of a private network.
    Private,
    /// A link-local address, or one at which clouds serve their machines' secrets. Only a rule for this address allows it.
    LinkLocal,
    /// An unspecified, loopback, multicast or reserved address: never allowed.
    Reserved,
}

/// A network: an address, and how many of its first bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    address: IpAddr,
    bits: u8,
}

impl Subnet {
    /// The network of an address's first `bits` bits. `None` if the address has fewer.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Subnet> {
        (bits <= width(address)).then_some(Subnet { address, bits })
    }

    /// Whether it contains an address.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let difference = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => u128::from(own.to_bits() ^ other.to_bits()),
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        difference.checked_shr((width(self.address) - self.bits).into()).unwrap_or_default() == 0
    }

    /// Whether it is this single address.
    #[must_use]
    pub fn is_exactly(self, address: IpAddr) -> bool {
        self.bits == width(self.address) && self.address == address
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Networks that are not public, by the registries for special purposes of RFC 6890; the first match counts.
const SPECIAL: [(Subnet, Kind); 31] = [
    v4([0, 0, 0, 0], 8, Kind::Reserved),
    v4([127, 0, 0, 0], 8, Kind::Reserved),
    v4([224, 0, 0, 0], 3, Kind::Reserved),
    v4([169, 254, 0, 0], 16, Kind::LinkLocal),
    // Metadata services in addition to those in link-local networks: of Azure, Alibaba and Oracle; below, of Amazon, Google and Oracle
    // again.
    v4([168, 63, 129, 16], 32, Kind::LinkLocal),
    v4([100, 100, 100, 200], 32, Kind::LinkLocal),
    v4([192, 0, 0, 192], 32, Kind::LinkLocal),
    v6([0xfd00, 0xec2], 32, Kind::LinkLocal),
    v6([0xfd20, 0xce], 32, Kind::LinkLocal),
    v6([0xfd00, 0xc1], 32, Kind::LinkLocal),
    v4([10, 0, 0, 0], 8, Kind::Private),
    v4([100, 64, 0, 0], 10, Kind::Private),
    v4([172, 16, 0, 0], 12, Kind::Private),
    v4([192, 0, 0, 0], 24, Kind::Private),
    v4([192, 0, 2, 0], 24, Kind::Private),
    v4([192, 168, 0, 0], 16, Kind::Private),
    v4([198, 18, 0, 0], 15, Kind::Private),
    v4([198, 51, 100, 0], 24, Kind::Private),
    v4([203, 0, 113, 0], 24, Kind::Private),
    v6([0, 0], 96, Kind::Reserved),
    v6([0xff00, 0], 8, Kind::Reserved),
    v6([0xfe80, 0], 10, Kind::LinkLocal),
    v6([0xfec0, 0], 10, Kind::Private),
    v6([0xfc00, 0], 7, Kind::Private),
    v6([0x100, 0], 64, Kind::Private),
    v6([0x2001, 0xdb8], 32, Kind::Private),
    v6([0x3fff, 0], 20, Kind::Private),
    // These embed IPv4 addresses, which are not examined here.
    v6([0x64, 0xff9b], 32, Kind::Private),
    v6([0x2001, 0], 32, Kind::Private),
    v6([0x2002, 0], 16, Kind::Private),
    v6([0x2001, 0x10], 28, Kind::Private),
];

const fn v4(octets: [u8; 4], bits: u8, kind: Kind) -> (Subnet, Kind) {
    (Subnet { address: IpAddr::V4(Ipv4Addr::from_octets(octets)), bits }, kind)
}

const fn v6([first, second]: [u16; 2], bits: u8, kind: Kind) -> (Subnet, Kind) {
    (Subnet { address: IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)), bits }, kind)
}

/// The class of an address, also of an IPv4 address that is written as IPv6.
#[must_use]
pub fn kind(address: IpAddr) -> Kind {
    let address = address.to_canonical();
    SPECIAL.iter().find(|(network, _)| network.contains(address)).map_or(Kind::Public, |(_, kind)| *kind)
}

/// Whether an address is the host's own at present: it is if a socket can be bound to it. (With `ip_nonlocal_bind`, every address counts
/// as the host's own.)
#[must_use]
pub fn is_host_address(address: IpAddr) -> bool {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    // Without a socket the address counts as the host's own, so it is not allowed.
    !socket.is_ok_and(|socket| bind(&socket, &SocketAddr::new(address, 0)).is_err())
}

#[cfg(test)]
mod tests {
    use super::{Kind, Subnet, is_host_address, kind};

    #[test]
    fn addresses_are_classified_by_kind() {
        let cases = [
            ("8.8.8.8", Kind::Public),
            ("2606:4700::1111", Kind::Public),
            ("10.1.2.3", Kind::Private),
            ("172.31.255.255", Kind::Private),
            ("172.32.0.0", Kind::Public),
            ("192.168.1.1", Kind::Private),
            ("fd00::1", Kind::Private),
            ("3fff:fff::1", Kind::Private),
            ("3fff:1000::1", Kind::Public),
            ("64:ff9b::7f00:1", Kind::Private),
            ("169.254.169.254", Kind::LinkLocal),
            ("fe80::1", Kind::LinkLocal),
            ("127.0.0.1", Kind::Reserved),
            ("0.0.0.0", Kind::Reserved),
            ("255.255.255.255", Kind::Reserved),
            ("224.0.0.251", Kind::Reserved),
            ("::", Kind::Reserved),
            ("::1", Kind::Reserved),
            ("ff02::1", Kind::Reserved),
            ("::ffff:127.0.0.1", Kind::Reserved),
        ];
        for (text, expected) in cases {
            assert_eq!(kind(text.parse().expect("an address")), expected, "{text}");
        }
    }

    #[test]
    fn networks_have_their_addresses() {
        let network = |text: &str, bits| Subnet::new(text.parse().expect("an address"), bits);
        let contains =
            |text, bits, address: &str| network(text, bits).is_some_and(|network| network.contains(address.parse().expect("an address")));
        assert!(contains("10.0.0.0", 8, "10.255.0.1") && !contains("10.0.0.0", 8, "11.0.0.0"));
        assert!(contains("0.0.0.0", 0, "1.2.3.4") && !contains("0.0.0.0", 0, "::1") && contains("::", 0, "2001::"));
        assert!(contains("::1", 128, "::1") && !contains("::1", 128, "::2") && contains("1.2.3.4", 32, "1.2.3.4"));
        assert_eq!((network("1.2.3.4", 33), network("::", 129)), (None, None));
    }

    #[test]
    fn the_host_knows_its_own_addresses() {
        assert!(is_host_address("127.0.0.1".parse().expect("an address")));
        assert!(!is_host_address("198.51.100.7".parse().expect("an address")), "(net.ipv4.ip_nonlocal_bind must be 0)");
    }
}
