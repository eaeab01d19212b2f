// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses and networks of this stack, and the routing of packets.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::wire::IpCidr;

use crate::Config;
use crate::packet::Mac;

/// The receivers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipients {
    /// This stack alone.
    Own,
    /// All hosts on the network.
    All,
}

#[derive(Debug)]
pub(crate) struct NetworkConfig {
    pub(crate) mac: Mac,
    networks: Vec<IpCidr>,
    gateway4: Option<Ipv4Addr>,
    gateway6: Option<Ipv6Addr>,
    any_address: bool,
}

impl NetworkConfig {
    /// Longer prefixes than the address are cut to its length.
    pub(crate) fn new(config: &Config) -> Self {
        let networks = config
            .addresses
            .iter()
            .map(|(address, prefix)| IpCidr::new((*address).into(), (*prefix).min(if address.is_ipv4() { 32 } else { 128 })))
            .collect();
        Self { mac: config.mac, networks, gateway4: config.gateway4, gateway6: config.gateway6, any_address: config.any_address }
    }

    /// Whether an address is one of this stack's.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| IpAddr::from(network.address()) == address)
    }

    /// The receivers of a packet to this address. `None`: not this stack.
    pub(crate) fn recipients(&self, destination: IpAddr) -> Option<Recipients> {
        if self.is_own(destination) {
            return Some(Recipients::Own);
        }
        if self.is_group(destination) {
            return Some(Recipients::All);
        }
        let is_unicast = !destination.is_multicast() && !destination.is_loopback() && !destination.is_unspecified();
        (self.any_address && is_unicast).then_some(Recipients::Own)
    }

    /// Whether this is a broadcast address, or a multicast group that this stack belongs to.
    pub(crate) fn is_group(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address == Ipv4Addr::new(224, 0, 0, 1) || self.is_broadcast(address),
            IpAddr::V6(address) => {
                address == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1) || self.addresses6().any(|own| solicited(own) == address)
            }
        }
    }

    /// Whether this is the broadcast address of an IPv4 network.
    pub(crate) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast()
            || self.networks.iter().any(|network| match network {
                IpCidr::Ipv4(network) => network.broadcast() == Some(address),
                IpCidr::Ipv6(_) => false,
            })
    }

    /// Whether this is a valid source address: unicast, and not this stack's.
    pub(crate) fn is_valid_source(&self, address: IpAddr) -> bool {
        let is_all =
            matches!(address, IpAddr::V4(address) if self.is_broadcast(address) || address.octets()[0] == 0 || address.octets()[0] >= 240);
        !is_all && !address.is_multicast() && !address.is_loopback() && !address.is_unspecified() && !self.is_own(address)
    }

    /// Whether an address is on-link.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        is_link_local || self.networks.iter().any(|network| network.contains_addr(&address.into()))
    }

    /// The next hop of packets to an address.
    pub(crate) fn next_hop(&self, remote: IpAddr) -> Option<IpAddr> {
        if remote.is_unspecified() || remote.is_loopback() {
            return None;
        }
        if self.is_on_link(remote) || remote.is_multicast() || matches!(remote, IpAddr::V4(address) if address.is_broadcast()) {
            return Some(remote);
        }
        match remote {
            IpAddr::V4(_) => self.gateway4.map(IpAddr::V4),
            IpAddr::V6(_) => self.gateway6.map(IpAddr::V6),
        }
    }

    /// The Ethernet address of broadcast and multicast addresses, which need no resolution.
    pub(crate) fn group_mac(&self, address: IpAddr) -> Option<Mac> {
        match address {
            IpAddr::V4(address) if self.is_broadcast(address) => Some([0xff; 6]),
            IpAddr::V4(address) if address.is_multicast() => {
                let [_, second, third, fourth] = address.octets();
                Some([0x01, 0x00, 0x5e, second & 0x7f, third, fourth])
            }
            IpAddr::V6(address) if address.is_multicast() => {
                let [.., a, b, c, d] = address.octets();
                Some([0x33, 0x33, a, b, c, d])
            }
            _ => None,
        }
    }

    /// The source address of packets to `remote`: one on the same network, else the family's first.
    pub(crate) fn address_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let of_family = || self.networks.iter().filter(|network| IpAddr::from(network.address()).is_ipv4() == remote.is_ipv4());
        of_family()
            .find(|network| network.contains_addr(&remote.into()))
            .or_else(|| of_family().next())
            .map(|network| network.address().into())
    }

    fn addresses6(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.networks.iter().filter_map(|network| match network {
            IpCidr::Ipv6(network) => Some(network.address()),
            IpCidr::Ipv4(_) => None,
        })
    }
}

/// The solicited-node multicast group of an IPv6 address.
pub(crate) fn solicited(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff, a, b, c])
}

/// The netmask of an IPv4 prefix.
pub fn mask(prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn a_prefix_is_so_many_bits() {
        let octets = [0, 8, 16, 32, 99].map(|prefix| mask(prefix).octets());
        assert_eq!(octets, [[0; 4], [255, 0, 0, 0], [255, 255, 0, 0], [255; 4], [255; 4]]);
    }
}
