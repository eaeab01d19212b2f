// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of ports (Ethernet, IPv4 and IPv6), all derived from the port's number.

use crate::limits::MAX_PORTS;
use pando_abi::virtual_registers::Card;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether it is a multicast or broadcast address: bit 0 of the first byte.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The IPv4 address from which it was derived; `None` if it was not derived from one.
    #[must_use]
    pub const fn address4(self) -> Option<Ipv4Addr> {
        match self.0 {
            [LOCALLY_ADMINISTERED, KERNEL_MARK, a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d)),
            _ => None,
        }
    }

    /// The IPv6 link-local address derived from this one (RFC 4291, appendix A).
    #[must_use]
    pub const fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        Ipv6Addr::from_octets([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// The addresses of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Ethernet address.
    pub mac: Mac,
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// Prefix length of the IPv4 address.
    pub prefix4: u8,
    /// IPv6 address.
    pub v6: Ipv6Addr,
    /// Prefix length of the IPv6 address.
    pub prefix6: u8,
}

/// The address ranges of a network: the router has the first address, then each port has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPool {
    /// The network's IPv4 address, with a 16-bit prefix.
    pub v4: Ipv4Addr,
    /// The network's IPv6 address, with a 64-bit prefix.
    pub v6: Ipv6Addr,
}

/// First two bytes of Ethernet addresses derived from an IPv4 address: locally administered (bit 1), and a mark of this kernel.
const LOCALLY_ADMINISTERED: u8 = 0x02;
const KERNEL_MARK: u8 = 0x70;
/// Prefix lengths of a pool.
const PREFIX4: u8 = 16;
const PREFIX6: u8 = 64;
/// The router's number in its network; 0 is the network itself.
const ROUTER: u16 = 1;

impl Default for AddressPool {
    /// Ranges of private networks that hosts seldom use (RFC 1918, RFC 4193).
    fn default() -> AddressPool {
        AddressPool { v4: Ipv4Addr::new(10, 77, 0, 0), v6: Ipv6Addr::new(0xfd70, 0x616e, 0x646f, 0, 0, 0, 0, 0) }
    }
}

impl AddressPool {
    /// The router's addresses.
    #[must_use]
    pub fn router(&self) -> Addresses {
        self.numbered(ROUTER)
    }

    /// The addresses of the port with this index. `None`: the network has no port with this index.
    #[must_use]
    pub fn port(&self, index: u32) -> Option<Addresses> {
        if index >= MAX_PORTS { None } else { Some(self.numbered(ROUTER + 1 + index as u16)) }
    }

    /// The index of the port that has this address, if one can have it.
    #[must_use]
    pub fn index(&self, address: IpAddr) -> Option<u32> {
        let number = match address {
            IpAddr::V4(v4) => {
                let [_, _, high, low] = v4.octets();
                u16::from_be_bytes([high, low])
            }
            IpAddr::V6(v6) => v6.segments()[7],
        };
        let index = u32::from(number).checked_sub(u32::from(ROUTER) + 1)?;
        let own = self.port(index)?;
        (address == own.v4 || address == own.v6).then_some(index)
    }

    fn numbered(&self, number: u16) -> Addresses {
        let [high, low] = number.to_be_bytes();
        let [a, b, ..] = self.v4.octets();
        let [s0, s1, s2, s3, ..] = self.v6.segments();
        Addresses {
            mac: Mac([LOCALLY_ADMINISTERED, KERNEL_MARK, a, b, high, low]),
            v4: Ipv4Addr::new(a, b, high, low),
            prefix4: PREFIX4,
            v6: Ipv6Addr::new(s0, s1, s2, s3, 0, 0, 0, number),
            prefix6: PREFIX6,
        }
    }
}

/// The card as the cell's virtual registers describe it.
#[must_use]
pub(crate) fn card(own: &Addresses, router: &Addresses, mtu: u16) -> Card {
    let halves = |address: Ipv6Addr| [(address.to_bits() >> 64) as u64, address.to_bits() as u64];
    let [a, b, c, d, e, f] = own.mac.0;
    Card {
        mtu: mtu.into(),
        mac: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
        address4: u64::from(own.v4.to_bits()) | u64::from(own.prefix4) << 32,
        router4: router.v4.to_bits().into(),
        address6: halves(own.v6),
        prefix6: own.prefix6.into(),
        router6: halves(router.v6),
        resolver4: router.v4.to_bits().into(),
    }
}
