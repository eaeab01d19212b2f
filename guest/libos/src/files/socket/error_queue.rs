// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of sent packets: the socket's pending error, and the error queue (`IP_RECVERR`).

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use pando_stack::{IcmpError, Unreachable};

use super::address::{Address, in_family, plain};
use super::names::CARD;
use super::{Family, SockType, Socket, SocketId, Sockets};
use crate::errno::Errno;
use crate::uapi::{IP_RECVERR, IPV6_RECVERR, SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6, SOL_IP, SOL_IPV6};

/// Upper limit on a socket's error queue; further errors are dropped.
const ERROR_QUEUE_MAX: usize = 64;

/// An entry of the error queue (`struct sock_extended_err`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketError {
    /// The error.
    pub error: Errno,
    /// Its origin, by Linux's number.
    pub origin: u8,
    /// The type of the ICMP message.
    pub kind: u8,
    /// The code of the ICMP message.
    pub code: u8,
    /// The path MTU, if the packet was too large.
    pub mtu: u32,
    /// The address of the error's sender.
    pub offender: IpAddr,
    /// The destination of the packet.
    pub to: Address,
    /// The payload of the packet, as far as it was returned.
    pub bytes: Vec<u8>,
}

/// The error for a message, and whether it ends a connection, as on Linux.
fn error_of(notice: &IcmpError) -> (Errno, bool) {
    use Errno as E;
    match (notice.from.is_ipv4(), notice.kind, notice.code) {
        (true, 3, 0 | 11) => (E::ENETUNREACH, false),
        (true, 3, 1 | 5 | 12) => (if notice.code == 5 { E::EOPNOTSUPP } else { E::EHOSTUNREACH }, false),
        (true, 3, 2) => (E::ENOPROTOOPT, true),
        (true, 3, 3) => (E::ECONNREFUSED, true),
        (true, 3, 4) => (E::EMSGSIZE, false),
        (true, 3, 6 | 9) => (E::ENETUNREACH, true),
        (true, 3, 7) => (E::EHOSTDOWN, true),
        (true, 3, 8) => (E::ENONET, true),
        (true, 3, 10 | 13..=15) => (E::EHOSTUNREACH, true),
        (false, 1, 0) => (E::ENETUNREACH, false),
        (false, 1, 1 | 5 | 6) => (E::EACCES, true),
        (false, 1, 4) => (E::ECONNREFUSED, true),
        (false, 2, _) => (E::EMSGSIZE, false),
        (false, 4, _) => (E::EPROTO, true),
        // Host unreachable, time exceeded.
        _ => (E::EHOSTUNREACH, false),
    }
}

impl Socket {
    /// Removes the next error. The one after it becomes the socket's pending error.
    pub fn take_queued_error(&mut self) -> Option<SocketError> {
        let error = self.error_queue.pop_front()?;
        self.error = self.error_queue.front().map(|next| next.error);
        Some(error)
    }

    /// Delivers a port unreachable error for a UDP datagram within the cell, in the form of an ICMP message that quotes its start.
    pub(super) fn process_refusal(&mut self, [local, remote]: [SocketAddr; 2], bytes: &[u8]) {
        const HEADER: usize = 8;
        const REPEATED: usize = 520;
        let (kind, code) = if remote.is_ipv4() { (3, 3) } else { (1, 4) };
        let quoted = [&[0; HEADER], &bytes[..bytes.len().min(REPEATED)]].concat();
        let notice = IcmpError { local, remote, unreachable: Unreachable::Port, from: remote.ip(), kind, code, mtu: 0, quoted };
        self.process_notice(&notice, remote.port());
    }

    fn process_notice(&mut self, notice: &IcmpError, port: u16) {
        let (of, option) = if self.family == Family::Inet6 { (SOL_IPV6, IPV6_RECVERR) } else { (SOL_IP, IP_RECVERR) };
        let is_enabled = self.stored_option(of, option).is_some_and(|value| value != 0);
        let (error, is_final) = error_of(notice);
        let remote = self.remote.as_ref().and_then(Address::internet).map(plain);
        let is_connected = remote.is_some_and(|remote| remote.ip() == notice.remote.ip() && (port == 0 || remote.port() == port));
        let is_reported = is_enabled || is_final && is_connected;
        if !is_reported {
            return;
        }
        if is_enabled && self.error_queue.len() < ERROR_QUEUE_MAX {
            let to = Address::Inet(in_family(self.family, notice.remote));
            let origin = if notice.from.is_ipv4() { SO_EE_ORIGIN_ICMP } else { SO_EE_ORIGIN_ICMP6 };
            // The UDP header is not part of the payload.
            let skipped = if port == 0 { 0 } else { 8 };
            let bytes = notice.quoted.get(skipped..).unwrap_or_default().to_vec();
            let IcmpError { kind, code, mtu, from: offender, .. } = *notice;
            self.error_queue.push_back(SocketError { error, origin, kind, code, mtu, offender, to, bytes });
        }
        self.fail(error);
    }
}

impl Sockets {
    /// Delivers the error message of a router or host to the sender of the packet, if that is connected or has requested errors.
    pub fn unreachable(&mut self, notice: &IcmpError) {
        let port = notice.remote.port();
        let senders: Vec<SocketId> = if port == 0 {
            self.senders(notice)
        } else {
            self.at_address(SockType::Datagram, CARD, notice.local, Some(notice.remote)).into_iter().collect()
        };
        for id in senders {
            if let Ok(socket) = self.get_mut(id) {
                socket.process_notice(notice, port);
            }
        }
    }
}

/// The address of a host as the error queue shows it.
#[must_use]
pub fn host_address(family: Family, host: IpAddr) -> Address {
    Address::Inet(in_family(family, SocketAddr::new(host, 0)))
}
