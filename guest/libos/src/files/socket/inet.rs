// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections to hosts outside the cell.
//!
//! Such a connection is a pair of sockets like any other. One of them, the *remote end*, stands for the socket of the remote host and
//! belongs to no process: the network sends received bytes through it. Sent bytes are written directly into the stack's buffer, the only
//! one. The network lends the stack to this module except while it works with it. Changed remote ends are recorded, so that the network
//! examines only those. Further work for the network is queued as requests. Packet formats are unknown here.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pando_stack::{ConnectionId, IcmpMessage, Stack, Tuple};

use super::address::{Address, in_family, is_loopback, plain};
use super::names::{CARD, EPHEMERAL_PORTS};
use super::queue::{ControlMessage, Packet};
use super::transfer::{SendRequest, gather, giving};
use super::{Family, PeerCredentials, SockType, Socket, SocketId, Sockets, State};
use crate::errno::Errno;
use crate::uapi::IPPROTO_TCP;

/// Upper limit on the bytes of queued datagrams, messages and frames.
const DATAGRAMS_MAX: usize = 1 << 20;

/// The additional state of a remote end.
#[derive(Debug, Default)]
pub struct RemoteEnd {
    /// It has changed since the network last examined it.
    is_changed: bool,
    /// The stack's connection, once it is open.
    connection: Option<ConnectionId>,
}

/// A request to the network.
#[derive(Debug)]
pub enum NetworkRequest {
    /// Open a connection for this remote end.
    Connect {
        /// The remote end.
        remote_end: SocketId,
        /// The source address.
        from: SocketAddr,
        /// The destination address.
        to: SocketAddr,
    },
    /// Send a datagram.
    Datagram {
        /// The source address.
        from: SocketAddr,
        /// The destination address.
        to: SocketAddr,
        /// The payload.
        bytes: Vec<u8>,
        /// The TTL or hop limit.
        hops: u8,
    },
    /// Send an ICMP message.
    Message(IcmpMessage),
    /// Send a frame.
    Frame(Vec<u8>),
}

impl NetworkRequest {
    /// Bytes that count against the limit.
    fn length(&self) -> usize {
        match self {
            NetworkRequest::Connect { .. } => 0,
            NetworkRequest::Datagram { bytes, .. } | NetworkRequest::Message(IcmpMessage { bytes, .. }) | NetworkRequest::Frame(bytes) => {
                bytes.len()
            }
        }
    }
}

/// The cell's network card.
#[derive(Clone, Copy, Debug)]
pub struct NetworkCard {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The MTU in bytes.
    pub mtu: usize,
}

/// An address of the cell on its network. The network assigns it; programs can set and remove this address, but no other.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network's prefix.
    pub prefix: u8,
    /// The default gateway.
    pub router: Option<IpAddr>,
    /// The address is set.
    pub is_set: bool,
    /// The default route is set.
    pub is_routed: bool,
}

impl InterfaceAddress {
    /// Whether it can be the source address for another host of its family.
    fn leads_to(&self, host: IpAddr) -> bool {
        let is_near = match (self.address, host) {
            (IpAddr::V4(address), IpAddr::V4(host)) => {
                host.is_multicast()
                    || host.is_broadcast()
                    || has_common_prefix(address.to_bits().into(), host.to_bits().into(), 32 - u32::from(self.prefix.min(32)))
            }
            (IpAddr::V6(address), IpAddr::V6(host)) => {
                host.is_multicast()
                    || host.is_unicast_link_local()
                    || has_common_prefix(address.to_bits(), host.to_bits(), 128 - u32::from(self.prefix.min(128)))
            }
            _ => return false,
        };
        self.is_set && (is_near || self.is_routed)
    }
}

/// Whether two addresses agree in so many leading bits.
fn has_common_prefix(one: u128, other: u128, bits: u32) -> bool {
    (one ^ other).checked_shr(bits).is_none_or(|rest| rest == 0)
}

/// The interface to the network, and its queued requests.
#[derive(Debug, Default)]
pub struct InetState {
    /// The cell's card; `None`: there is no network.
    pub card: Option<NetworkCard>,
    /// The cell's own addresses on its network.
    pub hosts: Vec<InterfaceAddress>,
    changed: Vec<SocketId>,
    /// The stack, except while the network works with it; the network itself knows its changes of remote ends.
    stack: Option<Box<Stack>>,
    requests: VecDeque<NetworkRequest>,
    /// Bytes of the queued datagrams.
    queued_bytes: usize,
}

impl InetState {
    /// Whether there is work for the network.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.changed.is_empty() || !self.requests.is_empty()
    }

    /// Whether an address is the cell's.
    #[must_use]
    pub fn is_own(&self, host: IpAddr) -> bool {
        is_loopback(host) || self.has(host.to_canonical())
    }

    /// Whether an address is one of the cell's on its network.
    fn has(&self, host: IpAddr) -> bool {
        self.hosts.iter().any(|interface| interface.is_set && interface.address == host)
    }

    /// The source address for a remote host. `None`: there is no route.
    #[must_use]
    pub fn route_source(&self, host: IpAddr) -> Option<IpAddr> {
        self.hosts.iter().find(|interface| interface.leads_to(host.to_canonical())).map(|interface| interface.address)
    }

    /// The source address for any host.
    #[must_use]
    pub fn source_address(&self, host: IpAddr) -> IpAddr {
        match host.to_canonical() {
            // Packets to an own address have that address as their source.
            host if self.has(host) => host,
            host if is_loopback(host) && host.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
            host if is_loopback(host) => Ipv6Addr::LOCALHOST.into(),
            host => self.route_source(host).unwrap_or(host),
        }
    }

    /// Queues a request; a packet that does not fit is dropped, as on any network.
    pub(super) fn request(&mut self, request: NetworkRequest) {
        if self.queued_bytes + request.length() <= DATAGRAMS_MAX {
            self.queued_bytes += request.length();
            self.requests.push_back(request);
        }
    }

    /// Lends the stack to the sockets.
    pub fn lend(&mut self, stack: Box<Stack>) {
        self.stack = Some(stack);
    }

    /// Takes the stack back for work on it. `None`: there is no network, or it has the stack already.
    pub fn take_back(&mut self) -> Option<Box<Stack>> {
        self.stack.take()
    }

    /// Whether the stack has a connection to a remote host, and whether it has one in TIME-WAIT. `None`: it is not known now.
    pub(super) fn tuple_states(&self, local: SocketAddr, remote: SocketAddr) -> Option<(bool, bool)> {
        Some(self.stack.as_ref()?.tuple_states(&Tuple { local: plain(local), remote: plain(remote) }))
    }

    /// When the network must process the stack's next timer.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.stack.as_ref()?.deadline()
    }

    /// Whether all data given to the stack has been acknowledged.
    #[must_use]
    pub fn is_all_acknowledged(&self) -> bool {
        self.stack.as_ref().is_none_or(|stack| stack.is_all_acknowledged())
    }

    /// Bytes that a remote end can send at once.
    pub(super) fn room(&self, remote_end: &RemoteEnd) -> usize {
        self.stack.as_ref().zip(remote_end.connection).map_or(0, |(stack, connection)| stack.writable(connection))
    }

    /// Records a change of a socket, if it is a remote end.
    pub(super) fn note(&mut self, id: SocketId, socket: &mut Socket) {
        if let Some(remote_end) = socket.remote_end.as_mut().filter(|_| self.stack.is_some())
            && !mem::replace(&mut remote_end.is_changed, true)
        {
            self.changed.push(id);
        }
    }
}

impl Sockets {
    /// Sets the card, the cell's addresses on its network, and the port after which ephemeral ports begin. Remote hosts may remember
    /// earlier users of the same addresses.
    pub fn set_card(&mut self, card: NetworkCard, hosts: Vec<InterfaceAddress>, after: u16) {
        (self.inet.card, self.inet.hosts) = (Some(card), hosts);
        self.next_port = EPHEMERAL_PORTS.start() + after % (EPHEMERAL_PORTS.end() - EPHEMERAL_PORTS.start());
        self.time_wait.retain(|local| self.inet.is_own(local.ip()));
    }

    /// Removes the card.
    pub fn forget_card(&mut self) {
        self.inet.card = None;
        self.inet.hosts.clear();
    }

    /// Closes all sockets except remote ends, which close with their connections.
    pub fn close_all(&mut self) {
        let local: Vec<SocketId> = self
            .sockets
            .iter()
            .enumerate()
            .filter_map(|(index, socket)| {
                let socket = socket.as_ref().filter(|socket| socket.remote_end.is_none())?;
                Some(SocketId { index, number: socket.number })
            })
            .collect();
        for id in local {
            self.close(id);
        }
    }

    /// Removes the next request.
    pub fn next_request(&mut self) -> Option<NetworkRequest> {
        let request = self.inet.requests.pop_front()?;
        self.inet.queued_bytes -= request.length();
        Some(request)
    }

    /// Removes all changed remote ends from the list.
    pub fn take_changed(&mut self) -> Vec<SocketId> {
        let changed = mem::take(&mut self.inet.changed);
        for id in &changed {
            if let Some(remote_end) = self.sockets.get_mut(id.index).and_then(Option::as_mut).and_then(|socket| socket.remote_end.as_mut())
            {
                remote_end.is_changed = false;
            }
        }
        changed
    }

    /// Creates a remote end with a remote address, as the peer of a local socket.
    fn open_remote_end(&mut self, family: Family, there: SocketAddr, here: SocketAddr) -> Result<SocketId, Errno> {
        let remote_end = self.open(family, SockType::Stream, IPPROTO_TCP, PeerCredentials::default())?;
        let socket = self.get_mut(remote_end)?;
        socket.local = Address::Inet(in_family(family, there));
        socket.remote = Some(Address::Inet(in_family(family, here)));
        socket.remote_end = Some(RemoteEnd::default());
        Ok(remote_end)
    }

    /// Starts a connection to a remote host.
    pub(super) fn connect_remote(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let socket = self.get(id)?;
        let (family, from) = (socket.family, plain(socket.local.internet().ok_or(Errno::EINVAL)?));
        let remote_end = self.open_remote_end(family, to, from)?;
        self.get_mut(remote_end)?.state = State::Connected(id);
        self.get_mut(id)?.state = State::Connecting(remote_end);
        self.inet.requests.push_back(NetworkRequest::Connect { remote_end, from, to });
        Ok(())
    }

    /// Moves a connecting socket to another ephemeral port, because the remote host remembers an earlier connection from its port.
    /// Returns its new address. `None`: the program chose the port.
    pub fn change_port(&mut self, remote_end: SocketId) -> Option<SocketAddr> {
        let local_end = self.local_end(remote_end)?;
        let socket = self.get(local_end).ok().filter(|socket| !socket.chose_port)?;
        let (family, local) = (socket.family, socket.local.clone());
        self.unbind(local_end).ok()?;
        self.get_mut(local_end).ok()?.local = local;
        self.bind_any_port(local_end).ok()?;
        let from = self.get(local_end).ok()?.local.internet()?;
        self.get_mut(remote_end).ok()?.remote = Some(Address::Inet(in_family(family, from)));
        Some(plain(from))
    }

    /// Records the stack's connection of a remote end.
    pub fn set_connection(&mut self, remote_end: SocketId, connection: ConnectionId) {
        if let Some(remote_end) = self.get_mut(remote_end).ok().and_then(|socket| socket.remote_end.as_mut()) {
            remote_end.connection = Some(connection);
        }
    }

    /// Records free buffer space of a connection.
    pub fn report_room(&mut self, remote_end: SocketId) {
        if let Some(local_end) = self.local_end(remote_end)
            && let Ok(socket) = self.get_mut(local_end)
        {
            socket.event_times.output();
        }
    }

    /// Records that a connection was established.
    pub fn opened(&mut self, remote_end: SocketId) {
        if let Some(local_end) = self.local_end(remote_end)
            && let Ok(socket) = self.get_mut(local_end)
        {
            socket.state = State::Connected(remote_end);
            socket.event_times.other();
        }
    }

    /// Records the failure of a connection or of an attempt. Bytes received before were already delivered.
    pub fn failed(&mut self, remote_end: SocketId, error: Errno) {
        let Some(local_end) = self.local_end(remote_end) else {
            if let Some(closed) = self.get(remote_end).ok().and_then(Socket::peer) {
                self.time_wait.remove(closed);
            }
            return;
        };
        match self.get_mut(local_end) {
            Ok(socket) if matches!(socket.state, State::Connecting(_)) => {
                let error = if error == Errno::ECONNRESET { Errno::ECONNREFUSED } else { error };
                // It exists: it was just examined.
                let _ = self.refuse(local_end, error);
            }
            Ok(socket) => socket.reset(if socket.has_peer_finished && error == Errno::ECONNRESET { Errno::EPIPE } else { error }),
            Err(_) => {}
        }
    }

    /// The local socket of a remote end's connection, if it is still open.
    #[must_use]
    pub fn local_end(&self, remote_end: SocketId) -> Option<SocketId> {
        let local_end = self.get(remote_end).ok()?.peer()?;
        let is_its = |socket: &Socket| matches!(socket.state, State::Connected(peer) | State::Connecting(peer) if peer == remote_end);
        self.get(local_end).ok().filter(|socket| is_its(socket)).map(|_| local_end)
    }

    /// The listener for a connection request, and whether its queue has space.
    #[must_use]
    pub fn listener_at(&self, here: SocketAddr, there: SocketAddr) -> Option<(SocketId, bool)> {
        let listener = self.at_address(SockType::Stream, CARD, here, Some(there))?;
        Some((listener, !self.is_full(listener)))
    }

    /// Adds a new connection to a listener's queue. Returns its remote end.
    ///
    /// # Errors
    /// `ECONNREFUSED`: there is no listener any more, or its queue is full. `ENOMEM`.
    pub fn arrive(&mut self, here: SocketAddr, there: SocketAddr) -> Result<SocketId, Errno> {
        let (listener, _) = self.listener_at(here, there).filter(|(_, has_room)| *has_room).ok_or(Errno::ECONNREFUSED)?;
        let family = if here.is_ipv4() { Family::Inet } else { Family::Inet6 };
        let remote_end = self.open_remote_end(family, there, here)?;
        match self.establish(remote_end, listener) {
            Ok(_) => Ok(remote_end),
            Err(error) => {
                self.remove(remote_end);
                Err(error)
            }
        }
    }

    /// Delivers received bytes of a remote end to its local socket, as many as fit. Returns how many.
    pub fn deliver_bytes(&mut self, remote_end: SocketId, bytes: &[u8]) -> usize {
        let Some(local_end) = self.local_end(remote_end) else { return 0 };
        // By the limit of `has_room`: the remaining bytes are requested again once it reports space.
        let Ok(limit) = self.get(remote_end).map(|socket| socket.options.send_limit(true)) else { return 0 };
        let Ok(socket) = self.get(local_end) else { return 0 };
        let room = limit.saturating_sub(socket.queue.used()).min(bytes.len());
        if room == 0 {
            return 0;
        }
        let Ok(socket) = self.get_mut(local_end) else { return 0 };
        socket.event_times.input();
        socket.queue.push_bytes(&bytes[..room])
    }

    /// Whether a remote end's local socket has ended both directions, though it is still open.
    #[must_use]
    pub fn discards_input(&self, remote_end: SocketId) -> bool {
        self.local_end(remote_end)
            .and_then(|local_end| self.get(local_end).ok())
            .is_some_and(|socket| socket.is_rcv_shutdown && socket.is_send_shutdown)
    }

    /// Sends through a remote end.
    ///
    /// # Errors
    /// `EAGAIN`: the buffer is full. `EFAULT`.
    pub(super) fn send_to_remote_end(&mut self, remote_end: SocketId, give: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        let connection = self.get_mut(remote_end)?.remote_end.as_ref().and_then(|remote_end| remote_end.connection);
        let (Some(stack), Some(connection)) = (&mut self.inet.stack, connection) else { return Err(Errno::EAGAIN) };
        if stack.writable(connection) == 0 {
            return Err(Errno::EAGAIN);
        }
        let sent = stack.send(connection, give);
        if sent == 0 { Err(Errno::EFAULT) } else { Ok(sent) }
    }

    /// Records that the remote end has closed its direction (FIN).
    pub fn finished(&mut self, remote_end: SocketId) {
        // A closed socket is not notified.
        let _ = self.shutdown(remote_end, 1);
    }

    /// Removes a remote end whose connection is over.
    pub fn remove_remote_end(&mut self, remote_end: SocketId) {
        if let Some(local_end) = self.local_end(remote_end)
            && let Ok(socket) = self.get_mut(local_end)
            && socket.is_send_shutdown
        {
            socket.state = State::Closed;
        }
        self.remove(remote_end);
    }

    /// Sends a datagram to a remote host.
    pub(super) fn send_remote(&mut self, [from, to]: [SocketAddr; 2], hops: Option<i32>, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let SendRequest { length, give, .. } = sending;
        let bytes = gather(length, give)?;
        let hops = hops.and_then(|hops| u8::try_from(hops).ok()).filter(|hops| *hops > 0).unwrap_or(64);
        self.inet.request(NetworkRequest::Datagram { from, to, bytes, hops });
        Ok(length)
    }

    /// Sends an ICMP message to a remote host.
    pub(super) fn send_message_outside(&mut self, message: IcmpMessage) {
        self.inet.request(NetworkRequest::Message(message));
    }

    /// Whether its receive queue has space, if a UDP socket is bound to the address.
    #[must_use]
    pub fn accepts_datagram(&self, here: SocketAddr, there: SocketAddr) -> Option<bool> {
        let socket = self.get(self.at_address(SockType::Datagram, CARD, here, Some(there))?).ok()?;
        Some(socket.queue.used() < socket.options.receive_buffer)
    }

    /// Delivers a received datagram.
    pub fn receive_datagram(&mut self, here: SocketAddr, there: SocketAddr, bytes: &[u8], hops: u8) {
        let Some(target) = self.at_address(SockType::Datagram, CARD, here, Some(there)) else { return };
        let time = self.time();
        let Ok(socket) = self.get_mut(target) else { return };
        let from = Address::Inet(in_family(socket.family, there));
        let packet = Packet { hops: Some(hops.into()), class: Some(0), to: Some(here.ip()), by: CARD, time };
        // Earlier datagrams of the same batch may have filled the queue.
        if socket.queue.used() >= socket.options.receive_buffer {
            return;
        }
        // Without memory it is dropped.
        if socket.queue.push_whole(bytes.len(), from, ControlMessage { packet, ..ControlMessage::default() }, &mut giving(bytes)).is_ok() {
            socket.event_times.input();
        }
    }
}
