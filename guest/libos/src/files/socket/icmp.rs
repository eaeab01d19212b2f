// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of ICMP: sockets that ask for echoes, and raw ones, which say and hear every message.
//!
//! A socket for echoes has a number as others have a port; questions bear it, and answers that do are its own. What a cell asks itself is answered
//! here, what others ask it by the stack.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use pando_stack::{Message, Notice, sum};

use super::address::{Address, in_family, plain};
use super::names::LOOPBACK;
use super::options::level;
use super::queue::{Beside, Packet};
use super::transfer::{Destination, Sending, gather, giving};
use super::{Family, Socket, SocketId, Sockets, Style};
use crate::errno::Errno;

/// The protocol's number, of IPv4.
pub const ICMP: u32 = 1;
/// The same of IPv6.
pub const ICMP6: u32 = 58;
/// The protocol of sockets that send any packets, of which none hears any. Here they send none either.
pub const ANY: u32 = 255;
/// Bytes of a message's header.
const HEADER: usize = 8;
/// Bytes of an IPv4 packet's header.
const HEADER4: usize = 20;
/// Bytes of the largest message.
const MESSAGE_MAX: usize = 65_535 - HEADER4;

/// The kinds of questions for an echo, and of their answers.
const fn echo(is_ipv4: bool) -> [u8; 2] {
    if is_ipv4 { [8, 0] } else { [128, 129] }
}

/// The number that a question for an echo or its answer bears.
fn number(bytes: &[u8]) -> Option<u16> {
    bytes.get(4..6).map(|number| u16::from_be_bytes([number[0], number[1]]))
}

impl Socket {
    /// Whether it asks for echoes.
    #[must_use]
    pub fn is_echo(&self) -> bool {
        self.family.is_internet() && self.style == Style::Datagram && matches!(self.protocol, ICMP | ICMP6)
    }

    /// Whether its packets are those of the Internet as they are.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.family.is_internet() && self.style == Style::Raw
    }

    /// Whether it is between these two hosts, the first of them the cell's.
    fn joins(&self, local: IpAddr, remote: IpAddr) -> bool {
        let is_family = local.is_ipv4() == (self.family == Family::Internet4);
        let host = |address: Option<SocketAddr>| address.map(plain).map(|address| address.ip()).filter(|host| !host.is_unspecified());
        let is_bound = host(self.local.internet()).is_none_or(|own| own == local);
        let is_connected = self.is_echo() || host(self.remote.as_ref().and_then(Address::internet)).is_none_or(|other| other == remote);
        is_family && is_bound && is_connected
    }

    /// Whether a message is for it.
    fn wants(&self, message: &Message) -> bool {
        let Some(kind) = message.bytes.first().copied() else { return false };
        let is_its = if self.protocol == ANY {
            false
        } else if self.is_echo() {
            kind == echo(message.local.is_ipv4())[1] && message.bytes.len() >= HEADER && self.has_number(&message.bytes)
        } else {
            !self.shuts_out(kind)
        };
        is_its && self.joins(message.local, message.remote)
    }

    /// Whether it hears what comes by the interface of a number.
    fn hears_by(&self, by: u32) -> bool {
        self.options.interface.is_none_or(|only| only == by)
    }

    fn has_number(&self, message: &[u8]) -> bool {
        number(message).is_some() && self.local.internet().map(|own| own.port()) == number(message)
    }

    /// Whether its filter keeps this kind of message out. IPv4's knows the first kinds only.
    fn shuts_out(&self, kind: u8) -> bool {
        let is_known = self.family == Family::Internet6 || kind < 32;
        is_known && self.filter[usize::from(kind / 32)] & 1 << (kind % 32) != 0
    }
}

impl Sockets {
    /// Whether anybody hears messages.
    #[must_use]
    pub fn overhears(&self) -> bool {
        !self.icmp.is_empty()
    }

    /// Sends a message. Sums are the system's work, but for raw sockets of IPv4, and so is the number of a question for an echo.
    pub(super) fn send_message(&mut self, id: SocketId, to: &Destination, sending: Sending<'_>) -> Result<usize, Errno> {
        self.bind_any_port(id)?;
        let socket = self.get(id)?;
        let (is_echo, family) = (socket.is_echo(), socket.family);
        if socket.protocol == ANY {
            return Err(Errno::EOPNOTSUPP);
        }
        let to = match (to, socket.remote.as_ref().and_then(Address::internet)) {
            (Destination::Internet(to), _) => *to,
            (_, Some(remote)) => remote,
            _ => return Err(Errno::EDESTADDRREQ),
        };
        let to = self.reachable(id, to)?;
        if to.is_ipv4() != (family == Family::Internet4) {
            return Err(Errno::EINVAL);
        }
        let Sending { length, beside, give, .. } = sending;
        match length {
            _ if length > MESSAGE_MAX => return Err(Errno::EMSGSIZE),
            0..HEADER if is_echo => return Err(Errno::EINVAL),
            _ => {}
        }
        let socket = self.get_mut(id)?;
        socket.take_error()?;
        if socket.sends_ended {
            return Err(Errno::EPIPE);
        }
        let from = self.source(id, to)?;
        let hops = self.packet(id, to, beside.packet)?.hops.and_then(|hops| u8::try_from(hops).ok()).filter(|hops| *hops > 0).unwrap_or(64);
        let mut bytes = gather(length, give)?;
        if is_echo {
            if bytes[..2] != [echo(to.is_ipv4())[0], 0] {
                return Err(Errno::EINVAL);
            }
            bytes[4..6].copy_from_slice(&from.port().to_be_bytes());
        }
        if is_echo || to.is_ipv6() {
            sum(from.ip(), to.ip(), &mut bytes);
        }
        let message = Message { local: from.ip(), remote: to.ip(), bytes, hops };
        if self.outside.is_own(to.ip()) {
            self.carry_here(&message)
        } else {
            self.carry_out(message)
        }
        Ok(length)
    }

    /// Carries a message from the cell to itself, with the answer, if it asks for one.
    fn carry_here(&mut self, message: &Message) {
        let Message { local: from, remote: to, bytes, hops } = message;
        self.hear_message(&Message { local: *to, remote: *from, bytes: bytes.clone(), hops: *hops }, LOOPBACK);
        let [question, answer] = echo(to.is_ipv4());
        if bytes.len() >= HEADER && bytes.first() == Some(&question) {
            let mut bytes = bytes.clone();
            bytes[0] = answer;
            sum(*to, *from, &mut bytes);
            self.hear_message(&Message { local: *from, remote: *to, bytes, hops: 64 }, LOOPBACK);
        }
    }

    /// A message has arrived by the interface of a number: whoever wants it hears it.
    pub fn hear_message(&mut self, message: &Message, by: u32) {
        for index in 0..self.icmp.len() {
            let id = self.icmp[index];
            let Ok(socket) = self.get(id) else { continue };
            // What finds no room is lost.
            if !socket.hears_by(by) || !socket.wants(message) || socket.queue.used() >= socket.options.receive_buffer {
                continue;
            }
            let Message { local, remote, bytes, hops } = message;
            let from = Address::Internet(in_family(socket.family, SocketAddr::new(*remote, 0)));
            let header = if socket.is_raw() { header4(message) } else { Vec::new() };
            let packet = Packet { hops: Some((*hops).into()), class: Some(0), to: Some(*local), by, time: self.time() };
            let whole = [&header[..], bytes].concat();
            let Ok(socket) = self.get_mut(id) else { continue };
            // Without memory it is lost.
            if socket.queue.push_whole(whole.len(), from, Beside { packet, ..Beside::default() }, &mut giving(&whole)).is_ok() {
                socket.pulse.input();
            }
        }
    }

    /// The sockets of ICMP that a notice is for: those that may have sent what did not arrive.
    pub(super) fn senders(&self, notice: &Notice) -> Vec<SocketId> {
        let Notice { local, remote, quoted, .. } = notice;
        let has_sent = |socket: &Socket| {
            let is_its = !socket.is_echo() || quoted.first() == Some(&echo(local.is_ipv4())[0]) && socket.has_number(quoted);
            is_its && socket.joins(local.ip(), remote.ip())
        };
        self.icmp.iter().copied().filter(|id| self.get(*id).is_ok_and(has_sent)).collect()
    }
}

impl Socket {
    /// Whether it has a filter that is an option of this level.
    #[must_use]
    pub fn has_filter(&self, of: u32) -> bool {
        let own = if self.family == Family::Internet4 { level::RAW } else { ICMP6 };
        self.is_raw() && of == own
    }
}

/// The header that raw sockets of IPv4 see before a message. Nothing before it: of IPv6 they see none.
fn header4(message: &Message) -> Vec<u8> {
    let (IpAddr::V4(to), IpAddr::V4(from)) = (message.local, message.remote) else { return Vec::new() };
    let length = ((HEADER4 + message.bytes.len()) as u16).to_be_bytes();
    let mut header = [&[0x45, 0][..], &length, &[0, 0, 0x40, 0, message.hops, ICMP as u8, 0, 0], &from.octets(), &to.octets()].concat();
    let words = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let total: u32 = words.sum();
    let folded = (total & 0xffff) + (total >> 16);
    header[10..12].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
    header
}
