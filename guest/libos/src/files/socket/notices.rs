// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others say of packets that did not arrive: an error of the socket, and, for whoever wants to know more, a queue of notices (`IP_RECVERR`).

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use pando_stack::{Notice, Obstacle};

use super::address::{Address, in_family, plain};
use super::names::CARD;
use super::options::level;
use super::{Family, Socket, SocketId, Sockets, Style};
use crate::errno::Errno;

/// Notices that wait at a socket. More are lost.
const NOTICES_MAX: usize = 64;
/// Who says so, by Linux's numbers: ICMP of either version.
const BY_ICMP: u8 = 2;
const BY_ICMP6: u8 = 3;

/// What is told of a packet that did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What went wrong.
    pub error: Errno,
    /// Linux's number of who says so.
    pub origin: u8,
    /// The kind of ICMP's message.
    pub kind: u8,
    /// Its reason.
    pub code: u8,
    /// Of what was too long, how long it may be.
    pub mtu: u32,
    /// Who says so.
    pub offender: IpAddr,
    /// Whom the packet was for.
    pub to: Address,
    /// What it carried, as far as it was sent back.
    pub bytes: Vec<u8>,
}

/// What a notice means, and whether it ends a connection, as Linux has it.
fn meaning(notice: &Notice) -> (Errno, bool) {
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
        // An address where nobody is, time that is over.
        _ => (E::EHOSTUNREACH, false),
    }
}

impl Socket {
    /// Takes the next notice. What is told of the one after it is the socket's error then.
    pub fn take_notice(&mut self) -> Option<Told> {
        let told = self.notices.pop_front()?;
        self.error = self.notices.front().map(|next| next.error);
        Some(told)
    }

    /// Hears that nobody is where a datagram of UDP went within the cell, as ICMP says it: it repeats the start of what was sent.
    pub(super) fn hear_refusal(&mut self, [local, remote]: [SocketAddr; 2], bytes: &[u8]) {
        const HEADER: usize = 8;
        const REPEATED: usize = 520;
        let (kind, code) = if remote.is_ipv4() { (3, 3) } else { (1, 4) };
        let quoted = [&[0; HEADER], &bytes[..bytes.len().min(REPEATED)]].concat();
        let notice = Notice { local, remote, obstacle: Obstacle::Port, from: remote.ip(), kind, code, mtu: 0, quoted };
        self.hear_notice(&notice, remote.port());
    }

    fn hear_notice(&mut self, notice: &Notice, port: u16) {
        const RECEIVES: u32 = 11;
        const RECEIVES6: u32 = 25;
        let (of, option) = if self.family == Family::Internet6 { (level::IPV6, RECEIVES6) } else { (level::IP, RECEIVES) };
        let is_told = self.kept_option(of, option).is_some_and(|value| value != 0);
        let (error, is_final) = meaning(notice);
        let remote = self.remote.as_ref().and_then(Address::internet).map(plain);
        let is_connected = remote.is_some_and(|remote| remote.ip() == notice.remote.ip() && (port == 0 || remote.port() == port));
        let is_heard = is_told || is_final && is_connected;
        if !is_heard {
            return;
        }
        if is_told && self.notices.len() < NOTICES_MAX {
            let to = Address::Internet(in_family(self.family, notice.remote));
            let origin = if notice.from.is_ipv4() { BY_ICMP } else { BY_ICMP6 };
            // What UDP carried is told without its header.
            let skipped = if port == 0 { 0 } else { 8 };
            let bytes = notice.quoted.get(skipped..).unwrap_or_default().to_vec();
            let Notice { kind, code, mtu, from: offender, .. } = *notice;
            self.notices.push_back(Told { error, origin, kind, code, mtu, offender, to, bytes });
        }
        self.fail(error);
    }
}

impl Sockets {
    /// Somebody on the way says that a packet did not arrive: who sent it is told, if it asked for that or is connected there.
    pub fn unreachable(&mut self, notice: &Notice) {
        let port = notice.remote.port();
        let senders: Vec<SocketId> = if port == 0 {
            self.senders(notice)
        } else {
            self.at_address(Style::Datagram, CARD, notice.local, Some(notice.remote)).into_iter().collect()
        };
        for id in senders {
            if let Ok(socket) = self.get_mut(id) {
                socket.hear_notice(notice, port);
            }
        }
    }
}

/// Where a packet came from or went to, as notices show it.
#[must_use]
pub fn shown(family: Family, host: IpAddr) -> Address {
    Address::Internet(in_family(family, SocketAddr::new(host, 0)))
}
