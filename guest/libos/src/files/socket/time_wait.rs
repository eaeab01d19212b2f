// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closed TCP connections that still hold their addresses and ports: `TIME_WAIT`, and `FIN_WAIT_2` of closed sockets.
//!
//! The end that closes first stays for a minute, whether its descriptor is closed or not. A reset connection has no entry. Other sockets
//! cannot bind to the port of such an end, and ephemeral ports avoid it. A new connection between the same addresses replaces it at
//! once: the program chose the port, and Linux allows the same because of TCP timestamps. So `tcp_tw_reuse` is not needed.
//!
//! For a connection to a remote host, the network stack keeps its own `TIME_WAIT`, which decides the state. The entry here provides the row
//! of `/proc/net/tcp` and reserves the port.
//!
//! No timer removes the entries: expired ones are ignored, and removed when the next one is inserted. The clock of a cell stands
//! still while it is frozen, so a clone inherits the entries with their remaining time. Those of addresses that a clone does not
//! have are removed.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::SocketAddr;
use core::ops::RangeInclusive;

use super::address::plain;
use super::inet::InetState;
use super::names::overlap;
use super::{Family, Socket, SocketId, Sockets};
use crate::uapi::{TCP_FIN_WAIT2, TCP_TIME_WAIT};

/// Time for which an entry is held, in nanoseconds: `TCP_TIMEWAIT_LEN`, and the default of `tcp_fin_timeout`.
const TIMEWAIT_LEN: u64 = 60_000_000_000;
/// Upper limit on the entries, each about 300 bytes. As with `tcp_max_tw_buckets`, further connections end without `TIME_WAIT`. It is
/// below the number of ephemeral ports, so entries alone never use up all of them.
const TIME_WAIT_MAX: usize = 4096;

/// The end of a connection that closed first (`struct inet_timewait_sock`).
#[derive(Clone, Debug)]
pub struct TimeWaitSocket {
    /// The family of its socket.
    pub family: Family,
    /// Its address.
    pub local: SocketAddr,
    /// Its peer's address.
    pub remote: SocketAddr,
    /// The peer has closed too: the state is `TIME_WAIT`, otherwise `FIN_WAIT_2`.
    has_peer_closed: bool,
    /// The time of the monotonic clock until which it is held.
    expiry: u64,
    reuses_address: bool,
    shares_port: bool,
    is_v6_only: bool,
}

impl TimeWaitSocket {
    /// The local end of a socket's connection. `None`: the socket has no connection that can be in `TIME_WAIT`.
    fn of(socket: &Socket, has_peer_closed: bool, now: u64) -> Option<TimeWaitSocket> {
        // The network has the connection's remote end.
        if !socket.is_tcp() || socket.remote_end.is_some() {
            return None;
        }
        Some(TimeWaitSocket {
            family: socket.family,
            local: socket.local.internet()?,
            remote: socket.remote.as_ref()?.internet()?,
            has_peer_closed,
            expiry: now.saturating_add(TIMEWAIT_LEN),
            reuses_address: socket.options.reuses_address,
            shares_port: socket.options.shares_port,
            is_v6_only: socket.options.is_v6_only,
        })
    }

    /// Its state by Linux's number. `None`: it has expired, or the stack has no such connection any more.
    fn tcp_state(&self, outside: &InetState, now: u64) -> Option<u8> {
        if self.expiry <= now {
            return None;
        }
        let states = if outside.is_own(self.remote.ip()) { None } else { outside.tuple_states(self.local, self.remote) };
        match (states, self.has_peer_closed) {
            // The connection was reset after its socket was closed, or the stack forgets sooner.
            (Some((false, false)), _) => None,
            (Some((_, true)), _) | (_, true) => Some(TCP_TIME_WAIT),
            _ => Some(TCP_FIN_WAIT2),
        }
    }

    /// Nanoseconds until it expires.
    #[must_use]
    pub fn remaining(&self, now: u64) -> u64 {
        self.expiry.saturating_sub(now)
    }

    /// Whether it excludes the binding of a socket to an address, by the rules of `inet_bind_conflict`.
    fn excludes(&self, socket: &Socket, address: SocketAddr) -> bool {
        let both_reuse = socket.options.reuses_address && self.reuses_address;
        let both_share = socket.options.shares_port && self.shares_port;
        !both_reuse && !both_share && overlap((address.ip(), socket.options.is_v6_only), (self.local.ip(), self.is_v6_only))
    }
}

/// The position of an entry in the index of ports: local and remote port.
type Position = (u16, u16, SocketId);

/// The positions of all entries with a local port.
fn positions(local: u16, remote: RangeInclusive<u16>) -> RangeInclusive<Position> {
    (local, *remote.start(), SocketId { index: 0, number: 0 })..=(local, *remote.end(), SocketId { index: usize::MAX, number: u64::MAX })
}

/// All entries, by the ids of the closed sockets.
#[derive(Debug, Default)]
pub struct TimeWaitTable {
    entries: BTreeMap<SocketId, TimeWaitSocket>,
    by_port: BTreeSet<Position>,
    by_expiry: BTreeSet<(u64, SocketId)>,
}

impl TimeWaitTable {
    fn insert(&mut self, id: SocketId, entry: TimeWaitSocket, now: u64) {
        while let Some(&(_, first)) = self.by_expiry.first().filter(|(expiry, _)| *expiry <= now) {
            self.remove(first);
        }
        self.remove(id);
        if self.entries.len() < TIME_WAIT_MAX {
            self.by_port.insert((entry.local.port(), entry.remote.port(), id));
            self.by_expiry.insert((entry.expiry, id));
            self.entries.insert(id, entry);
        }
    }

    /// Removes the entry of a socket: its connection was reset.
    pub(super) fn remove(&mut self, id: SocketId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.by_port.remove(&(entry.local.port(), entry.remote.port(), id));
            self.by_expiry.remove(&(entry.expiry, id));
        }
    }

    /// Removes the entries between two addresses, for a new connection between them.
    pub(super) fn remove_between(&mut self, local: SocketAddr, remote: SocketAddr) {
        let (local, remote) = (plain(local), plain(remote));
        while let Some(id) = self.by_port.range(positions(local.port(), remote.port()..=remote.port())).find_map(|(_, _, id)| {
            let is_between = |entry: &&TimeWaitSocket| plain(entry.local) == local && plain(entry.remote) == remote;
            self.entries.get(id).filter(is_between).map(|_| *id)
        }) {
            self.remove(id);
        }
    }

    /// Removes the entries whose local address does not fulfil a condition.
    pub(super) fn retain(&mut self, keeps: impl Fn(SocketAddr) -> bool) {
        let lost: alloc::vec::Vec<SocketId> = self.entries.iter().filter(|(_, entry)| !keeps(entry.local)).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.remove(id));
    }

    /// The entries with a local port.
    fn at_port(&self, port: u16) -> impl Iterator<Item = &TimeWaitSocket> {
        self.by_port.range(positions(port, 0..=u16::MAX)).filter_map(|(_, _, id)| self.entries.get(id))
    }
}

impl Sockets {
    /// The time of the monotonic clock; 0 if there is none.
    #[must_use]
    pub fn monotonic_time(&self) -> u64 {
        self.monotonic_clock.map_or(0, |clock| clock())
    }

    /// Holds the end of a connection that a socket closes first, or that its peer has closed too.
    pub(super) fn enter_time_wait(&mut self, id: SocketId, has_peer_closed: bool) {
        let now = self.monotonic_time();
        if let Some(entry) = self.get(id).ok().and_then(|socket| TimeWaitSocket::of(socket, has_peer_closed, now)) {
            self.time_wait.insert(id, entry, now);
        }
    }

    /// Records that the peer of a closed socket has closed too.
    pub(super) fn finish_time_wait(&mut self, id: SocketId) {
        let now = self.monotonic_time();
        if let Some(entry) = self.time_wait.entries.get(&id).filter(|entry| entry.expiry > now) {
            let entry = TimeWaitSocket { has_peer_closed: true, expiry: now.saturating_add(TIMEWAIT_LEN), ..entry.clone() };
            self.time_wait.insert(id, entry, now);
        }
    }

    /// All closed connections that hold their ports, with their states by Linux's numbers; in the order of the socket table.
    pub fn in_time_wait(&self, now: u64) -> impl Iterator<Item = (&TimeWaitSocket, u8)> {
        self.time_wait.entries.values().filter_map(move |entry| Some((entry, entry.tcp_state(&self.inet, now)?)))
    }

    /// The closed connections that hold a port.
    fn time_wait_at(&self, port: u16) -> impl Iterator<Item = &TimeWaitSocket> {
        let now = self.monotonic_time();
        self.time_wait.at_port(port).filter(move |entry| entry.tcp_state(&self.inet, now).is_some())
    }

    /// Whether a closed connection excludes the binding of a socket to an address.
    pub(super) fn time_wait_excludes(&self, socket: &Socket, address: SocketAddr) -> bool {
        socket.is_tcp() && self.time_wait_at(address.port()).any(|entry| entry.excludes(socket, address))
    }

    /// Whether a closed connection holds a port that may not be chosen automatically for a socket.
    pub(super) fn is_in_time_wait(&self, socket: &Socket, port: u16) -> bool {
        socket.is_tcp() && self.time_wait_at(port).next().is_some()
    }
}

#[cfg(test)]
mod tests;
