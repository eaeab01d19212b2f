// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of ports: of Ethernet, and of both versions of IP, all made of one number.

use crate::limits::MAX_PORTS;
use pando_abi::virtual_registers::Card;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether frames to it are for several: bit 0 of the first byte.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The IPv4 address that it was made of. `None`: it was made of none.
    #[must_use]
    pub const fn address4(self) -> Option<Ipv4Addr> {
        match self.0 {
            [LOCAL, MADE, a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d)),
            _ => None,
        }
    }

    /// The address that IPv6 gives a card on its own link, made of this one (RFC 4291, appendix A).
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
    /// Of Ethernet.
    pub mac: Mac,
    /// Of IPv4.
    pub v4: Ipv4Addr,
    /// Bits of its prefix.
    pub prefix4: u8,
    /// Of IPv6.
    pub v6: Ipv6Addr,
    /// Bits of its prefix.
    pub prefix6: u8,
}

/// Where the addresses of a network come from: the router has the first, then each port its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The network's IPv4 address: a prefix of 16 bits.
    pub v4: Ipv4Addr,
    /// The network's IPv6 address: a prefix of 64 bits.
    pub v6: Ipv6Addr,
}

/// What an Ethernet address begins with that is made of the IPv4 address: that it is local, as bit 1 says, and by whom.
const LOCAL: u8 = 0x02;
const MADE: u8 = 0x70;
/// Bits that all addresses of a pool share.
const PREFIX4: u8 = 16;
const PREFIX6: u8 = 64;
/// The router's number in its network; 0 is the network's own.
const ROUTER: u16 = 1;

impl Default for Pool {
    /// Addresses of private networks that hosts seldom use (RFC 1918, RFC 4193).
    fn default() -> Pool {
        Pool { v4: Ipv4Addr::new(10, 77, 0, 0), v6: Ipv6Addr::new(0xfd70, 0x616e, 0x646f, 0, 0, 0, 0, 0) }
    }
}

impl Pool {
    /// The addresses of who leads out of the network.
    #[must_use]
    pub fn router(&self) -> Addresses {
        self.numbered(ROUTER)
    }

    /// The addresses of the port of an index. `None`: there are not so many.
    #[must_use]
    pub fn port(&self, index: u32) -> Option<Addresses> {
        if index >= MAX_PORTS { None } else { Some(self.numbered(ROUTER + 1 + index as u16)) }
    }

    /// The index of the port whose address this is, if one could have it.
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
            mac: Mac([LOCAL, MADE, a, b, high, low]),
            v4: Ipv4Addr::new(a, b, high, low),
            prefix4: PREFIX4,
            v6: Ipv6Addr::new(s0, s1, s2, s3, 0, 0, 0, number),
            prefix6: PREFIX6,
        }
    }
}

/// What a cell's virtual registers say of its card.
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
