// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of a stack, and the options of a connection.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

/// The configuration of a stack.
#[derive(Debug, Clone)]
pub struct Config {
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Addresses, each with its prefix length. The first of a family is the source address of packets that the stack originates itself.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Next hop of IPv4 packets that are outside all networks of the stack.
    pub gateway4: Option<Ipv4Addr>,
    /// Next hop of IPv6 packets that are outside all networks of the stack.
    pub gateway6: Option<Ipv6Addr>,
    /// MTU: the longest IP packet, header included: 576 to 65535. A frame is 14 bytes longer.
    pub mtu: usize,
    /// Accepts packets for every address, not only for its own, as a gateway does.
    pub any_address: bool,
    /// Computes and verifies the checksums of TCP and UDP. For links that may corrupt.
    pub checksums: bool,
    /// Seed of everything that is unpredictable about the stack. It must be secret.
    pub seed: u64,
    /// Bytes of each connection's receive buffer, and of its send buffer, at most: 2 KiB to 1 GiB.
    pub buffer: usize,
    /// Bytes for the buffers of all connections. The fuller it is, the less a new connection gets, but at least 8 KiB each way.
    pub memory: usize,
    /// Maximum number of open connections.
    pub connections: usize,
    /// Length of the SYN backlog. When it is full, the oldest half-open connection is dropped. Each takes two KiB at most.
    pub half_open: usize,
    /// Maximum number of connections in TIME-WAIT. Beyond it, the oldest is dropped. Each takes a few hundred bytes.
    pub time_wait: usize,
}

impl Config {
    /// A stack without addresses, with an MTU of 1500 and limits that suit most uses.
    pub fn new(mac: [u8; 6], seed: u64) -> Self {
        Self {
            mac,
            addresses: Vec::new(),
            gateway4: None,
            gateway6: None,
            mtu: 1500,
            any_address: false,
            checksums: false,
            seed,
            buffer: 256 << 10,
            memory: 128 << 20,
            connections: 65_536,
            half_open: 4096,
            time_wait: 16_384,
        }
    }
}

/// The options of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOptions {
    /// Sends small segments at once, even while data is unacknowledged (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Sends keep-alive probes when the peer is silent.
    pub keep_alive: Option<KeepAlive>,
    /// How long sent data may stay unacknowledged before the connection is aborted (`TCP_USER_TIMEOUT`).
    pub timeout: Duration,
    /// Hop limit (TTL).
    pub hops: u8,
}

impl Default for TcpOptions {
    /// Linux's defaults.
    fn default() -> Self {
        Self { no_delay: false, keep_alive: None, timeout: Duration::from_secs(15 * 60), hops: 64 }
    }
}

/// Keep-alive timing: when a silent peer is probed, and when the connection is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Idle time before the first probe (`TCP_KEEPIDLE`).
    pub idle: Duration,
    /// Time between probes (`TCP_KEEPINTVL`).
    pub interval: Duration,
    /// Unanswered probes after which the connection is aborted (`TCP_KEEPCNT`).
    pub count: u32,
}
