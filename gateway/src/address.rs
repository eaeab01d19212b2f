// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification of addresses: public, private, or the host's own.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The class of an address, for the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
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
const SPECIAL: [(Subnet, AddressClass); 31] = [
    v4([0, 0, 0, 0], 8, AddressClass::Reserved),
    v4([127, 0, 0, 0], 8, AddressClass::Reserved),
    v4([224, 0, 0, 0], 3, AddressClass::Reserved),
    v4([169, 254, 0, 0], 16, AddressClass::LinkLocal),
    // Metadata services in addition to those in link-local networks: of Azure, Alibaba and Oracle; below, of Amazon, Google and Oracle
    // again.
    v4([168, 63, 129, 16], 32, AddressClass::LinkLocal),
    v4([100, 100, 100, 200], 32, AddressClass::LinkLocal),
    v4([192, 0, 0, 192], 32, AddressClass::LinkLocal),
    v6([0xfd00, 0xec2], 32, AddressClass::LinkLocal),
    v6([0xfd20, 0xce], 32, AddressClass::LinkLocal),
    v6([0xfd00, 0xc1], 32, AddressClass::LinkLocal),
    v4([10, 0, 0, 0], 8, AddressClass::Private),
    v4([100, 64, 0, 0], 10, AddressClass::Private),
    v4([172, 16, 0, 0], 12, AddressClass::Private),
    v4([192, 0, 0, 0], 24, AddressClass::Private),
    v4([192, 0, 2, 0], 24, AddressClass::Private),
    v4([192, 168, 0, 0], 16, AddressClass::Private),
    v4([198, 18, 0, 0], 15, AddressClass::Private),
    v4([198, 51, 100, 0], 24, AddressClass::Private),
    v4([203, 0, 113, 0], 24, AddressClass::Private),
    v6([0, 0], 96, AddressClass::Reserved),
    v6([0xff00, 0], 8, AddressClass::Reserved),
    v6([0xfe80, 0], 10, AddressClass::LinkLocal),
    v6([0xfec0, 0], 10, AddressClass::Private),
    v6([0xfc00, 0], 7, AddressClass::Private),
    v6([0x100, 0], 64, AddressClass::Private),
    v6([0x2001, 0xdb8], 32, AddressClass::Private),
    v6([0x3fff, 0], 20, AddressClass::Private),
    // These embed IPv4 addresses, which are not examined here.
    v6([0x64, 0xff9b], 32, AddressClass::Private),
    v6([0x2001, 0], 32, AddressClass::Private),
    v6([0x2002, 0], 16, AddressClass::Private),
    v6([0x2001, 0x10], 28, AddressClass::Private),
];

const fn v4(octets: [u8; 4], bits: u8, kind: AddressClass) -> (Subnet, AddressClass) {
    (Subnet { address: IpAddr::V4(Ipv4Addr::from_octets(octets)), bits }, kind)
}

const fn v6([first, second]: [u16; 2], bits: u8, kind: AddressClass) -> (Subnet, AddressClass) {
    (Subnet { address: IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)), bits }, kind)
}

/// The class of an address, also of an IPv4 address that is written as IPv6.
#[must_use]
pub fn classify(address: IpAddr) -> AddressClass {
    let address = address.to_canonical();
    SPECIAL.iter().find(|(network, _)| network.contains(address)).map_or(AddressClass::Public, |(_, kind)| *kind)
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
    use super::{AddressClass, Subnet, classify, is_host_address};

    #[test]
    fn addresses_are_classified_by_kind() {
        let cases = [
            ("8.8.8.8", AddressClass::Public),
            ("2606:4700::1111", AddressClass::Public),
            ("10.1.2.3", AddressClass::Private),
            ("172.31.255.255", AddressClass::Private),
            ("172.32.0.0", AddressClass::Public),
            ("192.168.1.1", AddressClass::Private),
            ("fd00::1", AddressClass::Private),
            ("3fff:fff::1", AddressClass::Private),
            ("3fff:1000::1", AddressClass::Public),
            ("64:ff9b::7f00:1", AddressClass::Private),
            ("169.254.169.254", AddressClass::LinkLocal),
            ("fe80::1", AddressClass::LinkLocal),
            ("127.0.0.1", AddressClass::Reserved),
            ("0.0.0.0", AddressClass::Reserved),
            ("255.255.255.255", AddressClass::Reserved),
            ("224.0.0.251", AddressClass::Reserved),
            ("::", AddressClass::Reserved),
            ("::1", AddressClass::Reserved),
            ("ff02::1", AddressClass::Reserved),
            ("::ffff:127.0.0.1", AddressClass::Reserved),
        ];
        for (text, expected) in cases {
            assert_eq!(classify(text.parse().expect("an address")), expected, "{text}");
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
