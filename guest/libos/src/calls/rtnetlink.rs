// SPDX-License-Identifier: MIT OR Apache-2.0
//! rtnetlink, as far as C libraries and DHCP clients use it: queries of interfaces, addresses and routes, and their changes.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pando_rt::user::UserRange;

use super::interface_change::InterfaceChange;
use super::interfaces::{Interface, TX_QUEUE_LENGTH, interfaces};
use crate::errno::Errno;
use crate::files::socket::SocketId;
use crate::files::socket::address::Address;
use crate::files::socket::cursor::BufferCursor;
use crate::files::socket::inet::InetState;
use crate::files::socket::names::{CARD, LOOPBACK};
use crate::system::System;
use crate::uapi::{
    AF_INET, AF_INET6, CAP_NET_ADMIN, IFA_ADDRESS, IFA_BROADCAST, IFA_F_PERMANENT, IFA_LABEL, IFA_LOCAL, IFF_UP, IFLA_ADDRESS,
    IFLA_BROADCAST, IFLA_IFNAME, IFLA_MTU, IFLA_OPERSTATE, IFLA_TXQLEN, NLM_F_ACK, NLM_F_MULTI, NLMSG_DONE, NLMSG_ERROR, RT_TABLE_MAIN,
    RTA_GATEWAY, RTA_OIF, RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELROUTE, RTM_DELRULE, RTM_GETADDR, RTM_GETLINK, RTM_GETROUTE,
    RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWROUTE, RTM_NEWRULE, RTM_SETLINK, RTN_UNICAST, RTPROT_BOOT,
};

/// Bytes of a message's header: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// The maximal size of a request in bytes.
const REQUEST_MAX: usize = 4096;

/// Takes a request and puts the replies into the socket's receive queue.
///
/// # Errors
/// `EFAULT`, `EMSGSIZE`, `ENOMEM`.
pub fn send(system: &mut System, id: SocketId, ranges: &[UserRange]) -> Result<u64, Errno> {
    let length = BufferCursor::length(ranges);
    if length > REQUEST_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut request = vec![0; length];
    if BufferCursor::new(ranges, 0).fill(&mut request) < length {
        return Err(Errno::EFAULT);
    }
    let sockets = &mut system.files.sockets;
    if let Some(header) = request.first_chunk::<HEADER>() {
        if sockets.get(id)?.local == Address::Netlink(0) {
            sockets.get_mut(id)?.local = Address::Netlink(system.process.number);
        }
        let Address::Netlink(port) = sockets.get(id)?.local else { return Err(Errno::EINVAL) };
        let family = request.get(HEADER).copied().unwrap_or_default();
        let is_permitted = system.files.current.credentials.is_capable(CAP_NET_ADMIN);
        let replies = match decode_change(&request) {
            Some(_) if !is_permitted => vec![error_message(&request, port, Err(Errno::EPERM))],
            Some(change) => acknowledge(&request, port, change.apply(&mut sockets.inet)),
            None => reply(header, family, port, &sockets.inet),
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
    let all = |kind: u16, bodies: Vec<Vec<u8>>| -> Vec<u8> { bodies.iter().flat_map(|body| message(kind, NLM_F_MULTI, body)).collect() };
    let done = message(NLMSG_DONE, NLM_F_MULTI, &[0; 4]);
    let is_requested = |host: &IpAddr| family == 0 || family == family_of(host);
    let listed = match kind {
        RTM_GETLINK => all(RTM_NEWLINK, interfaces(inet).iter().map(encode_link).collect()),
        RTM_GETADDR => {
            let of = |interface: &Interface| {
                interface.hosts.iter().filter(|(host, _)| is_requested(host)).map(|host| encode_address(interface, host)).collect()
            };
            all(RTM_NEWADDR, interfaces(inet).iter().flat_map(|interface| -> Vec<_> { of(interface) }).collect())
        }
        RTM_GETROUTE => {
            let routed = inet.hosts.iter().filter(|host| host.is_set && host.is_routed);
            all(RTM_NEWROUTE, routed.filter_map(|host| host.router).filter(is_requested).map(|router| encode_route(&router)).collect())
        }
        _ => {
            let error = (Errno::EOPNOTSUPP as i32).wrapping_neg();
            return vec![message(NLMSG_ERROR, 0, &[&error.to_le_bytes()[..], request].concat())];
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
    (if host.is_ipv4() { AF_INET } else { AF_INET6 }) as u8
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
    let attributes: [(u16, &[u8]); 6] = [
        (IFLA_ADDRESS, mac),
        (IFLA_BROADCAST, &broadcast),
        (IFLA_IFNAME, name),
        (IFLA_MTU, &mtu.to_le_bytes()),
        (IFLA_TXQLEN, &TX_QUEUE_LENGTH.to_le_bytes()),
        (IFLA_OPERSTATE, &[0]),
    ];
    for (kind, value) in attributes {
        bytes.extend(encode_attribute(kind, value));
    }
    bytes
}

/// The body of a message about one of its addresses.
fn encode_address(interface: &Interface, (host, prefix): &(IpAddr, u8)) -> Vec<u8> {
    let mut bytes = [&[family_of(host), *prefix, IFA_F_PERMANENT, interface.scope][..], &interface.index.to_le_bytes()].concat();
    bytes.extend(encode_attribute(IFA_ADDRESS, &octets(host)));
    if host.is_ipv4() {
        bytes.extend(encode_attribute(IFA_LOCAL, &octets(host)));
        bytes.extend(interface.broadcast().map(|all| encode_attribute(IFA_BROADCAST, &all.octets())).unwrap_or_default());
        bytes.extend(encode_attribute(IFA_LABEL, interface.name));
    }
    bytes
}

/// The body of a message about the default route.
fn encode_route(router: &IpAddr) -> Vec<u8> {
    let mut bytes = [&[family_of(router), 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, 0, RTN_UNICAST][..], &[0; 4]].concat();
    bytes.extend(encode_attribute(RTA_GATEWAY, &octets(router)));
    bytes.extend(encode_attribute(RTA_OIF, &CARD.to_le_bytes()));
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
        RTM_NEWLINK | RTM_SETLINK => decode_link(body).filter(|_| body.len() >= LINK).unwrap_or(InterfaceChange::Other),
        RTM_NEWADDR | RTM_DELADDR => {
            decode_address(body, body.get(ADDRESS..).unwrap_or_default(), kind == RTM_NEWADDR).unwrap_or(InterfaceChange::Other)
        }
        RTM_NEWROUTE | RTM_DELROUTE => {
            decode_route(body, body.get(ROUTE..).unwrap_or_default(), kind == RTM_NEWROUTE).unwrap_or(InterfaceChange::Other)
        }
        RTM_DELLINK | RTM_NEWNEIGH | RTM_DELNEIGH | RTM_NEWRULE | RTM_DELRULE => InterfaceChange::Other,
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
    let (index, flags, change) = (word(body, 4)?, word(body, 8)?, word(body, 12)?);
    let is_up = flags & IFF_UP != 0 || change & IFF_UP == 0;
    let changes_other_flags = change != u32::MAX && change & !IFF_UP != 0;
    Some(if matches!(index, 0 | LOOPBACK | CARD) && !changes_other_flags { InterfaceChange::Up(is_up) } else { InterfaceChange::Other })
}

fn decode_address(body: &[u8], attributes: &[u8], sets: bool) -> Option<InterfaceChange> {
    let (prefix, index) = (*body.get(1)?, word(body, 4)?);
    let host = find_attribute(attributes, IFA_LOCAL).or_else(|| find_attribute(attributes, IFA_ADDRESS)).and_then(decode_host)?;
    (index == CARD).then_some(InterfaceChange::Address(host, prefix, sets))
}

fn decode_route(body: &[u8], attributes: &[u8], sets: bool) -> Option<InterfaceChange> {
    let (family, prefix) = (*body.first()?, *body.get(1)?);
    let is_at_card = find_attribute(attributes, RTA_OIF).and_then(|link| word(link, 0)).is_none_or(|index| index == CARD);
    let router = find_attribute(attributes, RTA_GATEWAY).and_then(decode_host);
    let is_valid = prefix == 0 && is_at_card && (router.is_some() || !sets);
    is_valid.then_some(InterfaceChange::Route(router, u16::from(family) == AF_INET, sets))
}

/// The datagrams that answer a request for a change.
fn acknowledge(request: &[u8], port: u32, result: Result<(), Errno>) -> Vec<Vec<u8>> {
    let is_wanted = result.is_err() || request.get(6).is_some_and(|flags| flags & NLM_F_ACK != 0);
    if is_wanted { vec![error_message(request, port, result)] } else { Vec::new() }
}

/// The `NLMSG_ERROR` message with the result of a request.
fn error_message(request: &[u8], port: u32, result: Result<(), Errno>) -> Vec<u8> {
    let error = result.map_or_else(|error| (error as i32).wrapping_neg(), |()| 0);
    let header = request.get(..HEADER).unwrap_or_default();
    let quoted = if result.is_ok() { header } else { request };
    let length = (HEADER + 4 + quoted.len()) as u32;
    let sequence = request.get(8..12).unwrap_or_default();
    [&length.to_le_bytes()[..], &NLMSG_ERROR.to_le_bytes(), &[0; 2], sequence, &port.to_le_bytes(), &error.to_le_bytes(), quoted].concat()
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
        let interface_address =
            InterfaceAddress { address: host("10.77.0.2"), prefix: 16, router: Some(host("10.77.0.1")), is_set: true, is_routed: true };
        let mut sockets = Sockets::default();
        sockets.set_card(NetworkCard { mac: [0; 6], mtu: 1500 }, vec![interface_address], 0);
        let inet = &mut sockets.inet;
        let change =
            |kind: u16, address: [u8; 4]| decode_change(&message(kind, &[2, 16, 0, 0, 2, 0, 0, 0], &[(2, &address)])).expect("a change");
        assert_eq!(change(20, [10, 77, 0, 2]), InterfaceChange::Address(interface_address.address, 16, true));
        let (far, near) = (host("8.8.8.8"), host("10.77.3.4"));
        assert!(inet.route_source(far).is_some() && inet.route_source(near).is_some());
        assert_eq!(change(20, [10, 77, 0, 3]).apply(inet), Err(Errno::EPERM));
        assert_eq!(change(21, [10, 77, 0, 2]).apply(inet), Ok(()));
        assert_eq!(change(21, [10, 77, 0, 2]).apply(inet), Err(Errno::EADDRNOTAVAIL));
        assert!(inet.route_source(near).is_none() && !inet.is_own(interface_address.address));
        assert_eq!(change(20, [10, 77, 0, 2]).apply(inet), Ok(()));
        assert!(inet.route_source(near).is_some() && inet.route_source(far).is_none());
        let by = |router: [u8; 4]| {
            decode_change(&message(24, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[(5, &router), (4, &[2, 0, 0, 0])])).expect("a change")
        };
        assert_eq!(by([10, 77, 0, 9]).apply(inet), Err(Errno::EPERM));
        assert_eq!(by([10, 77, 0, 1]).apply(inet), Ok(()));
        assert!(inet.route_source(far).is_some());
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
