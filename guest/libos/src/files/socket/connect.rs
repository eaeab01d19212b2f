// SPDX-License-Identifier: MIT OR Apache-2.0
//! Establishing and closing connections.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::address::{Address, in_family, plain};
use super::names::LOOPBACK;
use super::{Family, PeerCredentials, SockType, SocketId, Sockets, State};
use crate::errno::Errno;

/// Upper limit on a listener's backlog, as in `/proc/sys/net/core/somaxconn`.
const BACKLOG_MAX: usize = 4096;
/// Bits of shut down directions.
const READS: u64 = 1;
const SENDS: u64 = 2;

impl Sockets {
    /// Makes a socket listen.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: its type does not connect; `EINVAL`: it is connected, or an unbound Unix socket; `EADDRINUSE`, `EAGAIN`.
    pub fn listen(&mut self, id: SocketId, backlog: u32, credentials: PeerCredentials) -> Result<(), Errno> {
        let socket = self.get(id)?;
        if !socket.needs_connection() || matches!(socket.family, Family::Netlink | Family::Packet) {
            return Err(Errno::EOPNOTSUPP);
        }
        let nameless = socket.family == Family::Unix && socket.name.is_none();
        if nameless || !matches!(socket.state, State::Idle | State::Listening { .. }) {
            return Err(Errno::EINVAL);
        }
        if socket.family.is_internet() && !socket.listens() {
            self.bind_any_port(id)?;
            self.check_listening(id)?;
        }
        let socket = self.get_mut(id)?;
        // Negative numbers count as large ones.
        let most = (backlog as usize).min(BACKLOG_MAX);
        if let State::Listening { backlog, .. } = &mut socket.state {
            *backlog = most;
        } else {
            socket.state = State::Listening { backlog: most, accept_queue: VecDeque::new(), blocked_clients: VecDeque::new() };
            (socket.is_rcv_shutdown, socket.is_send_shutdown) =
                (socket.is_rcv_shutdown && !socket.is_tcp(), socket.is_send_shutdown && !socket.is_tcp());
        }
        socket.credentials = credentials;
        Ok(())
    }

    /// Takes the first connection from a listener's queue.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is empty. `EINVAL`: it does not listen. `EOPNOTSUPP`: its type cannot listen.
    pub fn accept(&mut self, id: SocketId, waits: bool) -> Result<SocketId, Errno> {
        let socket = self.get_mut(id)?;
        let (can, ended) = (socket.needs_connection(), socket.is_rcv_shutdown && waits);
        let State::Listening { accept_queue, .. } = &mut socket.state else {
            return Err(if can { Errno::EINVAL } else { Errno::EOPNOTSUPP });
        };
        let accepted = accept_queue.pop_front().ok_or(if ended { Errno::EINVAL } else { Errno::EAGAIN })?;
        if let Ok(socket) = self.get_mut(accepted) {
            socket.is_unaccepted = false;
        }
        // A client that waits for a place in the queue gets it now, unless it is closed or has given up.
        while let State::Listening { blocked_clients, .. } = &mut self.get_mut(id)?.state
            && let Some(next) = blocked_clients.pop_front()
        {
            if matches!(self.get(next), Ok(client) if matches!(client.state, State::Connecting(listener) if listener == id)) {
                self.establish(next, id)?;
                break;
            }
        }
        Ok(accepted)
    }

    /// Whether a listener's queue is full.
    pub(super) fn is_full(&self, listener: SocketId) -> bool {
        matches!(self.get(listener).map(|socket| &socket.state), Ok(State::Listening { backlog, accept_queue, .. }) if accept_queue.len() > *backlog)
    }

    /// Creates the server end for a client, and adds it to a listener's queue.
    pub(super) fn establish(&mut self, client: SocketId, listener: SocketId) -> Result<SocketId, Errno> {
        let (there, here) = (self.get(listener)?, self.get(client)?);
        let (family, socket_type, protocol, listener_credentials, client_credentials) =
            (there.family, there.socket_type, there.protocol, there.credentials, here.credentials);
        let (options, local, remote) = (there.options.inherited(), there.local.clone(), here.local.clone());
        let target = here.remote.clone();
        let server = self.open(family, socket_type, protocol, listener_credentials)?;
        let socket = self.get_mut(server)?;
        socket.options = options;
        socket.is_unaccepted = true;
        socket.state = State::Connected(client);
        (socket.local, socket.remote) = match (target.as_ref().and_then(Address::internet), remote.internet()) {
            (Some(target), Some(remote)) => {
                let in_socket_family = |address| Address::Inet(in_family(family, plain(address)));
                (in_socket_family(target), Some(in_socket_family(remote)))
            }
            _ => (local, Some(remote)),
        };
        socket.peer_credentials = Some(client_credentials);
        // A server's end that closed an earlier connection first makes way for the new one.
        if let (Some(local), Some(remote)) = (socket.local.internet(), socket.remote.as_ref().and_then(Address::internet)) {
            self.time_wait.remove_between(local, remote);
        }
        let socket = self.get_mut(client)?;
        socket.state = State::Connected(server);
        socket.peer_credentials = Some(listener_credentials);
        socket.event_times.other();
        let socket = self.get_mut(listener)?;
        socket.event_times.input();
        if let State::Listening { accept_queue, .. } = &mut socket.state {
            accept_queue.push_back(server);
        }
        Ok(server)
    }

    /// Connects a Unix socket to another, which was found by its address.
    ///
    /// # Errors
    /// `EAGAIN`: its queue is full. `ECONNREFUSED`: it does not listen. `EISCONN`, `EINVAL`: this socket cannot connect. `EPERM`: it is
    /// connected to another.
    pub fn connect_unix(&mut self, id: SocketId, target: SocketId, address: Address, credentials: PeerCredentials) -> Result<(), Errno> {
        if self.get(id)?.socket_type == SockType::Datagram {
            if !self.may_send(id, target)? {
                return Err(Errno::EPERM);
            }
            let socket = self.get_mut(id)?;
            (socket.state, socket.remote, socket.peer_credentials) = (State::Connected(target), Some(address), None);
            return Ok(());
        }
        let listener = self.get(target)?;
        if !listener.listens() || listener.is_rcv_shutdown {
            return Err(Errno::ECONNREFUSED);
        }
        if self.is_full(target) {
            return Err(Errno::EAGAIN);
        }
        match self.get(id)?.state {
            State::Idle => {}
            State::Connected(_) => return Err(Errno::EISCONN),
            _ => return Err(Errno::EINVAL),
        }
        let socket = self.get_mut(id)?;
        socket.credentials = credentials;
        socket.remote = Some(address);
        self.establish(id, target).map(|_| ())
    }

    /// Whether a datagram socket accepts datagrams from another.
    ///
    /// # Errors
    /// `EBADF`: it is closed.
    pub fn may_send(&self, from: SocketId, to: SocketId) -> Result<bool, Errno> {
        Ok(self.get(to)?.peer().is_none_or(|peer| peer == from))
    }

    /// Connects a TCP or UDP socket. `waits`: the caller repeats the call after `EAGAIN`.
    ///
    /// # Errors
    /// `EAGAIN`, `EINPROGRESS`, `EALREADY`: in progress, for blocking and non-blocking sockets. `ECONNREFUSED`, `EISCONN`, `ENETUNREACH`,
    /// `EADDRNOTAVAIL`: there is a connection between the same addresses.
    pub fn connect_port(&mut self, id: SocketId, to: SocketAddr, waits: bool) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        if !socket.needs_connection() {
            return self.connect_datagrams(id, to);
        }
        match socket.state {
            State::Connecting(_) => return Err(if waits { Errno::EAGAIN } else { Errno::EALREADY }),
            // It was refused, or is already closed.
            State::Idle | State::Closed if socket.is_connect_unreported => {
                let error = socket.error.take().unwrap_or(Errno::ECONNABORTED);
                self.disconnect(id)?;
                return Err(error);
            }
            State::Idle => {}
            State::Listening { .. } => return Err(Errno::EISCONN),
            State::Connected(_) | State::Closed => {
                let is_connect_unreported = core::mem::take(&mut socket.is_connect_unreported);
                return if is_connect_unreported { Ok(()) } else { Err(Errno::EISCONN) };
            }
        }
        let to = self.reachable(id, to)?;
        self.bind_any_port(id)?;
        self.check_unconnected(id, to)?;
        self.set_source_address(id, to)?;
        let socket = self.get_mut(id)?;
        socket.remote = Some(Address::Inet(in_family(socket.family, to)));
        (socket.is_rcv_shutdown, socket.is_send_shutdown) = (false, false);
        let is_own = self.inet.is_own(to.ip());
        let from = self.get(id)?.local.internet();
        let found = self.at_address(SockType::Stream, LOOPBACK, to, from).filter(|_| is_own);
        match found {
            None if !is_own => self.connect_remote(id, to)?,
            // A socket that connects to its own address is its own peer.
            None if from.map(plain) == Some(plain(to)) => {
                let socket = self.get_mut(id)?;
                socket.state = State::Connected(id);
                socket.event_times.other();
            }
            None => self.refuse(id, Errno::ECONNREFUSED)?,
            Some(listener) if self.is_full(listener) => {
                self.get_mut(id)?.state = State::Connecting(listener);
                if let State::Listening { blocked_clients, .. } = &mut self.get_mut(listener)?.state {
                    blocked_clients.push_back(id);
                }
            }
            Some(listener) => {
                self.establish(id, listener)?;
            }
        }
        let socket = self.get_mut(id)?;
        socket.is_connect_unreported = true;
        if waits { self.connect_port(id, to, true) } else { Err(Errno::EINPROGRESS) }
    }

    /// Fails a client's connection attempt.
    pub(super) fn refuse(&mut self, id: SocketId, error: Errno) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        socket.reset(error);
        (socket.state, socket.remote, socket.is_connect_unreported) = (State::Idle, None, true);
        if !socket.chose_port {
            self.unbind(id)?;
        }
        Ok(())
    }

    fn connect_datagrams(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let to = self.reachable(id, to)?;
        self.bind_any_port(id)?;
        self.set_source_address(id, to)?;
        let socket = self.get_mut(id)?;
        socket.remote = Some(Address::Inet(in_family(socket.family, to)));
        // The destination is looked up for each datagram.
        socket.state = State::Connected(id);
        Ok(())
    }

    /// The address that a socket reaches by a destination address: in the cell itself, or outside.
    ///
    /// # Errors
    /// `ENETUNREACH`: there is no route.
    pub fn reachable(&self, id: SocketId, to: SocketAddr) -> Result<SocketAddr, Errno> {
        let socket = self.get(id)?;
        let host = match to.ip().to_canonical() {
            IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(host) if host.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            host => host,
        };
        let excluded = socket.family == Family::Inet6 && socket.options.is_v6_only && host.is_ipv4();
        let leads_somewhere = self.inet.is_own(host) || self.inet.route_source(host).is_some();
        if excluded || !leads_somewhere { Err(Errno::ENETUNREACH) } else { Ok(SocketAddr::new(host, to.port())) }
    }

    /// Checks that no other socket is connected between the addresses of a new connection. A closed connection between them ends.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`.
    fn check_unconnected(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let from = self.get(id)?.local.internet().map(plain).ok_or(Errno::EINVAL)?;
        let from = if from.ip().is_unspecified() { SocketAddr::new(self.inet.source_address(to.ip()), from.port()) } else { from };
        if self.is_connected(id, from, to)? {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.time_wait.remove_between(from, to);
        Ok(())
    }

    /// Sets the source address of a socket bound to the unspecified address, for a destination.
    fn set_source_address(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let host = self.inet.source_address(to.ip());
        let socket = self.get_mut(id)?;
        let Some(local) = socket.local.internet() else { return Ok(()) };
        if plain(local).ip().is_unspecified() {
            socket.local = Address::Inet(in_family(socket.family, SocketAddr::new(host, local.port())));
        }
        Ok(())
    }

    /// Dissolves a connection (`connect` to `AF_UNSPEC`). Returns open files that were not received.
    ///
    /// # Errors
    /// `EINVAL`: this socket cannot be disconnected.
    pub fn disconnect(&mut self, id: SocketId) -> Result<Vec<usize>, Errno> {
        let socket = self.get(id)?;
        let mut files = Vec::new();
        match (socket.family, socket.socket_type) {
            (Family::Unix, SockType::Datagram) => {
                let peer = socket.peer();
                let socket = self.get_mut(id)?;
                let lost = !socket.queue.is_empty() && peer.is_some();
                (socket.state, socket.remote) = (State::Idle, None);
                if lost {
                    files = socket.queue.clear();
                    if let Some(peer) = peer.and_then(|peer| self.get_mut(peer).ok()).filter(|other| other.peer() == Some(id)) {
                        peer.fail(Errno::ECONNRESET);
                    }
                }
            }
            (Family::Unix | Family::Netlink | Family::Packet, _) => return Err(Errno::EINVAL),
            (_, SockType::Datagram | SockType::Raw) => {
                let socket = self.get_mut(id)?;
                (socket.state, socket.remote) = (State::Idle, None);
                if !socket.chose_port {
                    self.unbind(id)?;
                }
            }
            _ => {
                let connects = matches!(self.get(id)?.state, State::Connected(_) | State::Connecting(_));
                files = self.disconnect_peers(id, true)?;
                let socket = self.get_mut(id)?;
                (socket.state, socket.remote) = (State::Idle, None);
                if connects {
                    socket.fail(Errno::ECONNRESET);
                }
                (socket.is_rcv_shutdown, socket.is_send_shutdown, socket.has_peer_finished, socket.is_connect_unreported) =
                    (false, false, false, false);
                files.extend(socket.queue.clear());
                if !socket.chose_port {
                    self.unbind(id)?;
                }
            }
        }
        Ok(files)
    }

    /// Shuts down directions of a socket: 0 receiving, 1 sending, 2 both. Returns open files that were not received.
    ///
    /// # Errors
    /// `EINVAL`: there is no such direction; `ENOTCONN`.
    pub fn shutdown(&mut self, id: SocketId, how: u64) -> Result<Vec<usize>, Errno> {
        if how > 2 {
            return Err(Errno::EINVAL);
        }
        let ended = how + 1;
        let socket = self.get_mut(id)?;
        if socket.is_tcp() && !matches!(socket.state, State::Connected(_) | State::Idle | State::Closed) {
            return if socket.listens() && ended & READS == 0 { Ok(Vec::new()) } else { self.disconnect(id) };
        }
        socket.is_rcv_shutdown |= ended & READS != 0;
        socket.is_send_shutdown |= ended & SENDS != 0;
        socket.event_times.other();
        let Some(peer) = socket.peer() else {
            return if socket.family == Family::Unix { Ok(Vec::new()) } else { Err(Errno::ENOTCONN) };
        };
        if socket.is_tcp() {
            if ended & SENDS != 0 {
                if socket.has_peer_finished {
                    socket.end_both();
                    socket.state = State::Closed;
                }
                self.receive_fin(peer);
            }
        } else if socket.needs_connection()
            && let Ok(peer) = self.get_mut(peer)
        {
            peer.is_rcv_shutdown |= ended & SENDS != 0;
            peer.is_send_shutdown |= ended & READS != 0;
            peer.event_times.other();
        }
        Ok(Vec::new())
    }

    /// Delivers the end of the peer's stream (FIN) to a TCP socket.
    fn receive_fin(&mut self, id: SocketId) {
        let Ok(socket) = self.get_mut(id) else { return self.finish_time_wait(id) };
        if !core::mem::replace(&mut socket.has_peer_finished, true) {
            socket.is_rcv_shutdown = true;
            socket.event_times.other();
            if socket.is_send_shutdown {
                socket.state = State::Closed;
                self.enter_time_wait(id, true);
            }
        }
    }

    /// Resets the peer of a TCP connection that was closed with unread data.
    pub(super) fn reset_peer(&mut self, peer: SocketId) {
        match self.get_mut(peer) {
            Ok(peer) => peer.reset(if peer.has_peer_finished { Errno::EPIPE } else { Errno::ECONNRESET }),
            Err(_) => self.time_wait.remove(peer),
        }
    }

    /// Disconnects the peers of a closed socket. Returns open files that were not received.
    fn disconnect_peers(&mut self, id: SocketId, resets: bool) -> Result<Vec<usize>, Errno> {
        let mut files = Vec::new();
        let socket = self.get_mut(id)?;
        let unread = !socket.queue.is_empty();
        let (is_tcp, connects, has_peer_finished) = (socket.is_tcp(), socket.needs_connection(), socket.has_peer_finished);
        match core::mem::replace(&mut socket.state, State::Idle) {
            State::Connected(peer) if is_tcp => {
                if unread || resets {
                    self.reset_peer(peer);
                } else {
                    if !has_peer_finished {
                        // The peer of a socket that is connected to itself closes at the same time.
                        self.enter_time_wait(id, peer == id);
                    }
                    self.receive_fin(peer);
                }
            }
            // The connection attempt to outside is abandoned.
            State::Connecting(peer) => {
                let _ = self.get_mut(peer);
            }
            State::Connected(peer) if connects => {
                if let Ok(peer) = self.get_mut(peer) {
                    peer.end_both();
                    if unread || resets {
                        peer.fail(Errno::ECONNRESET);
                    }
                }
            }
            State::Listening { accept_queue, blocked_clients, .. } => {
                for unaccepted in accept_queue {
                    files.extend(self.disconnect_peers(unaccepted, true)?);
                    files.extend(self.remove(unaccepted).map(|mut socket| socket.queue.clear()).unwrap_or_default());
                }
                for client in blocked_clients {
                    if matches!(self.get(client), Ok(client) if matches!(client.state, State::Connecting(listener) if listener == id)) {
                        self.refuse(client, Errno::ECONNREFUSED)?;
                    }
                }
            }
            _ => {}
        }
        Ok(files)
    }

    /// Closes a socket. Returns open files that were not received.
    pub fn close(&mut self, id: SocketId) -> Vec<usize> {
        let Ok(socket) = self.get(id) else { return Vec::new() };
        let resets = socket.is_tcp() && socket.options.linger == Some(0);
        let mut files = self.disconnect_peers(id, resets).unwrap_or_default();
        if let Some(mut socket) = self.remove(id) {
            files.extend(socket.queue.clear());
        }
        files
    }
}
