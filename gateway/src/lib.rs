// SPDX-License-Identifier: MIT OR Apache-2.0
//! The world outside for cells, without root and without a device: a station of their network that speaks TCP and UDP with them and makes each connection one of the host's.
//!
//! Nothing of what cells send goes on as a packet: TCP ends here, on the stack of `pando-stack` that answers for every address, and what it carries goes on by a socket of
//! the host's. A cell's connection is accepted once the host's has been, and refused as the host's was. Where one side is slow, the other is made to wait; where one side
//! has finished, the other learns it and may go on.
//!
//! What can be reached is what [`Rule`]s open, and at first nothing is. The host's own addresses are opened one by one, its loopback at the gateway's own address. Questions about
//! names go to the host's resolvers; the answers say which addresses a rule's name has.
//!
//! [`Tap`] is the other way out, for who has a device: frames go on as they are.
//!
//! [`Gateway::bind`] takes from the host what may need a privilege, before the process gives them up; [`Gateway::run`] is the body of a thread. What it needs of the host then, a
//! confined process must allow: sockets of the two families, connecting them, and what is done with those that there are.
#![forbid(unsafe_code)]

mod address;
mod dns;
mod engine;
mod flows;
mod forward;
mod leases;
mod limits;
mod listeners;
mod poll;
mod questions;
mod rules;
mod sockets;
mod splices;
mod tap;
mod timers;
mod world;

pub use engine::{Counts, Gateway, Report};
pub use forward::Forward;
pub use listeners::BindError;
pub use pando_stack::{Outlet, Station};
pub use poll::Handle;
pub use rules::Rule;
pub use tap::{Tap, TapCounts};
pub use world::Refused;

use std::net::{Ipv4Addr, Ipv6Addr};

/// How a port is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// The gateway's place in the network of its cells.
#[derive(Clone, Debug)]
pub struct Inside {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its IPv4 address: the cells' router and resolver, and their name for the host.
    pub address4: Ipv4Addr,
    /// Bits of the network's IPv4 prefix.
    pub prefix4: u8,
    /// Its IPv6 address.
    pub address6: Ipv6Addr,
    /// Bits of the network's IPv6 prefix.
    pub prefix6: u8,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// The cell to which forwards lead.
    pub cell: Ipv4Addr,
    /// The IPv4 address of the cell whose card has an Ethernet address: what it is told when it asks by DHCP. `None`: it is no cell's.
    pub leases: fn([u8; 6]) -> Option<Ipv4Addr>,
    /// Something that nobody can guess.
    pub seed: u64,
}

#[cfg(test)]
impl Inside {
    /// Some place.
    pub(crate) fn example() -> Inside {
        Inside {
            mac: [2, 0, 0, 0, 0, 1],
            address4: Ipv4Addr::new(10, 77, 0, 1),
            prefix4: 16,
            address6: Ipv6Addr::new(0xfd70, 0, 0, 0, 0, 0, 0, 1),
            prefix6: 64,
            mtu: u16::MAX,
            cell: Ipv4Addr::new(10, 77, 0, 2),
            leases: |mac| (mac == [2, 0, 0, 0, 0, 2]).then_some(Ipv4Addr::new(10, 77, 0, 2)),
            seed: 1,
        }
    }
}
