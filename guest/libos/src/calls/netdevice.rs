// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries about network interfaces, which are loopback and, with a network, the card: by rtnetlink, as C libraries make them, and
//! by `ioctl`.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use pando_rt::registers;
use pando_rt::user::{self as memory, UserRange};
use pando_stack::mask;

use super::rtnetlink;
use crate::credentials::capabilities::NET_ADMIN;
use crate::errno::Errno;
use crate::files::socket::SocketId;
use crate::files::socket::address::Address;
use crate::files::socket::cursor::Cursor;
use crate::files::socket::inet::InetState;
use crate::files::socket::names::{CARD, LOOPBACK};
use crate::system::System;
use crate::user::{set_word32, word32, words};

/// Bytes of a message's header: length, type, flags, sequence, port.
pub(super) const HEADER: usize = 16;
/// Types of messages.
pub(super) const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
/// The message is one of several (`NLM_F_MULTI`).
const MULTI: u16 = 2;
/// Most bytes of a query.
const QUESTION_MAX: usize = 4096;
/// Packets that an interface queues (`txqueuelen`).
const QUEUE: u32 = 1000;

/// An interface.
struct Interface {
    index: u32,
    name: &'static [u8],
    flags: u32,
    /// Linux's number of its hardware type.
    hardware: u16,
    mac: [u8; 6],
    mtu: u32,
    /// Its addresses and their prefix lengths.
    hosts: Vec<(IpAddr, u8)>,
    /// The scope of its addresses.
    scope: u8,
}

/// All interfaces.
fn interfaces(outside: &InetState) -> Vec<Interface> {
    const LOOP: u16 = 772;
    const ETHERNET: u16 = 1;
    const HOST: u8 = 254;
    let loopback = Interface {
        index: LOOPBACK,
        name: b"lo\0",
        // `IFF_UP`, `IFF_LOOPBACK`, `IFF_RUNNING`, `IFF_LOWER_UP`.
        flags: 0x1_0049,
        hardware: LOOP,
        mac: [0; 6],
        mtu: 65536,
        hosts: vec![(Ipv4Addr::LOCALHOST.into(), 8), (core::net::Ipv6Addr::LOCALHOST.into(), 128)],
        scope: HOST,
    };
    let shown = registers::card();
    let [a, b, c, d, e, f, ..] = shown.mac.to_le_bytes();
    let card = (shown.mtu != 0).then(|| Interface {
        index: CARD,
        name: b"eth0\0",
        // `IFF_UP`, `IFF_BROADCAST`, `IFF_RUNNING`, `IFF_MULTICAST`, `IFF_LOWER_UP`.
        flags: 0x1_1043,
        hardware: ETHERNET,
        mac: [a, b, c, d, e, f],
        mtu: shown.mtu as u32,
        hosts: outside.hosts.iter().filter(|host| host.is_set).map(|host| (host.address, host.prefix)).collect(),
        scope: 0,
    });
    [loopback].into_iter().chain(card).collect()
}

impl Interface {
    /// Its IPv4 address and prefix length.
    fn host4(&self) -> Option<(Ipv4Addr, u8)> {
        self.hosts.iter().find_map(|(host, prefix)| if let IpAddr::V4(host) = host { Some((*host, *prefix)) } else { None })
    }

    /// The broadcast address of its IPv4 network.
    fn broadcast(&self) -> Option<Ipv4Addr> {
        let (host, prefix) = self.host4().filter(|_| self.index != LOOPBACK)?;
        Some(Ipv4Addr::from_bits(host.to_bits() | !mask(prefix).to_bits()))
    }
}

/// Takes a query and puts the answers into the socket's receive queue.
///
/// # Errors
/// `EFAULT`, `EMSGSIZE`, `ENOMEM`.
pub fn ask(system: &mut System, id: SocketId, ranges: &[UserRange]) -> Result<u64, Errno> {
    let length = Cursor::length(ranges);
    if length > QUESTION_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut question = vec![0; length];
    if Cursor::new(ranges, 0).fill(&mut question) < length {
        return Err(Errno::EFAULT);
    }
    let sockets = &mut system.files.sockets;
    if let Some(header) = question.first_chunk::<HEADER>() {
        if sockets.get(id)?.local == Address::Netlink(0) {
            sockets.get_mut(id)?.local = Address::Netlink(system.process.number);
        }
        let Address::Netlink(port) = sockets.get(id)?.local else { return Err(Errno::EINVAL) };
        let family = question.get(HEADER).copied().unwrap_or_default();
        let may = system.files.own.who.is_capable(NET_ADMIN);
        let answers = match rtnetlink::asked(&question) {
            Some(_) if !may => vec![rtnetlink::told(&question, port, Err(Errno::EPERM))],
            Some(change) => rtnetlink::answer(&question, port, change.apply(&mut sockets.outside)),
            None => answers(header, family, port, &sockets.outside),
        };
        for answer in answers {
            sockets.answer(id, Address::Netlink(0), &answer)?;
        }
    }
    Ok(length as u64)
}

/// The datagrams that answer a query.
fn answers(question: &[u8; HEADER], family: u8, port: u32, outside: &InetState) -> Vec<Vec<u8>> {
    let kind = u16::from_le_bytes([question[4], question[5]]);
    let sequence = [question[8], question[9], question[10], question[11]];
    let message = |kind: u16, flags: u16, body: &[u8]| {
        let length = (HEADER + body.len()) as u32;
        let [kind, flags] = [kind, flags].map(u16::to_le_bytes);
        [&length.to_le_bytes()[..], &kind, &flags, &sequence, &port.to_le_bytes(), body].concat()
    };
    let all = |kind: u16, bodies: Vec<Vec<u8>>| -> Vec<u8> { bodies.iter().flat_map(|body| message(kind, MULTI, body)).collect() };
    let done = message(DONE, MULTI, &[0; 4]);
    let asked = |host: &IpAddr| family == 0 || family == family_of(host);
    let said = match kind {
        GET_LINK => all(NEW_LINK, interfaces(outside).iter().map(link).collect()),
        GET_ADDRESS => {
            let of = |interface: &Interface| {
                interface.hosts.iter().filter(|(host, _)| asked(host)).map(|host| address(interface, host)).collect()
            };
            all(NEW_ADDRESS, interfaces(outside).iter().flat_map(|interface| -> Vec<_> { of(interface) }).collect())
        }
        GET_ROUTE => {
            let routed = outside.hosts.iter().filter(|host| host.is_set && host.is_routed);
            all(NEW_ROUTE, routed.filter_map(|host| host.router).filter(asked).map(|router| route(&router)).collect())
        }
        _ => {
            let refused = (Errno::EOPNOTSUPP as i32).wrapping_neg();
            return vec![message(ERROR, 0, &[&refused.to_le_bytes()[..], question].concat())];
        }
    };
    [said, done].into_iter().filter(|datagram| !datagram.is_empty()).collect()
}

/// An attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
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
fn link(interface: &Interface) -> Vec<u8> {
    let Interface { index, name, flags, hardware, mac, mtu, .. } = interface;
    let [index, flags] = [*index, *flags].map(u32::to_le_bytes);
    let mut bytes = [&[0, 0][..], &hardware.to_le_bytes(), &index, &flags, &[0; 4]].concat();
    let everybody = if interface.broadcast().is_some() { [0xff; 6] } else { [0; 6] };
    let attributes: [(u16, &[u8]); 6] =
        [(1, mac), (2, &everybody), (3, name), (4, &mtu.to_le_bytes()), (13, &QUEUE.to_le_bytes()), (16, &[0])];
    for (kind, value) in attributes {
        bytes.extend(attribute(kind, value));
    }
    bytes
}

/// The body of a message about one of its addresses.
fn address(interface: &Interface, (host, prefix): &(IpAddr, u8)) -> Vec<u8> {
    const PERMANENT: u8 = 0x80;
    let mut bytes = [&[family_of(host), *prefix, PERMANENT, interface.scope][..], &interface.index.to_le_bytes()].concat();
    bytes.extend(attribute(1, &octets(host)));
    if host.is_ipv4() {
        bytes.extend(attribute(2, &octets(host)));
        bytes.extend(interface.broadcast().map(|all| attribute(4, &all.octets())).unwrap_or_default());
        bytes.extend(attribute(3, interface.name));
    }
    bytes
}

/// The body of a message about the default route.
fn route(router: &IpAddr) -> Vec<u8> {
    const MAIN: u8 = 254;
    const BOOT: u8 = 3;
    const UNICAST: u8 = 1;
    let mut bytes = [&[family_of(router), 0, 0, 0, MAIN, BOOT, 0, UNICAST][..], &[0; 4]].concat();
    bytes.extend(attribute(5, &octets(router)));
    bytes.extend(attribute(4, &CARD.to_le_bytes()));
    bytes
}

/// Bytes of a `struct ifreq`, and of the name at its start.
const REQUEST: usize = 40;
pub(super) const NAME: usize = 16;

/// The number of the interface with this name, padded with zeros.
///
/// # Errors
/// `ENODEV`: there is none.
pub(super) fn number_of(name: &[u8; NAME]) -> Result<u32, Errno> {
    names().find(|(_, own)| name.starts_with(own)).map(|(number, _)| number).ok_or(Errno::ENODEV)
}

/// The numbers and names of all interfaces.
fn names() -> impl Iterator<Item = (u32, &'static [u8])> {
    let card = (registers::card().mtu != 0).then_some((CARD, &b"eth0\0"[..]));
    [(LOOPBACK, &b"lo\0"[..])].into_iter().chain(card)
}

/// The name of the interface with this number, with a zero at its end.
pub(super) fn name_of_number(number: u32) -> Option<&'static [u8]> {
    names().find(|(own, _)| *own == number).map(|(_, name)| name)
}

/// An `ioctl` about interfaces. `None`: it is about something else.
///
/// # Errors
/// `ENODEV`: there is no such interface. `EPERM`: the card cannot have it. `EADDRNOTAVAIL`: it has no such address. `EFAULT`,
/// `EINVAL`.
pub fn ioctl(system: &mut System, request: u32, argument: u64) -> Option<Result<u64, Errno>> {
    let may = system.files.own.who.is_capable(NET_ADMIN);
    let outside = &mut system.files.sockets.outside;
    /// `SIOCGIFCONF`: lists the interfaces.
    const CONFIGURATION: u32 = 0x8912;
    const NAME_OF: u32 = 0x8910;
    /// Requests that change an interface.
    const CHANGES: [u32; 10] = [0x890b, 0x890c, 0x8914, 0x8916, 0x8918, 0x891a, 0x891c, 0x891e, 0x8922, 0x8924];
    match request {
        CONFIGURATION => Some(configuration(argument, outside)),
        NAME_OF => Some(name_of(argument)),
        _ if CHANGES.contains(&request) && !may => Some(Err(Errno::EPERM)),
        _ if CHANGES.contains(&request) => Some(rtnetlink::request(request, argument, outside)),
        0x8911..=0x8942 => Some(told(request, argument, outside)).filter(|told| *told != Err(Errno::ENOTTY)),
        _ => None,
    }
}

/// An address as a `struct sockaddr`.
fn host(host: Ipv4Addr) -> [u8; 16] {
    let [a, b, c, d] = host.octets();
    [2, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn configuration(argument: u64, outside: &InetState) -> Result<u64, Errno> {
    let room = word32(argument)?.cast_signed();
    let [list] = words(argument.wrapping_add(8))?;
    let mut entries = Vec::new();
    for interface in interfaces(outside) {
        let Some((own, _)) = interface.host4() else { continue };
        let mut entry = [0; REQUEST];
        entry[..interface.name.len()].copy_from_slice(interface.name);
        entry[NAME..NAME + 16].copy_from_slice(&host(own));
        entries.extend(entry);
    }
    if list != 0 {
        entries.truncate(usize::try_from(room).unwrap_or_default() / REQUEST * REQUEST);
        memory::write(list, &entries)?;
    }
    set_word32(argument, entries.len() as u32).map(|()| 0)
}

fn name_of(argument: u64) -> Result<u64, Errno> {
    let index = word32(argument.wrapping_add(NAME as u64))?;
    let name = name_of_number(index).ok_or(Errno::ENODEV)?;
    Ok(memory::write(argument, name).map(|()| 0)?)
}

/// Answers a request about a named interface.
fn told(request: u32, argument: u64, outside: &InetState) -> Result<u64, Errno> {
    let mut name = [0; NAME];
    memory::read(argument, &mut name)?;
    let interface = interfaces(outside).into_iter().find(|interface| name.starts_with(interface.name)).ok_or(Errno::ENODEV)?;
    // Requests for its address fail if it has none.
    let own4 = interface.host4().ok_or(Errno::EADDRNOTAVAIL);
    let mut bytes = [0; 16];
    match request {
        // The lower 16 bits of its flags.
        0x8913 => bytes[..2].copy_from_slice(&(interface.flags as u16).to_le_bytes()),
        0x8915 | 0x8917 => bytes = host(own4?.0),
        0x8919 => bytes = host(interface.broadcast().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        0x891b => bytes = host(mask(own4?.1)),
        0x891d => {}
        0x8921 => bytes[..4].copy_from_slice(&interface.mtu.to_le_bytes()),
        0x8927 => {
            bytes[..2].copy_from_slice(&interface.hardware.to_le_bytes());
            bytes[2..8].copy_from_slice(&interface.mac);
        }
        0x8933 => bytes[..4].copy_from_slice(&interface.index.to_le_bytes()),
        0x8942 => bytes[..4].copy_from_slice(&QUEUE.to_le_bytes()),
        _ => return Err(Errno::ENOTTY),
    }
    memory::write(argument.wrapping_add(NAME as u64), &bytes)?;
    Ok(0)
}
