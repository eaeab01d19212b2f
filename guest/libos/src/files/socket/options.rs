// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of sockets. Most of them are kept and told, and change nothing: there is no network for them to change.

use alloc::vec::Vec;

use super::{Family, Socket, State, Style};
use crate::errno::Errno;

/// Bytes that wait by default, as Linux counts them.
const BUFFER: usize = 212_992;
/// Bytes that a socket can be told to let wait, before they are doubled.
const BUFFER_MAX: usize = 212_992;
const SEND_MIN: usize = 4608;
const RECEIVE_MIN: usize = 2304;
/// What Linux says of a connection of TCP, whose buffers it sizes itself.
const TCP_SEND: usize = 2_626_560;
const TCP_RECEIVE: usize = 131_072;
/// Bytes of a segment that loopback carries.
const SEGMENT: u32 = 65_483;

/// Levels of options.
pub mod level {
    /// Of all sockets.
    pub const SOCKET: u32 = 1;
    /// Of IPv4.
    pub const IP: u32 = 0;
    /// Of IPv6.
    pub const IPV6: u32 = 41;
    /// Of TCP.
    pub const TCP: u32 = 6;
    /// Of UDP.
    pub const UDP: u32 = 17;
    /// Of UDP that checks a part of each packet only.
    pub const UDPLITE: u32 = 136;
    /// Of ICMPv6.
    pub const ICMP6: u32 = 58;
    /// Of raw packets.
    pub const RAW: u32 = 255;
    /// Of packets.
    pub const PACKET: u32 = 263;
    /// Of routing messages.
    pub const NETLINK: u32 = 270;
}

/// Options of all sockets.
pub mod option {
    /// Ports may be taken again.
    pub const REUSEADDR: u32 = 2;
    /// How it sends.
    pub const TYPE: u32 = 3;
    /// What went wrong.
    pub const ERROR: u32 = 4;
    /// Bytes that may wait to be sent.
    pub const SNDBUF: u32 = 7;
    /// Bytes that may wait to be read.
    pub const RCVBUF: u32 = 8;
    /// Whether closing waits.
    pub const LINGER: u32 = 13;
    /// Several may have one port.
    pub const REUSEPORT: u32 = 15;
    /// Who sends is told.
    pub const PASSCRED: u32 = 16;
    /// Who is at the other end.
    pub const PEERCRED: u32 = 17;
    /// Bytes for which a reader waits.
    pub const RCVLOWAT: u32 = 18;
    /// How long a reader waits.
    pub const RCVTIMEO: u32 = 20;
    /// How long a writer waits.
    pub const SNDTIMEO: u32 = 21;
    /// Whether it listens.
    pub const ACCEPTCONN: u32 = 30;
    /// The same as `SNDBUF`, for root.
    pub const SNDBUFFORCE: u32 = 32;
    /// The same as `RCVBUF`, for root.
    pub const RCVBUFFORCE: u32 = 33;
    /// Which interface it is bound to.
    pub const BINDTODEVICE: u32 = 25;
    /// Which protocol.
    pub const PROTOCOL: u32 = 38;
    /// Which family.
    pub const DOMAIN: u32 = 39;
}

/// What a socket is told to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// A port may be taken again.
    pub reuses_address: bool,
    /// A port may be had by several.
    pub shares_port: bool,
    /// Whoever receives is told who sent.
    pub passes_who: bool,
    /// IPv6 alone.
    pub only6: bool,
    /// The number of the interface that it is bound to.
    pub interface: Option<u32>,
    /// Seconds for which closing waits, if it does.
    pub linger: Option<u32>,
    /// Bytes that may wait to be sent.
    pub send_buffer: usize,
    /// Bytes that may wait to be read.
    pub receive_buffer: usize,
    /// Somebody has said how many may wait to be sent.
    sized: bool,
    /// Bytes for which a reader waits.
    pub low_mark: u32,
    /// Nanoseconds for which a reader waits; 0: for ever.
    pub receive_timeout: u64,
    /// The same of a writer.
    pub send_timeout: u64,
    /// What is only kept: level, option, value.
    kept: Vec<(u32, u32, u32)>,
}

/// Options that are kept and told: level, option, value at first. Those of a lower level are only there for its family.
const KEPT: &[(u32, u32, u32)] = &[
    // Debugging, routing, broadcasts, keeping alive, urgent bytes in line, priority, times of arrival.
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
    // Mark, drops, waiting at once, the processor and the queue that data came to, zero copies.
    (level::SOCKET, 36, 0),
    (level::SOCKET, 40, 0),
    (level::SOCKET, 46, 0),
    (level::SOCKET, 56, 0),
    (level::SOCKET, 60, 0),
    // Type of service, time to live, options, path's size, errors, addresses of packets, multicasts, binding to what is not there.
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
    // Hops, multicasts, path's size, errors, addresses of packets, classes.
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
    // Sending at once, segments, corks, keeping alive (when, how often, how many), attempts, lingering, accepting late, windows, acknowledging at once,
    // patience, opening fast (for listeners and for clients), thin streams, unsent bytes.
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
    // Corks, pieces.
    (level::UDP, 1, 0),
    (level::UDP, 103, 0),
    (level::UDP, 104, 0),
    // Bytes that are checked, of what is sent and of what is received.
    (level::UDPLITE, 10, 0),
    (level::UDPLITE, 11, 0),
    // Where the sum stands: ICMPv6 has it where it has it.
    (level::RAW, 7, 2),
    // What is beside packets.
    (level::PACKET, 8, 0),
    // Addresses of packets, strictness, errors.
    (level::NETLINK, 3, 0),
    (level::NETLINK, 10, 0),
    (level::NETLINK, 11, 0),
    (level::NETLINK, 12, 0),
];

/// What an option says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u32),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Options {
    /// What a fresh socket is told to do.
    #[must_use]
    pub fn new(family: Family, style: Style) -> Options {
        let is_tcp = family.is_internet() && style == Style::Stream;
        Options {
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

    /// What the accepted end has of those of its listener.
    #[must_use]
    pub fn inherited(&self) -> Options {
        self.clone()
    }

    /// How many bytes may wait at the other end of a stream, or one of them be large.
    #[must_use]
    pub fn send_limit(&self, is_tcp: bool) -> usize {
        // What one end may send and the other may read both make room.
        if is_tcp && self.sized { self.send_buffer + TCP_RECEIVE } else { self.send_buffer }
    }

    fn size(value: u32, least: usize) -> usize {
        (value as usize).min(BUFFER_MAX).saturating_mul(2).max(least)
    }
}

impl Socket {
    /// Whether an option that is only kept is one of this socket's.
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

    /// The error for a level or an option that is not there.
    fn unknown(&self, level: u32, is_set: bool) -> Errno {
        let has_levels = self.family == Family::Internet6 || self.family == Family::Internet4 && is_set;
        if self.keeps(level) || has_levels { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP }
    }

    /// Sets an option that is a number. `more`: a second one that follows it.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EOPNOTSUPP`: there is no such option. `EINVAL`: it cannot be that. `EPERM`: it may not force anything.
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
                options.send_buffer = Options::size(value, SEND_MIN);
                options.sized = true;
            }
            (level::SOCKET, option::RCVBUF | option::RCVBUFFORCE) => {
                if name == option::RCVBUFFORCE && !may_force {
                    return Err(Errno::EPERM);
                }
                options.receive_buffer = Options::size(value, RECEIVE_MIN);
            }
            (level::SOCKET, option::LINGER) => options.linger = if is_on { Some(more.ok_or(Errno::EINVAL)?) } else { None },
            // Zero asks for one.
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

    /// What an option says that is only kept. `None`: there is no such option.
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
        // Switches are on or off.
        const SWITCHES: [u32; 6] = [1, 5, 6, 9, 10, 29];
        const TCP_SWITCHES: [u32; 2] = [1, 3];
        const TTL: u32 = 2;
        const HOPS: u32 = 16;
        const CLASS: u32 = 67;
        let is_switch = level == level::SOCKET && SWITCHES.contains(&name) || level == level::TCP && TCP_SWITCHES.contains(&name);
        // The lowest two bits of the type of service are TCP's own.
        let is_service = level == level::IP && name == 1 && self.is_tcp();
        let value = match value {
            value if is_switch => u32::from(value != 0),
            value if is_service => value & !3,
            // What is usual.
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

    /// What an option says. What went wrong is forgotten with that.
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
            // Nothing but addresses and ports stands in the headers of packets.
            (level::IP, IP_OPTIONS) if self.family.is_internet() => return Ok(Value::Bytes(Vec::new())),
            (level::TCP, TCP_INFO) if self.is_tcp() => return Ok(self.information()),
            _ => self.kept_option(level, name).ok_or_else(|| self.unknown(level, false))?,
        };
        Ok(Value::Number(number))
    }

    /// `struct tcp_info`, as far as there is anything to say: the state, the segments' sizes, what waits, and what is usual on a fast network.
    fn information(&self) -> Value {
        const SIZE: usize = 248;
        let state = match &self.state {
            State::Connected(_) if self.finished => 8,
            State::Connected(_) if self.sends_ended => 5,
            State::Connected(_) => 1,
            State::Connecting(_) => 2,
            State::Listening { .. } => 10,
            State::Idle | State::Closed => 7,
        };
        let mut bytes = alloc::vec![0; SIZE];
        bytes[0] = state;
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
