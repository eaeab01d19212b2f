// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket options. Most of them are only stored and returned, and have no effect.

use alloc::vec::Vec;

use super::{Family, SockType, Socket, State};
use crate::errno::Errno;
use crate::uapi::{
    IP_BIND_ADDRESS_NO_PORT, IP_FREEBIND, IP_MTU_DISCOVER, IP_MULTICAST_ALL, IP_MULTICAST_LOOP, IP_MULTICAST_TTL, IP_OPTIONS, IP_PKTINFO,
    IP_RECVERR, IP_RECVTOS, IP_RECVTTL, IP_RETOPTS, IP_TOS, IP_TTL, IPV6_2292HOPLIMIT, IPV6_CHECKSUM, IPV6_MTU_DISCOVER,
    IPV6_MULTICAST_HOPS, IPV6_MULTICAST_IF, IPV6_MULTICAST_LOOP, IPV6_RECVERR, IPV6_RECVHOPLIMIT, IPV6_RECVPKTINFO, IPV6_RECVTCLASS,
    IPV6_TCLASS, IPV6_UNICAST_HOPS, IPV6_V6ONLY, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK, NETLINK_PKTINFO, PACKET_AUXDATA,
    SO_ACCEPTCONN, SO_BROADCAST, SO_BUSY_POLL, SO_DEBUG, SO_DOMAIN, SO_DONTROUTE, SO_ERROR, SO_INCOMING_NAPI_ID, SO_KEEPALIVE, SO_LINGER,
    SO_MARK, SO_NO_CHECK, SO_OOBINLINE, SO_PASSCRED, SO_PEERCRED, SO_PRIORITY, SO_PROTOCOL, SO_RCVBUF, SO_RCVBUFFORCE, SO_RCVLOWAT,
    SO_REUSEADDR, SO_REUSEPORT, SO_RXQ_OVFL, SO_SNDBUF, SO_SNDBUFFORCE, SO_TIMESTAMP_OLD, SO_TIMESTAMPING_OLD, SO_TIMESTAMPNS_OLD, SO_TYPE,
    SO_ZEROCOPY, SOL_IP, SOL_IPV6, SOL_NETLINK, SOL_PACKET, SOL_RAW, SOL_SOCKET, SOL_TCP, SOL_UDP, SOL_UDPLITE, TCP_CLOSE, TCP_CLOSE_WAIT,
    TCP_CONGESTION, TCP_CORK, TCP_DEFER_ACCEPT, TCP_ESTABLISHED, TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FIN_WAIT2, TCP_INFO, TCP_KEEPCNT,
    TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_LINGER2, TCP_LISTEN, TCP_MAXSEG, TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_QUICKACK, TCP_SYN_SENT,
    TCP_SYNCNT, TCP_THIN_DUPACK, TCP_THIN_LINEAR_TIMEOUTS, TCP_USER_TIMEOUT, TCP_WINDOW_CLAMP, UDP_CORK, UDP_GRO, UDP_SEGMENT,
    UDPLITE_RECV_CSCOV, UDPLITE_SEND_CSCOV,
};

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

/// The options of a socket.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Its address may be reused (`SO_REUSEADDR`).
    pub reuses_address: bool,
    /// Its port may be shared (`SO_REUSEPORT`).
    pub shares_port: bool,
    /// Receivers get the sender's credentials (`SO_PASSCRED`).
    pub passes_credentials: bool,
    /// IPv6 only (`IPV6_V6ONLY`).
    pub is_v6_only: bool,
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
    stored: Vec<(u32, u32, u32)>,
}

/// Options that are stored and returned: level, option, initial value. Those of the protocol levels exist only for their family.
const STORED_OPTIONS: &[(u32, u32, u32)] = &[
    (SOL_SOCKET, SO_DEBUG, 0),
    (SOL_SOCKET, SO_DONTROUTE, 0),
    (SOL_SOCKET, SO_BROADCAST, 0),
    (SOL_SOCKET, SO_KEEPALIVE, 0),
    (SOL_SOCKET, SO_OOBINLINE, 0),
    (SOL_SOCKET, SO_NO_CHECK, 0),
    (SOL_SOCKET, SO_PRIORITY, 0),
    (SOL_SOCKET, SO_TIMESTAMP_OLD, 0),
    (SOL_SOCKET, SO_TIMESTAMPNS_OLD, 0),
    (SOL_SOCKET, SO_TIMESTAMPING_OLD, 0),
    (SOL_SOCKET, SO_MARK, 0),
    (SOL_SOCKET, SO_RXQ_OVFL, 0),
    (SOL_SOCKET, SO_BUSY_POLL, 0),
    (SOL_SOCKET, SO_INCOMING_NAPI_ID, 0),
    (SOL_SOCKET, SO_ZEROCOPY, 0),
    (SOL_IP, IP_TOS, 0),
    (SOL_IP, IP_TTL, 64),
    (SOL_IP, IP_RETOPTS, 0),
    (SOL_IP, IP_PKTINFO, 0),
    (SOL_IP, IP_MTU_DISCOVER, 1),
    (SOL_IP, IP_RECVERR, 0),
    (SOL_IP, IP_RECVTTL, 0),
    (SOL_IP, IP_RECVTOS, 0),
    (SOL_IP, IP_FREEBIND, 0),
    (SOL_IP, IP_BIND_ADDRESS_NO_PORT, 0),
    (SOL_IP, IP_MULTICAST_TTL, 1),
    (SOL_IP, IP_MULTICAST_LOOP, 1),
    (SOL_IP, IP_MULTICAST_ALL, 1),
    (SOL_IPV6, IPV6_2292HOPLIMIT, 0),
    (SOL_IPV6, IPV6_UNICAST_HOPS, 64),
    (SOL_IPV6, IPV6_MULTICAST_IF, 0),
    (SOL_IPV6, IPV6_MULTICAST_HOPS, 1),
    (SOL_IPV6, IPV6_MULTICAST_LOOP, 1),
    (SOL_IPV6, IPV6_MTU_DISCOVER, 1),
    (SOL_IPV6, IPV6_RECVERR, 0),
    (SOL_IPV6, IPV6_RECVPKTINFO, 0),
    (SOL_IPV6, IPV6_RECVHOPLIMIT, 0),
    (SOL_IPV6, IPV6_RECVTCLASS, 0),
    (SOL_IPV6, IPV6_TCLASS, 0),
    (SOL_TCP, TCP_NODELAY, 0),
    (SOL_TCP, TCP_MAXSEG, SEGMENT),
    (SOL_TCP, TCP_CORK, 0),
    (SOL_TCP, TCP_KEEPIDLE, 7200),
    (SOL_TCP, TCP_KEEPINTVL, 75),
    (SOL_TCP, TCP_KEEPCNT, 9),
    (SOL_TCP, TCP_SYNCNT, 6),
    (SOL_TCP, TCP_LINGER2, 60),
    (SOL_TCP, TCP_DEFER_ACCEPT, 0),
    (SOL_TCP, TCP_WINDOW_CLAMP, 65_536),
    (SOL_TCP, TCP_QUICKACK, 1),
    (SOL_TCP, TCP_THIN_LINEAR_TIMEOUTS, 0),
    (SOL_TCP, TCP_THIN_DUPACK, 0),
    (SOL_TCP, TCP_USER_TIMEOUT, 0),
    (SOL_TCP, TCP_FASTOPEN, 0),
    (SOL_TCP, TCP_NOTSENT_LOWAT, 0xffff_ffff),
    (SOL_TCP, TCP_FASTOPEN_CONNECT, 0),
    (SOL_UDP, UDP_CORK, 0),
    (SOL_UDP, UDP_SEGMENT, 0),
    (SOL_UDP, UDP_GRO, 0),
    (SOL_UDPLITE, UDPLITE_SEND_CSCOV, 0),
    (SOL_UDPLITE, UDPLITE_RECV_CSCOV, 0),
    // The offset of the checksum, which is fixed for ICMPv6.
    (SOL_RAW, IPV6_CHECKSUM, 2),
    (SOL_PACKET, PACKET_AUXDATA, 0),
    (SOL_NETLINK, NETLINK_PKTINFO, 0),
    (SOL_NETLINK, NETLINK_CAP_ACK, 0),
    (SOL_NETLINK, NETLINK_EXT_ACK, 0),
    (SOL_NETLINK, NETLINK_GET_STRICT_CHK, 0),
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
    pub fn new(family: Family, socket_type: SockType) -> SocketOptions {
        let is_tcp = family.is_internet() && socket_type == SockType::Stream;
        SocketOptions {
            reuses_address: false,
            shares_port: false,
            passes_credentials: false,
            is_v6_only: false,
            interface: None,
            linger: None,
            send_buffer: if is_tcp { TCP_SEND } else { BUFFER },
            receive_buffer: if is_tcp { TCP_RECEIVE } else { BUFFER },
            sized: false,
            low_mark: 1,
            receive_timeout: 0,
            send_timeout: 0,
            stored: Vec::new(),
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

    fn size(value: u32, min: usize) -> usize {
        (value as usize).min(BUFFER_MAX).saturating_mul(2).max(min)
    }
}

impl Socket {
    /// Whether a stored option applies to this socket.
    fn has_options_of(&self, level: u32) -> bool {
        match level {
            SOL_SOCKET => true,
            SOL_IP => self.family.is_internet(),
            SOL_IPV6 => self.family == Family::Inet6,
            SOL_TCP => self.is_tcp(),
            SOL_UDP => self.is_udp(),
            SOL_UDPLITE => self.protocol == SOL_UDPLITE,
            SOL_RAW => self.is_raw() && self.family == Family::Inet6,
            SOL_PACKET => self.family == Family::Packet,
            SOL_NETLINK => self.family == Family::Netlink,
            _ => false,
        }
    }

    /// The error for an unknown level or option.
    fn unknown(&self, level: u32, is_set: bool) -> Errno {
        let has_levels = self.family == Family::Inet6 || self.family == Family::Inet && is_set;
        if self.has_options_of(level) || has_levels { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP }
    }

    /// Sets an option to a number. `more`: a second number after it.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EOPNOTSUPP`: there is no such option. `EINVAL`: the value is invalid. `EPERM`: it may not exceed the limits.
    pub fn set_option(&mut self, level: u32, name: u32, value: u32, more: Option<u32>, may_force: bool) -> Result<(), Errno> {
        let is_on = value != 0;
        let options = &mut self.options;
        match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => options.reuses_address = is_on,
            (SOL_SOCKET, SO_REUSEPORT) if self.family.is_internet() => options.shares_port = is_on,
            (SOL_SOCKET, SO_REUSEPORT) => return Err(Errno::EOPNOTSUPP),
            (SOL_SOCKET, SO_PASSCRED) if self.family == Family::Unix => options.passes_credentials = is_on,
            (SOL_SOCKET, SO_PASSCRED) => return Err(Errno::EOPNOTSUPP),
            (SOL_SOCKET, SO_SNDBUF | SO_SNDBUFFORCE) => {
                if name == SO_SNDBUFFORCE && !may_force {
                    return Err(Errno::EPERM);
                }
                options.send_buffer = SocketOptions::size(value, SEND_MIN);
                options.sized = true;
            }
            (SOL_SOCKET, SO_RCVBUF | SO_RCVBUFFORCE) => {
                if name == SO_RCVBUFFORCE && !may_force {
                    return Err(Errno::EPERM);
                }
                options.receive_buffer = SocketOptions::size(value, RECEIVE_MIN);
            }
            (SOL_SOCKET, SO_LINGER) => options.linger = if is_on { Some(more.ok_or(Errno::EINVAL)?) } else { None },
            // Zero means one.
            (SOL_SOCKET, SO_RCVLOWAT) => options.low_mark = if value > i32::MAX as u32 { i32::MAX as u32 } else { value.max(1) },
            (SOL_SOCKET, SO_TYPE | SO_PROTOCOL | SO_DOMAIN | SO_ERROR | SO_ACCEPTCONN | SO_PEERCRED) => {
                return Err(Errno::ENOPROTOOPT);
            }
            (SOL_IPV6, IPV6_V6ONLY) if self.family == Family::Inet6 => {
                if self.port.is_some() {
                    return Err(Errno::EINVAL);
                }
                options.is_v6_only = is_on;
            }
            _ => return self.store_option(level, name, value),
        }
        Ok(())
    }

    /// The value of a stored option. `None`: there is no such option.
    #[must_use]
    pub fn stored_option(&self, level: u32, name: u32) -> Option<u32> {
        let is = |(of, option, _): &&(u32, u32, u32)| (*of, *option) == (level, name);
        let (.., first) = STORED_OPTIONS.iter().find(is).filter(|_| self.has_options_of(level))?;
        Some(self.options.stored.iter().find(is).map_or(*first, |(.., value)| *value))
    }

    fn store_option(&mut self, level: u32, name: u32, value: u32) -> Result<(), Errno> {
        let is_stored = STORED_OPTIONS.iter().any(|(of, option, _)| (*of, *option) == (level, name));
        if !is_stored || !self.has_options_of(level) {
            return Err(self.unknown(level, true));
        }
        // Booleans are 0 or 1.
        const SWITCHES: [u32; 6] = [SO_DEBUG, SO_DONTROUTE, SO_BROADCAST, SO_KEEPALIVE, SO_OOBINLINE, SO_TIMESTAMP_OLD];
        const TCP_SWITCHES: [u32; 2] = [TCP_NODELAY, TCP_CORK];
        let is_switch = level == SOL_SOCKET && SWITCHES.contains(&name) || level == SOL_TCP && TCP_SWITCHES.contains(&name);
        // The lowest two bits of the type of service belong to TCP (ECN).
        let is_service = level == SOL_IP && name == IP_TOS && self.is_tcp();
        let value = match value {
            value if is_switch => u32::from(value != 0),
            value if is_service => value & !3,
            // -1 stands for the default.
            u32::MAX if matches!((level, name), (SOL_IPV6, IPV6_UNICAST_HOPS | IPV6_TCLASS) | (SOL_IP, IP_TTL)) => {
                STORED_OPTIONS.iter().find(|(of, option, _)| (*of, *option) == (level, name)).map_or(0, |(.., first)| *first)
            }
            value => value,
        };
        let stored = &mut self.options.stored;
        match stored.iter_mut().find(|(of, option, _)| (*of, *option) == (level, name)) {
            Some((.., old)) => *old = value,
            None => stored.push((level, name, value)),
        }
        Ok(())
    }

    /// The value of an option. Reading the pending error clears it.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EOPNOTSUPP`: there is no such option.
    pub fn option(&mut self, level: u32, name: u32) -> Result<Value, Errno> {
        const CONGESTION: &[u8; 16] = b"cubic\0\0\0\0\0\0\0\0\0\0\0";
        let options = &self.options;
        let number = match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => options.reuses_address.into(),
            (SOL_SOCKET, SO_REUSEPORT) => options.shares_port.into(),
            (SOL_SOCKET, SO_PASSCRED) if self.family.is_internet() => return Err(Errno::EOPNOTSUPP),
            (SOL_SOCKET, SO_PASSCRED) => options.passes_credentials.into(),
            (SOL_SOCKET, SO_SNDBUF) => options.send_buffer as u32,
            (SOL_SOCKET, SO_RCVBUF) => options.receive_buffer as u32,
            (SOL_SOCKET, SO_RCVLOWAT) => options.low_mark,
            (SOL_SOCKET, SO_TYPE) => self.socket_type.number(),
            (SOL_SOCKET, SO_PROTOCOL) => self.protocol,
            (SOL_SOCKET, SO_DOMAIN) => self.family.number().into(),
            (SOL_SOCKET, SO_ACCEPTCONN) => self.listens().into(),
            (SOL_SOCKET, SO_ERROR) => self.take_error().err().map_or(0, |error| error as u32),
            (SOL_SOCKET, SO_LINGER) => {
                return Ok(words(&[options.linger.is_some().into(), options.linger.unwrap_or_default()]));
            }
            (SOL_SOCKET, SO_PEERCRED) => {
                let none = [0, u32::MAX, u32::MAX];
                return Ok(words(
                    &self.peer_credentials.map_or(none, |credentials| [credentials.process, credentials.user, credentials.group]),
                ));
            }
            (SOL_IPV6, IPV6_V6ONLY) if self.family == Family::Inet6 => options.is_v6_only.into(),
            (SOL_TCP, TCP_CONGESTION) if self.is_tcp() => return Ok(Value::Bytes(CONGESTION.to_vec())),
            // Packets have no IP options.
            (SOL_IP, IP_OPTIONS) if self.family.is_internet() => return Ok(Value::Bytes(Vec::new())),
            (SOL_TCP, TCP_INFO) if self.is_tcp() => return Ok(self.information()),
            _ => self.stored_option(level, name).ok_or_else(|| self.unknown(level, false))?,
        };
        Ok(Value::Number(number))
    }

    /// Linux's number of a TCP socket's state.
    #[must_use]
    pub fn tcp_state(&self) -> u8 {
        match &self.state {
            State::Connected(_) if self.has_peer_finished => TCP_CLOSE_WAIT,
            State::Connected(_) if self.is_send_shutdown => TCP_FIN_WAIT2,
            State::Connected(_) => TCP_ESTABLISHED,
            State::Connecting(_) => TCP_SYN_SENT,
            State::Listening { .. } => TCP_LISTEN,
            State::Idle | State::Closed => TCP_CLOSE,
        }
    }

    /// `struct tcp_info`: the state, segment sizes, the queue of a listener, and typical values of a fast network. Other fields are 0.
    fn information(&self) -> Value {
        const SIZE: usize = 248;
        let mut bytes = alloc::vec![0; SIZE];
        bytes[0] = self.tcp_state();
        // Offsets and values of `tcpi_rto`, `tcpi_ato`, `tcpi_snd_mss`, `tcpi_rcv_mss`, `tcpi_pmtu`, `tcpi_rcv_ssthresh`, `tcpi_rtt`,
        // `tcpi_rttvar`; `tcpi_snd_ssthresh`, `tcpi_snd_cwnd`, `tcpi_advmss`, `tcpi_reordering`, `tcpi_rcv_space`, `tcpi_min_rtt`.
        let usual = [(8, 204_000), (12, 40_000), (16, SEGMENT), (20, 536), (60, 65_535), (64, SEGMENT), (68, 100), (72, 50)];
        let more = [(76, i32::MAX as u32), (80, 10), (84, SEGMENT), (88, 3), (96, SEGMENT), (148, 50)];
        for (offset, value) in usual.into_iter().chain(more) {
            bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
        if let State::Listening { backlog, accept_queue, .. } = &self.state {
            bytes[24..28].copy_from_slice(&(accept_queue.len() as u32).to_le_bytes());
            bytes[28..32].copy_from_slice(&(*backlog as u32).to_le_bytes());
        }
        Value::Bytes(bytes)
    }
}

fn words(words: &[u32]) -> Value {
    Value::Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}
