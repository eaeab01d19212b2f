// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes to network interfaces, as DHCP clients make them. Only the card's own addresses and the routes by its router can be set
//! and removed, because the network lets a cell send from its own addresses only.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pando_rt::registers;
use pando_rt::user as memory;
use pando_stack::mask;

use super::netdevice::{ERROR, HEADER};
use crate::errno::Errno;
use crate::files::socket::inet::{InetState, InterfaceAddress};
use crate::files::socket::names::{CARD, LOOPBACK};
use crate::user::word32;

/// A requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Sets or removes an address with its prefix length.
    Address(IpAddr, u8, bool),
    /// Sets or removes the default route by a router; without a router, that by any.
    Route(Option<IpAddr>, bool, bool),
    /// Sets an interface up or down.
    Up(bool),
    /// Another change.
    Other,
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// `EPERM`: the card cannot have it. `EADDRNOTAVAIL`, `ESRCH`: it is not there to be removed.
    pub(super) fn apply(self, outside: &mut InetState) -> Result<(), Errno> {
        match self {
            Change::Address(address, prefix, sets) => {
                let is_it = |host: &&mut InterfaceAddress| host.address == address && host.prefix == prefix;
                let host = outside.hosts.iter_mut().find(is_it);
                let host = host.ok_or(if sets { Errno::EPERM } else { Errno::EADDRNOTAVAIL })?;
                if !sets && !host.is_set {
                    return Err(Errno::EADDRNOTAVAIL);
                }
                host.is_set = sets;
                // A route needs the address that it starts from.
                host.is_routed &= sets;
            }
            Change::Route(router, is_ipv4, sets) => {
                let is_it = |host: &&mut InterfaceAddress| host.address.is_ipv4() == is_ipv4 && (router.is_none() || host.router == router);
                let host = outside.hosts.iter_mut().filter(|host| host.is_set && host.router.is_some()).find(is_it);
                let host = host.ok_or(if sets { Errno::EPERM } else { Errno::ESRCH })?;
                if !sets && !host.is_routed {
                    return Err(Errno::ESRCH);
                }
                host.is_routed = sets;
            }
            Change::Up(true) => {}
            Change::Up(false) | Change::Other => return Err(Errno::EPERM),
        }
        Ok(())
    }
}

/// The change that an rtnetlink message requests. `None`: it requests none.
pub(super) fn asked(question: &[u8]) -> Option<Change> {
    /// Bytes of the bodies before the attributes of messages about links, addresses and routes.
    const LINK: usize = 16;
    const ADDRESS: usize = 8;
    const ROUTE: usize = 12;
    let kind = u16::from_le_bytes([*question.get(4)?, *question.get(5)?]);
    let body = question.get(HEADER..).unwrap_or_default();
    Some(match kind {
        16 | 19 => link(body).filter(|_| body.len() >= LINK).unwrap_or(Change::Other),
        20 | 21 => address(body, body.get(ADDRESS..).unwrap_or_default(), kind == 20).unwrap_or(Change::Other),
        24 | 25 => route(body, body.get(ROUTE..).unwrap_or_default(), kind == 24).unwrap_or(Change::Other),
        17 | 28 | 29 | 32 | 33 => Change::Other,
        _ => return None,
    })
}

fn number(body: &[u8], at: usize) -> Option<u32> {
    body.get(at..at + 4)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// The value of an attribute.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(&[low, high, kind_low, kind_high]) = attributes.first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high]));
        let value = attributes.get(4..length)?;
        if u16::from_le_bytes([kind_low, kind_high]) == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn host(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        16 => value.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

/// A change of a link: up or down.
fn link(body: &[u8]) -> Option<Change> {
    const UP: u32 = 1;
    let (index, flags, change) = (number(body, 4)?, number(body, 8)?, number(body, 12)?);
    let is_up = flags & UP != 0 || change & UP == 0;
    let changes_else = change != u32::MAX && change & !UP != 0;
    Some(if matches!(index, 0 | LOOPBACK | CARD) && !changes_else { Change::Up(is_up) } else { Change::Other })
}

fn address(body: &[u8], attributes: &[u8], sets: bool) -> Option<Change> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let (prefix, index) = (*body.get(1)?, number(body, 4)?);
    let own = attribute(attributes, LOCAL).or_else(|| attribute(attributes, ADDRESS)).and_then(host)?;
    (index == CARD).then_some(Change::Address(own, prefix, sets))
}

fn route(body: &[u8], attributes: &[u8], sets: bool) -> Option<Change> {
    const INTERNET4: u8 = 2;
    const LINK: u16 = 4;
    const ROUTER: u16 = 5;
    let (family, prefix) = (*body.first()?, *body.get(1)?);
    let is_at_card = attribute(attributes, LINK).and_then(|link| number(link, 0)).is_none_or(|index| index == CARD);
    let router = attribute(attributes, ROUTER).and_then(host);
    let is_sound = prefix == 0 && is_at_card && (router.is_some() || !sets);
    is_sound.then_some(Change::Route(router, family == INTERNET4, sets))
}

/// The datagrams that answer a request for a change.
pub(super) fn answer(question: &[u8], port: u32, result: Result<(), Errno>) -> Vec<Vec<u8>> {
    const ACKNOWLEDGE: u8 = 4;
    let is_wanted = result.is_err() || question.get(6).is_some_and(|flags| flags & ACKNOWLEDGE != 0);
    if is_wanted { vec![told(question, port, result)] } else { Vec::new() }
}

/// The `NLMSG_ERROR` message with the result of a request.
pub(super) fn told(question: &[u8], port: u32, result: Result<(), Errno>) -> Vec<u8> {
    let error = result.map_or_else(|error| (error as i32).wrapping_neg(), |()| 0);
    let header = question.get(..HEADER).unwrap_or_default();
    let quoted = if result.is_ok() { header } else { question };
    let length = (HEADER + 4 + quoted.len()) as u32;
    let sequence = question.get(8..12).unwrap_or_default();
    [&length.to_le_bytes()[..], &ERROR.to_le_bytes(), &[0; 2], sequence, &port.to_le_bytes(), &error.to_le_bytes(), quoted].concat()
}

/// Bytes of a name and of an address, and offsets in `struct rtentry`.
const NAME: usize = 16;
const SOCKET_ADDRESS: usize = 16;

/// An `ioctl` that changes an interface or route.
///
/// # Errors
/// `ENODEV`: there is no such interface. `EPERM`: the card cannot have it. `EFAULT`.
pub(super) fn request(request: u32, argument: u64, outside: &mut InetState) -> Result<u64, Errno> {
    const ADD_ROUTE: u32 = 0x890b;
    const DELETE_ROUTE: u32 = 0x890c;
    const SET_FLAGS: u32 = 0x8914;
    const SET_ADDRESS: u32 = 0x8916;
    const SET_BROADCAST: u32 = 0x891a;
    const SET_MASK: u32 = 0x891c;
    const SET_MTU: u32 = 0x8922;
    const UP: u32 = 1;
    if matches!(request, ADD_ROUTE | DELETE_ROUTE) {
        return old_route(argument, request == ADD_ROUTE)?.apply(outside).map(|()| 0);
    }
    let mut name = [0; NAME];
    memory::read(argument, &mut name)?;
    let is_card = name.starts_with(b"eth0\0") && outside.card.is_some();
    if !is_card && !name.starts_with(b"lo\0") {
        return Err(Errno::ENODEV);
    }
    let at = argument.wrapping_add(NAME as u64);
    let own = outside.hosts.iter().find(|host| host.address.is_ipv4()).copied().filter(|_| is_card);
    let (loopback, bits) = (Ipv4Addr::LOCALHOST, 8);
    let (own4, prefix) = own.map_or((loopback, bits), |own| (if let IpAddr::V4(own) = own.address { own } else { loopback }, own.prefix));
    let all = Ipv4Addr::from_bits(own4.to_bits() | !mask(prefix).to_bits());
    let is_it = match request {
        SET_FLAGS => word32(at)? & UP != 0,
        SET_ADDRESS if is_card => {
            let wanted = address4(at)?;
            // The unspecified address removes the present one.
            let change = if wanted.is_unspecified() {
                Change::Address(own4.into(), prefix, false)
            } else {
                Change::Address(wanted.into(), prefix, true)
            };
            return change.apply(outside).map(|()| 0);
        }
        SET_ADDRESS => address4(at)? == own4,
        SET_BROADCAST => address4(at)? == all || address4(at)?.is_unspecified(),
        SET_MASK => address4(at)? == mask(prefix),
        SET_MTU => u64::from(word32(at)?) == if is_card { registers::card().mtu } else { 65_536 },
        _ => false,
    };
    if is_it { Ok(0) } else { Err(Errno::EPERM) }
}

/// The IPv4 address of a `struct sockaddr` in a request.
fn address4(at: u64) -> Result<Ipv4Addr, Errno> {
    let mut bytes = [0; SOCKET_ADDRESS];
    memory::read(at, &mut bytes)?;
    Ok(Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]))
}

/// The route of a `struct rtentry`.
fn old_route(argument: u64, sets: bool) -> Result<Change, Errno> {
    const DESTINATION: u64 = 8;
    const ROUTER: u64 = 24;
    const MASK: u64 = 40;
    let [destination, router, bits] = [DESTINATION, ROUTER, MASK].map(|at| address4(argument.wrapping_add(at)));
    let (destination, router, bits) = (destination?, router?, bits?);
    let named = Some(router).filter(|router| !router.is_unspecified()).map(IpAddr::V4);
    let is_everywhere = destination.is_unspecified() && bits.is_unspecified() && (named.is_some() || !sets);
    Ok(if is_everywhere { Change::Route(named, true, sets) } else { Change::Other })
}

#[cfg(test)]
mod tests {
    use super::{Change, asked};
    use crate::errno::Errno;
    use crate::files::socket::Sockets;
    use crate::files::socket::inet::{InterfaceAddress, NetworkCard};
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::IpAddr;

    fn message(kind: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let attributes =
            attributes.iter().flat_map(|(kind, value)| [&(4 + value.len() as u16).to_le_bytes()[..], &kind.to_le_bytes(), value].concat());
        [&[0; 4][..], &kind.to_le_bytes(), &[0; 10], body, &attributes.collect::<Vec<u8>>()].concat()
    }

    fn host(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_card_has_its_own_addresses_or_none() {
        let own =
            InterfaceAddress { address: host("10.77.0.2"), prefix: 16, router: Some(host("10.77.0.1")), is_set: true, is_routed: true };
        let mut sockets = Sockets::default();
        sockets.set_card(NetworkCard { mac: [0; 6], mtu: 1500 }, vec![own], 0);
        let outside = &mut sockets.outside;
        let change = |kind: u16, address: [u8; 4]| asked(&message(kind, &[2, 16, 0, 0, 2, 0, 0, 0], &[(2, &address)])).expect("a change");
        assert_eq!(change(20, [10, 77, 0, 2]), Change::Address(own.address, 16, true));
        let (far, near) = (host("8.8.8.8"), host("10.77.3.4"));
        assert!(outside.host_towards(far).is_some() && outside.host_towards(near).is_some());
        assert_eq!(change(20, [10, 77, 0, 3]).apply(outside), Err(Errno::EPERM));
        assert_eq!(change(21, [10, 77, 0, 2]).apply(outside), Ok(()));
        assert_eq!(change(21, [10, 77, 0, 2]).apply(outside), Err(Errno::EADDRNOTAVAIL));
        assert!(outside.host_towards(near).is_none() && !outside.is_own(own.address));
        assert_eq!(change(20, [10, 77, 0, 2]).apply(outside), Ok(()));
        assert!(outside.host_towards(near).is_some() && outside.host_towards(far).is_none());
        let by = |router: [u8; 4]| {
            asked(&message(24, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[(5, &router), (4, &[2, 0, 0, 0])])).expect("a change")
        };
        assert_eq!(by([10, 77, 0, 9]).apply(outside), Err(Errno::EPERM));
        assert_eq!(by([10, 77, 0, 1]).apply(outside), Ok(()));
        assert!(outside.host_towards(far).is_some());
    }

    #[test]
    fn what_is_cut_short_changes_nothing() {
        let whole = message(20, &[2, 16, 0, 0, 2, 0, 0, 0], &[(2, &[10, 77, 0, 2])]);
        for length in 6..whole.len() {
            assert_eq!(asked(&whole[..length]), Some(Change::Other), "{length}");
        }
        assert_eq!(asked(&[0; 5]), None);
    }
}
