// SPDX-License-Identifier: MIT OR Apache-2.0
//! IPPROTO_ICMP sockets: ping sockets, and raw ones, which send and receive every message.
//!
//! A ping socket has an identifier in place of a port; its echo requests carry it, and replies with that identifier are delivered to it.
//! Echo requests of the cell to itself are answered here, those of others by the stack.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use pando_stack::{IcmpError, IcmpMessage, fill_icmp_checksum};

use super::address::{Address, in_family, plain};
use super::names::LOOPBACK;
use super::queue::{ControlMessage, Packet};
use super::transfer::{Destination, SendRequest, gather, giving};
use super::{Family, SockType, Socket, SocketId, Sockets};
use crate::errno::Errno;
use crate::uapi::{IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_RAW, SOL_RAW};

/// Size of a message's header in bytes.
const HEADER: usize = 8;
/// Size of an IPv4 header in bytes.
const HEADER4: usize = 20;
/// Size of the largest message in bytes.
const MESSAGE_MAX: usize = 65_535 - HEADER4;

/// The types of echo requests and replies.
const fn echo(is_ipv4: bool) -> [u8; 2] {
    if is_ipv4 { [8, 0] } else { [128, 129] }
}

/// The identifier of an echo request or reply.
fn number(bytes: &[u8]) -> Option<u16> {
    bytes.get(4..6).map(|number| u16::from_be_bytes([number[0], number[1]]))
}

impl Socket {
    /// Whether it is a ping socket.
    #[must_use]
    pub fn is_echo(&self) -> bool {
        self.family.is_internet() && self.socket_type == SockType::Datagram && matches!(self.protocol, IPPROTO_ICMP | IPPROTO_ICMPV6)
    }

    /// Whether it is a raw IP socket.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.family.is_internet() && self.socket_type == SockType::Raw
    }

    /// Whether its addresses match these two hosts, the first of them the cell's.
    fn matches_addresses(&self, local: IpAddr, remote: IpAddr) -> bool {
        let is_family = local.is_ipv4() == (self.family == Family::Inet);
        let host = |address: Option<SocketAddr>| address.map(plain).map(|address| address.ip()).filter(|host| !host.is_unspecified());
        let is_bound = host(self.local.internet()).is_none_or(|bound| bound == local);
        let is_connected = self.is_echo() || host(self.remote.as_ref().and_then(Address::internet)).is_none_or(|other| other == remote);
        is_family && is_bound && is_connected
    }

    /// Whether a message is for it.
    fn wants(&self, message: &IcmpMessage) -> bool {
        let Some(kind) = message.bytes.first().copied() else { return false };
        let is_its = if self.protocol == IPPROTO_RAW {
            false
        } else if self.is_echo() {
            kind == echo(message.local.is_ipv4())[1] && message.bytes.len() >= HEADER && self.has_number(&message.bytes)
        } else {
            !self.is_filtered(kind)
        };
        is_its && self.matches_addresses(message.local, message.remote)
    }

    /// Whether it receives from this interface.
    fn accepts_by(&self, by: u32) -> bool {
        self.options.interface.is_none_or(|only| only == by)
    }

    fn has_number(&self, message: &[u8]) -> bool {
        number(message).is_some() && self.local.internet().map(|local| local.port()) == number(message)
    }

    /// Whether its filter drops this type of message. IPv4's filter covers only the lowest types.
    fn is_filtered(&self, kind: u8) -> bool {
        let is_known = self.family == Family::Inet6 || kind < 32;
        is_known && self.filter[usize::from(kind / 32)] & 1 << (kind % 32) != 0
    }
}

impl Sockets {
    /// Whether any socket receives IPPROTO_ICMP messages.
    #[must_use]
    pub fn wants_icmp(&self) -> bool {
        !self.icmp.is_empty()
    }

    /// Sends a message. The system computes checksums, except for raw IPv4 sockets, and sets the identifier of echo requests.
    pub(super) fn send_message(&mut self, id: SocketId, to: &Destination, sending: SendRequest<'_>) -> Result<usize, Errno> {
        self.bind_any_port(id)?;
        let socket = self.get(id)?;
        let (is_echo, family) = (socket.is_echo(), socket.family);
        if socket.protocol == IPPROTO_RAW {
            return Err(Errno::EOPNOTSUPP);
        }
        let to = match (to, socket.remote.as_ref().and_then(Address::internet)) {
            (Destination::Inet(to), _) => *to,
            (_, Some(remote)) => remote,
            _ => return Err(Errno::EDESTADDRREQ),
        };
        let to = self.reachable(id, to)?;
        if to.is_ipv4() != (family == Family::Inet) {
            return Err(Errno::EINVAL);
        }
        let SendRequest { length, control, give, .. } = sending;
        match length {
            _ if length > MESSAGE_MAX => return Err(Errno::EMSGSIZE),
            0..HEADER if is_echo => return Err(Errno::EINVAL),
            _ => {}
        }
        let socket = self.get_mut(id)?;
        socket.take_error()?;
        if socket.is_send_shutdown {
            return Err(Errno::EPIPE);
        }
        let from = self.source(id, to)?;
        let hops =
            self.packet(id, to, control.packet)?.hops.and_then(|hops| u8::try_from(hops).ok()).filter(|hops| *hops > 0).unwrap_or(64);
        let mut bytes = gather(length, give)?;
        if is_echo {
            if bytes[..2] != [echo(to.is_ipv4())[0], 0] {
                return Err(Errno::EINVAL);
            }
            bytes[4..6].copy_from_slice(&from.port().to_be_bytes());
        }
        if is_echo || to.is_ipv6() {
            fill_icmp_checksum(from.ip(), to.ip(), &mut bytes);
        }
        let message = IcmpMessage { local: from.ip(), remote: to.ip(), bytes, hops };
        if self.inet.is_own(to.ip()) {
            self.deliver_loopback(&message)
        } else {
            self.send_message_outside(message)
        }
        Ok(length)
    }

    /// Delivers a message from the cell to itself, and the reply to an echo request.
    fn deliver_loopback(&mut self, message: &IcmpMessage) {
        let IcmpMessage { local: from, remote: to, bytes, hops } = message;
        self.process_message(&IcmpMessage { local: *to, remote: *from, bytes: bytes.clone(), hops: *hops }, LOOPBACK);
        let [question, answer] = echo(to.is_ipv4());
        if bytes.len() >= HEADER && bytes.first() == Some(&question) {
            let mut bytes = bytes.clone();
            bytes[0] = answer;
            fill_icmp_checksum(*to, *from, &mut bytes);
            self.process_message(&IcmpMessage { local: *from, remote: *to, bytes, hops: 64 }, LOOPBACK);
        }
    }

    /// Delivers a message that arrived by an interface to all matching sockets.
    pub fn process_message(&mut self, message: &IcmpMessage, by: u32) {
        for index in 0..self.icmp.len() {
            let id = self.icmp[index];
            let Ok(socket) = self.get(id) else { continue };
            // A message that does not fit is dropped.
            if !socket.accepts_by(by) || !socket.wants(message) || socket.queue.used() >= socket.options.receive_buffer {
                continue;
            }
            let IcmpMessage { local, remote, bytes, hops } = message;
            let from = Address::Inet(in_family(socket.family, SocketAddr::new(*remote, 0)));
            let header = if socket.is_raw() { header4(message) } else { Vec::new() };
            let packet = Packet { hops: Some((*hops).into()), class: Some(0), to: Some(*local), by, time: self.time() };
            let whole = [&header[..], bytes].concat();
            let Ok(socket) = self.get_mut(id) else { continue };
            // Without memory it is dropped.
            if socket
                .queue
                .push_whole(whole.len(), from, ControlMessage { packet, ..ControlMessage::default() }, &mut giving(&whole))
                .is_ok()
            {
                socket.event_times.input();
            }
        }
    }

    /// The IPPROTO_ICMP sockets that an error message concerns: those that may have sent the failed packet.
    pub(super) fn senders(&self, notice: &IcmpError) -> Vec<SocketId> {
        let IcmpError { local, remote, quoted, .. } = notice;
        let has_sent = |socket: &Socket| {
            let is_its = !socket.is_echo() || quoted.first() == Some(&echo(local.is_ipv4())[0]) && socket.has_number(quoted);
            is_its && socket.matches_addresses(local.ip(), remote.ip())
        };
        self.icmp.iter().copied().filter(|id| self.get(*id).is_ok_and(has_sent)).collect()
    }
}

impl Socket {
    /// Whether it has an IPPROTO_ICMP filter that is an option of this level.
    #[must_use]
    pub fn has_filter(&self, of: u32) -> bool {
        let filter_level = if self.family == Family::Inet { SOL_RAW } else { IPPROTO_ICMPV6 };
        self.is_raw() && of == filter_level
    }
}

/// The IPv4 header that raw sockets receive before a message. Empty for IPv6, where they receive none.
fn header4(message: &IcmpMessage) -> Vec<u8> {
    let (IpAddr::V4(to), IpAddr::V4(from)) = (message.local, message.remote) else { return Vec::new() };
    let length = ((HEADER4 + message.bytes.len()) as u16).to_be_bytes();
    let mut header =
        [&[0x45, 0][..], &length, &[0, 0, 0x40, 0, message.hops, IPPROTO_ICMP as u8, 0, 0], &from.octets(), &to.octets()].concat();
    let words = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let total: u32 = words.sum();
    let folded = (total & 0xffff) + (total >> 16);
    header[10..12].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
    header
}
