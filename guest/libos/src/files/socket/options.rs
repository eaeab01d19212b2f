// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket options. Most of them are only stored and returned, and have no effect.

use alloc::vec::Vec;

use super::{Family, Socket, State, Style};
use crate::errno::Errno;

/// Default buffer size in bytes, by Linux's accounting.
const BUFFER: usize = 212_992;
/// Maximum buffer size that a program can request in bytes, before it is doubled.
const BUFFER_MAX: usize = 212_992;
const SEND_MIN: usize = 4608;
const RECEIVE_MIN: usize = 2304;
/// Buffer sizes that Linux reports for a TCP connection, whose buffers it sizes itself.
const TCP_SEND: usize = 2_626_560;
const TCP_RECEIVE: usize = 131_072;
/// Maximum segment size on loopback in bytes.
const SEGMENT: u32 = 65_483;

/// Option levels.
pub mod level {
    /// All sockets.
    pub const SOCKET: u32 = 1;
    /// IPv4.
    pub const IP: u32 = 0;
    /// IPv6.
    pub const IPV6: u32 = 41;
    /// TCP.
    pub const TCP: u32 = 6;
    /// UDP.
    pub const UDP: u32 = 17;
    /// UDP-Lite, whose checksum covers only a part of each packet.
    pub const UDPLITE: u32 = 136;
    /// ICMPv6.
    pub const ICMP6: u32 = 58;
    /// Raw sockets.
    pub const RAW: u32 = 255;
    /// Packet sockets.
    pub const PACKET: u32 = 263;
    /// Netlink sockets.
    pub const NETLINK: u32 = 270;
}

/// Options of all sockets.
pub mod option {
    /// Addresses may be reused.
    pub const REUSEADDR: u32 = 2;
    /// The socket type.
    pub const TYPE: u32 = 3;
    /// The pending error.
    pub const ERROR: u32 = 4;
    /// Send buffer size in bytes.
    pub const SNDBUF: u32 = 7;
    /// Receive buffer size in bytes.
    pub const RCVBUF: u32 = 8;
    /// Whether and how long closing waits.
    pub const LINGER: u32 = 13;
    /// Several sockets may share a port.
    pub const REUSEPORT: u32 = 15;
    /// Receive the sender's credentials.
    pub const PASSCRED: u32 = 16;
    /// The peer's credentials.
    pub const PEERCRED: u32 = 17;
    /// Minimum bytes for a reader to return.
    pub const RCVLOWAT: u32 = 18;
    /// Receive timeout.
    pub const RCVTIMEO: u32 = 20;
    /// Send timeout.
    pub const SNDTIMEO: u32 = 21;
    /// Whether it listens.
    pub const ACCEPTCONN: u32 = 30;
    /// `SNDBUF` without its limit, for root.
    pub const SNDBUFFORCE: u32 = 32;
    /// `RCVBUF` without its limit, for root.
    pub const RCVBUFFORCE: u32 = 33;
    /// The interface it is bound to.
    pub const BINDTODEVICE: u32 = 25;
    /// The protocol.
    pub const PROTOCOL: u32 = 38;
    /// The address family.
    pub const DOMAIN: u32 = 39;
}

/// The options of a socket.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Its address may be reused (`SO_REUSEADDR`).
    pub reuses_address: bool,
    /// Its port may be shared (`SO_REUSEPORT`).
    pub shares_port: bool,
    /// Receivers get the sender's credentials (`SO_PASSCRED`).
    pub passes_who: bool,
    /// IPv6 only (`IPV6_V6ONLY`).
    pub only6: bool,
    /// The index of the interface that it is bound to.
    pub interface: Option<u32>,
    /// Seconds for which closing waits, if it does.
    pub linger: Option<u32>,
    /// Send buffer size in bytes.
    pub send_buffer: usize,
    /// Receive buffer size in bytes.
    pub receive_buffer: usize,
    /// The program has set the send buffer size.
    sized: bool,
    /// Minimum bytes for a reader to return.
    pub low_mark: u32,
    /// Receive timeout in nanoseconds; 0: none.
    pub receive_timeout: u64,
    /// Send timeout in nanoseconds; 0: none.
    pub send_timeout: u64,
    /// Options that are only stored: level, option, value.
    kept: Vec<(u32, u32, u32)>,
}

/// Options that are stored and returned: level, option, initial value. Those of the protocol levels exist only for their family.
const KEPT: &[(u32, u32, u32)] = &[
    // DEBUG, DONTROUTE, BROADCAST, KEEPALIVE, OOBINLINE, NO_CHECK, PRIORITY, TIMESTAMP, TIMESTAMPNS, TIMESTAMPING.
    (level::SOCKET, 1, 0),
    (level::SOCKET, 5, 0),
    (level::SOCKET, 6, 0),
    (level::SOCKET, 9, 0),
    (level::SOCKET, 10, 0),
    (level::SOCKET, 11, 0),
    (level::SOCKET, 12, 0),
    (level::SOCKET, 29, 0),
    (level::SOCKET, 35, 0),
    (level::SOCKET, 37, 0),
    // MARK, RXQ_OVFL, BUSY_POLL, INCOMING_NAPI_ID, ZEROCOPY.
    (level::SOCKET, 36, 0),
    (level::SOCKET, 40, 0),
    (level::SOCKET, 46, 0),
    (level::SOCKET, 56, 0),
    (level::SOCKET, 60, 0),
    // TOS, TTL, RETOPTS, PKTINFO, MTU_DISCOVER, RECVERR, RECVTTL, RECVTOS, FREEBIND, BIND_ADDRESS_NO_PORT, MULTICAST_TTL, MULTICAST_LOOP,
    // MULTICAST_ALL; IPv6: 2292HOPLIMIT.
    (level::IP, 1, 0),
    (level::IP, 2, 64),
    (level::IP, 7, 0),
    (level::IP, 8, 0),
    (level::IP, 10, 1),
    (level::IP, 11, 0),
    (level::IP, 12, 0),
    (level::IP, 13, 0),
    (level::IP, 15, 0),
    (level::IP, 24, 0),
    (level::IP, 33, 1),
    (level::IP, 34, 1),
    (level::IP, 49, 1),
    (level::IPV6, 8, 0),
    // UNICAST_HOPS, MULTICAST_IF, MULTICAST_HOPS, MULTICAST_LOOP, MTU_DISCOVER, RECVERR, RECVPKTINFO, RECVHOPLIMIT, RECVTCLASS, TCLASS.
    (level::IPV6, 16, 64),
    (level::IPV6, 17, 0),
    (level::IPV6, 18, 1),
    (level::IPV6, 19, 1),
    (level::IPV6, 23, 1),
    (level::IPV6, 25, 0),
    (level::IPV6, 49, 0),
    (level::IPV6, 51, 0),
    (level::IPV6, 66, 0),
    (level::IPV6, 67, 0),
    // NODELAY, MAXSEG, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2, DEFER_ACCEPT, WINDOW_CLAMP, QUICKACK, THIN_LINEAR_TIMEOUTS,
    // THIN_DUPACK, USER_TIMEOUT, FASTOPEN, NOTSENT_LOWAT, FASTOPEN_CONNECT.
    (level::TCP, 1, 0),
    (level::TCP, 2, SEGMENT),
    (level::TCP, 3, 0),
    (level::TCP, 4, 7200),
    (level::TCP, 5, 75),
    (level::TCP, 6, 9),
    (level::TCP, 7, 6),
    (level::TCP, 8, 60),
    (level::TCP, 9, 0),
    (level::TCP, 10, 65_536),
    (level::TCP, 12, 1),
    (level::TCP, 16, 0),
    (level::TCP, 17, 0),
    (level::TCP, 18, 0),
    (level::TCP, 23, 0),
    (level::TCP, 25, 0xffff_ffff),
    (level::TCP, 30, 0),
    // CORK, SEGMENT, GRO.
    (level::UDP, 1, 0),
    (level::UDP, 103, 0),
    (level::UDP, 104, 0),
    // SEND_CSCOV, RECV_CSCOV.
    (level::UDPLITE, 10, 0),
    (level::UDPLITE, 11, 0),
    // IPV6_CHECKSUM, the offset of the checksum, which is fixed for ICMPv6.
    (level::RAW, 7, 2),
    // AUXDATA.
    (level::PACKET, 8, 0),
    // PKTINFO, CAP_ACK, EXT_ACK, GET_STRICT_CHK.
    (level::NETLINK, 3, 0),
    (level::NETLINK, 10, 0),
    (level::NETLINK, 11, 0),
    (level::NETLINK, 12, 0),
];

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u32),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl SocketOptions {
    /// The options of a new socket.
    #[must_use]
    pub fn new(family: Family, style: Style) -> SocketOptions {
        let is_tcp = family.is_internet() && style == Style::Stream;
        SocketOptions {
            reuses_address: false,
            shares_port: false,
            passes_who: false,
            only6: false,
            interface: None,
            linger: None,
            send_buffer: if is_tcp { TCP_SEND } else { BUFFER },
            receive_buffer: if is_tcp { TCP_RECEIVE } else { BUFFER },
            sized: false,
            low_mark: 1,
            receive_timeout: 0,
            send_timeout: 0,
            kept: Vec::new(),
        }
    }

    /// The options that an accepted socket inherits from its listener.
    #[must_use]
    pub fn inherited(&self) -> SocketOptions {
        self.clone()
    }

    /// The limit on the bytes in the peer's queue of a stream, or on the size of a datagram.
    #[must_use]
    pub fn send_limit(&self, is_tcp: bool) -> usize {
        // The send buffer and the peer's receive buffer both count.
        if is_tcp && self.sized { self.send_buffer + TCP_RECEIVE } else { self.send_buffer }
    }

    fn size(value: u32, least: usize) -> usize {
        (value as usize).min(BUFFER_MAX).saturating_mul(2).max(least)
    }
}

impl Socket {
    /// Whether a stored option applies to this socket.
    fn keeps(&self, level: u32) -> bool {
        match level {
            level::SOCKET => true,
            level::IP => self.family.is_internet(),
            level::IPV6 => self.family == Family::Internet6,
            level::TCP => self.is_tcp(),
            level::UDP => self.is_udp(),
            level::UDPLITE => self.protocol == level::UDPLITE,
            level::RAW => self.is_raw() && self.family == Family::Internet6,
            level::PACKET => self.family == Family::Packet,
            level::NETLINK => self.family == Family::Netlink,
            _ => false,
        }
    }

    /// The error for an unknown level or option.
    fn unknown(&self, level: u32, is_set: bool) -> Errno {
        let has_levels = self.family == Family::Internet6 || self.family == Family::Internet4 && is_set;
        if self.keeps(level) || has_levels { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP }
    }

    /// Sets an option to a number. `more`: a second number after it.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EOPNOTSUPP`: there is no such option. `EINVAL`: the value is invalid. `EPERM`: it may not exceed the limits.
    pub fn set_option(&mut self, level: u32, name: u32, value: u32, more: Option<u32>, may_force: bool) -> Result<(), Errno> {
        const IPV6_ONLY: u32 = 26;
        let is_on = value != 0;
        let options = &mut self.options;
        match (level, name) {
            (level::SOCKET, option::REUSEADDR) => options.reuses_address = is_on,
            (level::SOCKET, option::REUSEPORT) if self.family.is_internet() => options.shares_port = is_on,
            (level::SOCKET, option::REUSEPORT) => return Err(Errno::EOPNOTSUPP),
            (level::SOCKET, option::PASSCRED) if self.family == Family::Unix => options.passes_who = is_on,
            (level::SOCKET, option::PASSCRED) => return Err(Errno::EOPNOTSUPP),
            (level::SOCKET, option::SNDBUF | option::SNDBUFFORCE) => {
                if name == option::SNDBUFFORCE && !may_force {
                    return Err(Errno::EPERM);
                }
                options.send_buffer = SocketOptions::size(value, SEND_MIN);
                options.sized = true;
            }
            (level::SOCKET, option::RCVBUF | option::RCVBUFFORCE) => {
                if name == option::RCVBUFFORCE && !may_force {
                    return Err(Errno::EPERM);
                }
                options.receive_buffer = SocketOptions::size(value, RECEIVE_MIN);
            }
            (level::SOCKET, option::LINGER) => options.linger = if is_on { Some(more.ok_or(Errno::EINVAL)?) } else { None },
            // Zero means one.
            (level::SOCKET, option::RCVLOWAT) => options.low_mark = if value > i32::MAX as u32 { i32::MAX as u32 } else { value.max(1) },
            (level::SOCKET, option::TYPE | option::PROTOCOL | option::DOMAIN | option::ERROR | option::ACCEPTCONN | option::PEERCRED) => {
                return Err(Errno::ENOPROTOOPT);
            }
            (level::IPV6, IPV6_ONLY) if self.family == Family::Internet6 => {
                if self.port.is_some() {
                    return Err(Errno::EINVAL);
                }
                options.only6 = is_on;
            }
            _ => return self.keep(level, name, value),
        }
        Ok(())
    }

    /// The value of a stored option. `None`: there is no such option.
    #[must_use]
    pub fn kept_option(&self, level: u32, name: u32) -> Option<u32> {
        let is = |(of, known, _): &&(u32, u32, u32)| (*of, *known) == (level, name);
        let (.., first) = KEPT.iter().find(is).filter(|_| self.keeps(level))?;
        Some(self.options.kept.iter().find(is).map_or(*first, |(.., value)| *value))
    }

    fn keep(&mut self, level: u32, name: u32, value: u32) -> Result<(), Errno> {
        let known = KEPT.iter().any(|(of, known, _)| (*of, *known) == (level, name));
        if !known || !self.keeps(level) {
            return Err(self.unknown(level, true));
        }
        // Booleans are 0 or 1.
        const SWITCHES: [u32; 6] = [1, 5, 6, 9, 10, 29];
        const TCP_SWITCHES: [u32; 2] = [1, 3];
        const TTL: u32 = 2;
        const HOPS: u32 = 16;
        const CLASS: u32 = 67;
        let is_switch = level == level::SOCKET && SWITCHES.contains(&name) || level == level::TCP && TCP_SWITCHES.contains(&name);
        // The lowest two bits of the type of service belong to TCP (ECN).
        let is_service = level == level::IP && name == 1 && self.is_tcp();
        let value = match value {
            value if is_switch => u32::from(value != 0),
            value if is_service => value & !3,
            // -1 stands for the default.
            u32::MAX if matches!((level, name), (level::IPV6, HOPS | CLASS) | (level::IP, TTL)) => {
                KEPT.iter().find(|(of, known, _)| (*of, *known) == (level, name)).map_or(0, |(.., first)| *first)
            }
            value => value,
        };
        let kept = &mut self.options.kept;
        match kept.iter_mut().find(|(of, known, _)| (*of, *known) == (level, name)) {
            Some((.., kept)) => *kept = value,
            None => kept.push((level, name, value)),
        }
        Ok(())
    }

    /// The value of an option. Reading the pending error clears it.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EOPNOTSUPP`: there is no such option.
    pub fn option(&mut self, level: u32, name: u32) -> Result<Value, Errno> {
        const IPV6_ONLY: u32 = 26;
        const IP_OPTIONS: u32 = 4;
        const TCP_INFO: u32 = 11;
        const TCP_CONGESTION: u32 = 13;
        const CONGESTION: &[u8; 16] = b"cubic\0\0\0\0\0\0\0\0\0\0\0";
        let options = &self.options;
        let number = match (level, name) {
            (level::SOCKET, option::REUSEADDR) => options.reuses_address.into(),
            (level::SOCKET, option::REUSEPORT) => options.shares_port.into(),
            (level::SOCKET, option::PASSCRED) if self.family.is_internet() => return Err(Errno::EOPNOTSUPP),
            (level::SOCKET, option::PASSCRED) => options.passes_who.into(),
            (level::SOCKET, option::SNDBUF) => options.send_buffer as u32,
            (level::SOCKET, option::RCVBUF) => options.receive_buffer as u32,
            (level::SOCKET, option::RCVLOWAT) => options.low_mark,
            (level::SOCKET, option::TYPE) => self.style.number(),
            (level::SOCKET, option::PROTOCOL) => self.protocol,
            (level::SOCKET, option::DOMAIN) => self.family.number().into(),
            (level::SOCKET, option::ACCEPTCONN) => self.listens().into(),
            (level::SOCKET, option::ERROR) => self.take_error().err().map_or(0, |error| error as u32),
            (level::SOCKET, option::LINGER) => {
                return Ok(words(&[options.linger.is_some().into(), options.linger.unwrap_or_default()]));
            }
            (level::SOCKET, option::PEERCRED) => {
                let none = [0, u32::MAX, u32::MAX];
                return Ok(words(&self.other.map_or(none, |who| [who.process, who.user, who.group])));
            }
            (level::IPV6, IPV6_ONLY) if self.family == Family::Internet6 => options.only6.into(),
            (level::TCP, TCP_CONGESTION) if self.is_tcp() => return Ok(Value::Bytes(CONGESTION.to_vec())),
            // Packets have no IP options.
            (level::IP, IP_OPTIONS) if self.family.is_internet() => return Ok(Value::Bytes(Vec::new())),
            (level::TCP, TCP_INFO) if self.is_tcp() => return Ok(self.information()),
            _ => self.kept_option(level, name).ok_or_else(|| self.unknown(level, false))?,
        };
        Ok(Value::Number(number))
    }

    /// Linux's number of a TCP socket's state.
    #[must_use]
    pub fn tcp_state(&self) -> u8 {
        match &self.state {
            State::Connected(_) if self.finished => 8,
            State::Connected(_) if self.sends_ended => 5,
            State::Connected(_) => 1,
            State::Connecting(_) => 2,
            State::Listening { .. } => 10,
            State::Idle | State::Closed => 7,
        }
    }

    /// `struct tcp_info`, as far as there is anything to say: the state, the segments' sizes, what waits, and what is usual on a fast network.
    fn information(&self) -> Value {
        const SIZE: usize = 248;
        let mut bytes = alloc::vec![0; SIZE];
        bytes[0] = self.tcp_state();
        // Microseconds until something is sent or acknowledged again; segments; the way's largest packet; windows; microseconds of a round; congestion.
        let usual = [(8, 204_000), (12, 40_000), (16, SEGMENT), (20, 536), (60, 65_535), (64, SEGMENT), (68, 100), (72, 50)];
        let more = [(76, i32::MAX as u32), (80, 10), (84, SEGMENT), (88, 3), (96, SEGMENT), (148, 50)];
        for (offset, value) in usual.into_iter().chain(more) {
            bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
        if let State::Listening { backlog, waiting, .. } = &self.state {
            bytes[24..28].copy_from_slice(&(waiting.len() as u32).to_le_bytes());
            bytes[28..32].copy_from_slice(&(*backlog as u32).to_le_bytes());
        }
        Value::Bytes(bytes)
    }
}

fn words(words: &[u32]) -> Value {
    Value::Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}
