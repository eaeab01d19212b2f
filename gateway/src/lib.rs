// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user-space gateway for cells, without root and without a device: a host of their network that proxies each TCP connection and UDP
//! flow through a socket of the host.
//!
//! No packet of a cell is forwarded: TCP ends here, on the stack of `pando-stack`, which answers for every address, and its payload goes
//! through a socket of the host. A cell's connection is accepted once the host's has been, and refused as the host's was. A slow side
//! throttles the other. A side that has finished sending can still receive.
//!
//! [`Rule`]s allow destinations; without rules nothing can be reached. The host's own addresses are allowed one by one, its loopback at
//! the gateway's own address. DNS queries go to the host's resolvers; the responses give the addresses of a rule's name.
//!
//! [`VirtualHosts`] are one listening address for many cells: the name that a client requests chooses the cell.
//!
//! [`Tap`] is the alternative with a TAP device: it forwards frames unchanged.
//!
//! [`Gateway::bind`] opens the sockets that may need a privilege, before the process drops its privileges. [`Gateway::run`] is the
//! body of a thread, [`Gateway::run_with_wakeup`] that of a process of its own. A confined process must allow the calls that they
//! make: `epoll`, making and connecting sockets of the two families, and operations on open sockets.
#![forbid(unsafe_code)]

mod address;
mod dhcp_server;
mod dns;
mod dns_proxy;
mod engine;
mod limits;
mod listeners;
mod poll;
mod port_forward;
mod proxy_state;
mod request_name;
mod routes;
mod rules;
mod sockets;
mod stack_counts;
mod tap;
mod tcp_proxy;
mod timers;
mod udp_proxy;
mod virtual_hosts;

pub use engine::{Counts, Gateway, GatewayReport};
pub use listeners::BindError;
pub use pando_stack::{FramePort, TxSink};
pub use poll::{Handle, Wakeup};
pub use port_forward::{PortForward, Publication};
pub use routes::RefusedDestination;
pub use rules::Rule;
pub use tap::{Tap, TapCounts};
pub use virtual_hosts::{DirectoryAnswer, NameDirectory, VirtualHosts};

use std::net::{Ipv4Addr, Ipv6Addr};

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}

/// The addresses of the gateway in the network of its cells.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct GatewayAddresses {
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
    /// Maps the Ethernet address of a cell's card to the IPv4 address that the cell gets by DHCP; `None` if it is no cell's. This
    /// function is not sent to another process.
    #[serde(skip, default = "no_leases")]
    pub dhcp_address: fn([u8; 6]) -> Option<Ipv4Addr>,
    /// A secret random number.
    pub seed: u64,
}

/// Gives no cell an address.
fn no_leases() -> fn([u8; 6]) -> Option<Ipv4Addr> {
    |_| None
}

#[cfg(test)]
impl GatewayAddresses {
    /// An example for tests.
    pub(crate) fn example() -> GatewayAddresses {
        GatewayAddresses {
            mac: [2, 0, 0, 0, 0, 1],
            address4: Ipv4Addr::new(10, 77, 0, 1),
            prefix4: 16,
            address6: Ipv6Addr::new(0xfd70, 0, 0, 0, 0, 0, 0, 1),
            prefix6: 64,
            mtu: u16::MAX,
            cell: Ipv4Addr::new(10, 77, 0, 2),
            dhcp_address: |mac| (mac == [2, 0, 0, 0, 0, 2]).then_some(Ipv4Addr::new(10, 77, 0, 2)),
            seed: 1,
        }
    }
}
