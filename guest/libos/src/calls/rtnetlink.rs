// SPDX-License-Identifier: MIT OR Apache-2.0
//! rtnetlink, as far as C libraries and DHCP clients use it: queries of interfaces, addresses and routes, and their changes.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pando_rt::user::UserRange;

use super::interface_change::InterfaceChange;
use super::interfaces::{Interface, TX_QUEUE_LENGTH, interfaces};
use crate::credentials::capabilities::NET_ADMIN;
use crate::errno::Errno;
use crate::files::socket::SocketId;
use crate::files::socket::address::Address;
use crate::files::socket::cursor::Cursor;
use crate::files::socket::inet::InetState;
use crate::files::socket::names::{CARD, LOOPBACK};
use crate::system::System;

/// Bytes of a message's header: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// Types of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
/// The message is one of several (`NLM_F_MULTI`).
const MULTI: u16 = 2;
/// The maximal size of a request in bytes.
const REQUEST_MAX: usize = 4096;

/// Takes a request and puts the replies into the socket's receive queue.
///
/// # Errors
/// `EFAULT`, `EMSGSIZE`, `ENOMEM`.
pub fn send(system: &mut System, id: SocketId, ranges: &[UserRange]) -> Result<u64, Errno> {
    let length = Cursor::length(ranges);
    if length > REQUEST_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut request = vec![0; length];
    if Cursor::new(ranges, 0).fill(&mut request) < length {
        return Err(Errno::EFAULT);
    }
    let sockets = &mut system.files.sockets;
    if let Some(header) = request.first_chunk::<HEADER>() {
        if sockets.get(id)?.local == Address::Netlink(0) {
            sockets.get_mut(id)?.local = Address::Netlink(system.process.number);
        }
        let Address::Netlink(port) = sockets.get(id)?.local else { return Err(Errno::EINVAL) };
        let family = request.get(HEADER).copied().unwrap_or_default();
        let is_permitted = system.files.own.who.is_capable(NET_ADMIN);
        let replies = match decode_change(&request) {
            Some(_) if !is_permitted => vec![error_message(&request, port, Err(Errno::EPERM))],
            Some(change) => acknowledge(&request, port, change.apply(&mut sockets.outside)),
            None => reply(header, family, port, &sockets.outside),
        };
        for reply in replies {
            sockets.answer(id, Address::Netlink(0), &reply)?;
        }
    }
    Ok(length as u64)
}

/// The datagrams that answer a query of interfaces, addresses or routes.
fn reply(request: &[u8; HEADER], family: u8, port: u32, inet: &InetState) -> Vec<Vec<u8>> {
    let kind = u16::from_le_bytes([request[4], request[5]]);
    let sequence = [request[8], request[9], request[10], request[11]];
    let message = |kind: u16, flags: u16, body: &[u8]| {
        let length = (HEADER + body.len()) as u32;
        let [kind, flags] = [kind, flags].map(u16::to_le_bytes);
        [&length.to_le_bytes()[..], &kind, &flags, &sequence, &port.to_le_bytes(), body].concat()
    };
    let all = |kind: u16, bodies: Vec<Vec<u8>>| -> Vec<u8> { bodies.iter().flat_map(|body| message(kind, MULTI, body)).collect() };
    let done = message(DONE, MULTI, &[0; 4]);
    let is_requested = |host: &IpAddr| family == 0 || family == family_of(host);
    let listed = match kind {
        GET_LINK => all(NEW_LINK, interfaces(inet).iter().map(encode_link).collect()),
        GET_ADDRESS => {
            let of = |interface: &Interface| {
                interface.hosts.iter().filter(|(host, _)| is_requested(host)).map(|host| encode_address(interface, host)).collect()
            };
            all(NEW_ADDRESS, interfaces(inet).iter().flat_map(|interface| -> Vec<_> { of(interface) }).collect())
        }
        GET_ROUTE => {
            let routed = inet.hosts.iter().filter(|host| host.is_set && host.is_routed);
            all(NEW_ROUTE, routed.filter_map(|host| host.router).filter(is_requested).map(|router| encode_route(&router)).collect())
        }
        _ => {
            let error = (Errno::EOPNOTSUPP as i32).wrapping_neg();
            return vec![message(ERROR, 0, &[&error.to_le_bytes()[..], request].concat())];
        }
    };
    [listed, done].into_iter().filter(|datagram| !datagram.is_empty()).collect()
}

/// An attribute, padded.
fn encode_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len()) as u16;
    let mut bytes = [&length.to_le_bytes()[..], &kind.to_le_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn family_of(host: &IpAddr) -> u8 {
    if host.is_ipv4() { 2 } else { 10 }
}

fn octets(host: &IpAddr) -> Vec<u8> {
    match host {
        IpAddr::V4(host) => host.octets().to_vec(),
        IpAddr::V6(host) => host.octets().to_vec(),
    }
}

/// The body of a message about an interface.
fn encode_link(interface: &Interface) -> Vec<u8> {
    let Interface { index, name, flags, hardware, mac, mtu, .. } = interface;
    let [index, flags] = [*index, *flags].map(u32::to_le_bytes);
    let mut bytes = [&[0, 0][..], &hardware.to_le_bytes(), &index, &flags, &[0; 4]].concat();
    let broadcast = if interface.broadcast().is_some() { [0xff; 6] } else { [0; 6] };
    let attributes: [(u16, &[u8]); 6] =
        [(1, mac), (2, &broadcast), (3, name), (4, &mtu.to_le_bytes()), (13, &TX_QUEUE_LENGTH.to_le_bytes()), (16, &[0])];
    for (kind, value) in attributes {
        bytes.extend(encode_attribute(kind, value));
    }
    bytes
}

/// The body of a message about one of its addresses.
fn encode_address(interface: &Interface, (host, prefix): &(IpAddr, u8)) -> Vec<u8> {
    const PERMANENT: u8 = 0x80;
    let mut bytes = [&[family_of(host), *prefix, PERMANENT, interface.scope][..], &interface.index.to_le_bytes()].concat();
    bytes.extend(encode_attribute(1, &octets(host)));
    if host.is_ipv4() {
        bytes.extend(encode_attribute(2, &octets(host)));
        bytes.extend(interface.broadcast().map(|all| encode_attribute(4, &all.octets())).unwrap_or_default());
        bytes.extend(encode_attribute(3, interface.name));
    }
    bytes
}

/// The body of a message about the default route.
fn encode_route(router: &IpAddr) -> Vec<u8> {
    const MAIN: u8 = 254;
    const BOOT: u8 = 3;
    const UNICAST: u8 = 1;
    let mut bytes = [&[family_of(router), 0, 0, 0, MAIN, BOOT, 0, UNICAST][..], &[0; 4]].concat();
    bytes.extend(encode_attribute(5, &octets(router)));
    bytes.extend(encode_attribute(4, &CARD.to_le_bytes()));
    bytes
}

/// The change that an rtnetlink message requests. `None`: it requests none.
pub(super) fn decode_change(request: &[u8]) -> Option<InterfaceChange> {
    /// Bytes of the bodies before the attributes of messages about links, addresses and routes.
    const LINK: usize = 16;
    const ADDRESS: usize = 8;
    const ROUTE: usize = 12;
    let kind = u16::from_le_bytes([*request.get(4)?, *request.get(5)?]);
    let body = request.get(HEADER..).unwrap_or_default();
    Some(match kind {
        16 | 19 => decode_link(body).filter(|_| body.len() >= LINK).unwrap_or(InterfaceChange::Other),
        20 | 21 => decode_address(body, body.get(ADDRESS..).unwrap_or_default(), kind == 20).unwrap_or(InterfaceChange::Other),
        24 | 25 => decode_route(body, body.get(ROUTE..).unwrap_or_default(), kind == 24).unwrap_or(InterfaceChange::Other),
        17 | 28 | 29 | 32 | 33 => InterfaceChange::Other,
        _ => return None,
    })
}

fn word(body: &[u8], at: usize) -> Option<u32> {
    body.get(at..at + 4)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// The value of an attribute.
fn find_attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
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

fn decode_host(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        16 => value.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

/// A change of a link: up or down.
fn decode_link(body: &[u8]) -> Option<InterfaceChange> {
    const UP: u32 = 1;
    let (index, flags, change) = (word(body, 4)?, word(body, 8)?, word(body, 12)?);
    let is_up = flags & UP != 0 || change & UP == 0;
    let changes_other_flags = change != u32::MAX && change & !UP != 0;
    Some(if matches!(index, 0 | LOOPBACK | CARD) && !changes_other_flags { InterfaceChange::Up(is_up) } else { InterfaceChange::Other })
}

fn decode_address(body: &[u8], attributes: &[u8], sets: bool) -> Option<InterfaceChange> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let (prefix, index) = (*body.get(1)?, word(body, 4)?);
    let host = find_attribute(attributes, LOCAL).or_else(|| find_attribute(attributes, ADDRESS)).and_then(decode_host)?;
    (index == CARD).then_some(InterfaceChange::Address(host, prefix, sets))
}

fn decode_route(body: &[u8], attributes: &[u8], sets: bool) -> Option<InterfaceChange> {
    const INTERNET4: u8 = 2;
    const LINK: u16 = 4;
    const ROUTER: u16 = 5;
    let (family, prefix) = (*body.first()?, *body.get(1)?);
    let is_at_card = find_attribute(attributes, LINK).and_then(|link| word(link, 0)).is_none_or(|index| index == CARD);
    let router = find_attribute(attributes, ROUTER).and_then(decode_host);
    let is_valid = prefix == 0 && is_at_card && (router.is_some() || !sets);
    is_valid.then_some(InterfaceChange::Route(router, family == INTERNET4, sets))
}

/// The datagrams that answer a request for a change.
fn acknowledge(request: &[u8], port: u32, result: Result<(), Errno>) -> Vec<Vec<u8>> {
    const ACKNOWLEDGE: u8 = 4;
    let is_wanted = result.is_err() || request.get(6).is_some_and(|flags| flags & ACKNOWLEDGE != 0);
    if is_wanted { vec![error_message(request, port, result)] } else { Vec::new() }
}

/// The `NLMSG_ERROR` message with the result of a request.
fn error_message(request: &[u8], port: u32, result: Result<(), Errno>) -> Vec<u8> {
    let error = result.map_or_else(|error| (error as i32).wrapping_neg(), |()| 0);
    let header = request.get(..HEADER).unwrap_or_default();
    let quoted = if result.is_ok() { header } else { request };
    let length = (HEADER + 4 + quoted.len()) as u32;
    let sequence = request.get(8..12).unwrap_or_default();
    [&length.to_le_bytes()[..], &ERROR.to_le_bytes(), &[0; 2], sequence, &port.to_le_bytes(), &error.to_le_bytes(), quoted].concat()
}

#[cfg(test)]
mod tests {
    use super::{InterfaceChange, decode_change};
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
        let inet = &mut sockets.outside;
        let change =
            |kind: u16, address: [u8; 4]| decode_change(&message(kind, &[2, 16, 0, 0, 2, 0, 0, 0], &[(2, &address)])).expect("a change");
        assert_eq!(change(20, [10, 77, 0, 2]), InterfaceChange::Address(own.address, 16, true));
        let (far, near) = (host("8.8.8.8"), host("10.77.3.4"));
        assert!(inet.host_towards(far).is_some() && inet.host_towards(near).is_some());
        assert_eq!(change(20, [10, 77, 0, 3]).apply(inet), Err(Errno::EPERM));
        assert_eq!(change(21, [10, 77, 0, 2]).apply(inet), Ok(()));
        assert_eq!(change(21, [10, 77, 0, 2]).apply(inet), Err(Errno::EADDRNOTAVAIL));
        assert!(inet.host_towards(near).is_none() && !inet.is_own(own.address));
        assert_eq!(change(20, [10, 77, 0, 2]).apply(inet), Ok(()));
        assert!(inet.host_towards(near).is_some() && inet.host_towards(far).is_none());
        let by = |router: [u8; 4]| {
            decode_change(&message(24, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[(5, &router), (4, &[2, 0, 0, 0])])).expect("a change")
        };
        assert_eq!(by([10, 77, 0, 9]).apply(inet), Err(Errno::EPERM));
        assert_eq!(by([10, 77, 0, 1]).apply(inet), Ok(()));
        assert!(inet.host_towards(far).is_some());
    }

    #[test]
    fn a_truncated_message_changes_nothing() {
        let whole = message(20, &[2, 16, 0, 0, 2, 0, 0, 0], &[(2, &[10, 77, 0, 2])]);
        for length in 6..whole.len() {
            assert_eq!(decode_change(&whole[..length]), Some(InterfaceChange::Other), "{length}");
        }
        assert_eq!(decode_change(&[0; 5]), None);
    }
}
