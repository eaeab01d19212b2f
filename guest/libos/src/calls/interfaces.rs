// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network interfaces of a cell: loopback and, with a network, the card.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use pando_rt::registers;
use pando_stack::mask;

use crate::errno::Errno;
use crate::files::socket::inet::InetState;
use crate::files::socket::names::{CARD, LOOPBACK};
use crate::uapi::{
    ARPHRD_ETHER, ARPHRD_LOOPBACK, IFF_BROADCAST, IFF_LOOPBACK, IFF_LOWER_UP, IFF_MULTICAST, IFF_RUNNING, IFF_UP, IFNAMSIZ, RT_SCOPE_HOST,
};

/// Packets that an interface queues (`txqueuelen`).
pub(super) const TX_QUEUE_LENGTH: u32 = 1000;

/// An interface.
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: &'static [u8],
    pub(super) flags: u32,
    /// Linux's number of its hardware type.
    pub(super) hardware: u16,
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    /// Its addresses and their prefix lengths.
    pub(super) hosts: Vec<(IpAddr, u8)>,
    /// The scope of its addresses.
    pub(super) scope: u8,
}

/// All interfaces.
pub(super) fn interfaces(inet: &InetState) -> Vec<Interface> {
    let loopback = Interface {
        index: LOOPBACK,
        name: b"lo\0",
        flags: IFF_UP | IFF_LOOPBACK | IFF_RUNNING | IFF_LOWER_UP,
        hardware: ARPHRD_LOOPBACK,
        mac: [0; 6],
        mtu: 65536,
        hosts: vec![(Ipv4Addr::LOCALHOST.into(), 8), (core::net::Ipv6Addr::LOCALHOST.into(), 128)],
        scope: RT_SCOPE_HOST,
    };
    let registers = registers::card();
    let [a, b, c, d, e, f, ..] = registers.mac.to_le_bytes();
    let card = (registers.mtu != 0).then(|| Interface {
        index: CARD,
        name: b"eth0\0",
        flags: IFF_UP | IFF_BROADCAST | IFF_RUNNING | IFF_MULTICAST | IFF_LOWER_UP,
        hardware: ARPHRD_ETHER,
        mac: [a, b, c, d, e, f],
        mtu: registers.mtu as u32,
        hosts: inet.hosts.iter().filter(|host| host.is_set).map(|host| (host.address, host.prefix)).collect(),
        scope: 0,
    });
    [loopback].into_iter().chain(card).collect()
}

impl Interface {
    /// Its IPv4 address and prefix length.
    pub(super) fn host4(&self) -> Option<(Ipv4Addr, u8)> {
        self.hosts.iter().find_map(|(host, prefix)| if let IpAddr::V4(host) = host { Some((*host, *prefix)) } else { None })
    }

    /// The broadcast address of its IPv4 network.
    pub(super) fn broadcast(&self) -> Option<Ipv4Addr> {
        let (host, prefix) = self.host4().filter(|_| self.index != LOOPBACK)?;
        Some(Ipv4Addr::from_bits(host.to_bits() | !mask(prefix).to_bits()))
    }
}

/// The number of the interface with this name, padded with zeros.
///
/// # Errors
/// `ENODEV`: there is none.
pub(super) fn number_of(name: &[u8; IFNAMSIZ]) -> Result<u32, Errno> {
    names().find(|(_, interface_name)| name.starts_with(interface_name)).map(|(number, _)| number).ok_or(Errno::ENODEV)
}

/// The numbers and names of all interfaces.
fn names() -> impl Iterator<Item = (u32, &'static [u8])> {
    let card = (registers::card().mtu != 0).then_some((CARD, &b"eth0\0"[..]));
    [(LOOPBACK, &b"lo\0"[..])].into_iter().chain(card)
}

/// The name of the interface with this number, with a zero at its end.
pub(super) fn name_of_number(number: u32) -> Option<&'static [u8]> {
    names().find(|(index, _)| *index == number).map(|(_, name)| name)
}
