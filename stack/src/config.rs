// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a stack is told at its making, and what a connection may be told later.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

/// What a stack is told at its making.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its addresses, each with the length of its network's prefix. The first of a family is the one it speaks of itself with.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Where IPv4 packets go that are for none of the networks.
    pub gateway4: Option<Ipv4Addr>,
    /// Where IPv6 packets go that are for none of the networks.
    pub gateway6: Option<Ipv6Addr>,
    /// The longest IP packet, header included: 576 to 65535. A frame is 14 bytes longer.
    pub mtu: usize,
    /// Takes packets for every address, not only for its own: what a gateway does.
    pub any_address: bool,
    /// Computes and checks the sums of TCP and UDP: for links that may corrupt.
    pub checksums: bool,
    /// What is unpredictable about the stack. Not to be guessed by strangers.
    pub seed: u64,
    /// Bytes that a connection keeps of what arrived, and as many of what it sends, at most: 2 KiB to 1 GiB.
    pub buffer: usize,
    /// Bytes for all connections' buffers. The fuller it is, the less a new connection gets, but 8 KiB each way always.
    pub memory: usize,
    /// How many connections may be open at once.
    pub connections: usize,
    /// How many strangers may knock at once: of more, who has knocked longest is forgotten. Two KiB each, at most.
    pub half_open: usize,
    /// How many connections that are over may answer what was lost at their end: of more, those that ended first are forgotten. A few hundred bytes each.
    pub lingering: usize,
}

impl Config {
    /// A stack without addresses, for Ethernet's usual packets, with numbers that suit most.
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
            lingering: 16_384,
        }
    }
}

/// What a connection may be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOptions {
    /// Sends little pieces at once, whatever is still under way (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Asks whether the other side is still there when it has been silent.
    pub keep_alive: Option<KeepAlive>,
    /// How long what was sent may stay unanswered before the connection is given up (`TCP_USER_TIMEOUT`).
    pub patience: Duration,
    /// How many routers a packet may pass.
    pub hops: u8,
}

impl Default for TcpOptions {
    /// As Linux has them.
    fn default() -> Self {
        Self { no_delay: false, keep_alive: None, patience: Duration::from_secs(15 * 60), hops: 64 }
    }
}

/// When a silent other side is asked, and when it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first question (`TCP_KEEPIDLE`).
    pub idle: Duration,
    /// Between questions (`TCP_KEEPINTVL`).
    pub interval: Duration,
    /// Questions without an answer that end the connection (`TCP_KEEPCNT`).
    pub count: u32,
}
