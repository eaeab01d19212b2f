// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets: Unix ones, and those of TCP and UDP over the cell's own loopback.
//!
//! Loopback needs no protocol stack. A connection is two sockets that refer to each other; sent bytes enter the peer's [queue] at
//! once. Events that TCP reports over time (the peer has closed or reset the connection) take effect immediately. Nothing here waits or
//! tracks open files: operations that would block return `EAGAIN`. Addresses and ports are in [`names`], establishing and closing
//! connections in [`connect`], closed connections that hold their ports in [`time_wait`], data transfer in [`transfer`].

pub mod address;
pub mod bpf;
pub mod connect;
pub mod cursor;
pub mod error_queue;
mod file;
pub mod icmp;
pub mod inet;
pub mod names;
pub mod options;
pub mod packets;
pub mod queue;
pub mod ready;
pub mod time_wait;
pub mod transfer;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::edge::EventTimes;
use crate::errno::Errno;
use crate::uapi::{AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM};
use address::Address;
use bpf::PacketFilter;
use error_queue::SocketError;
use inet::{InetState, RemoteEnd};
use names::{Port, UnixName};
use options::SocketOptions;
use queue::Queue;
use time_wait::TimeWaitTable;
use transfer::CorkedDatagram;

/// The identity of a socket: its index in the table, and its inode number, which is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId {
    index: usize,
    number: u64,
}

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Local sockets, with paths and abstract names.
    Unix,
    /// IPv4.
    Inet,
    /// IPv6, including mapped IPv4.
    Inet6,
    /// Routing messages.
    Netlink,
    /// Link-layer frames.
    Packet,
}

impl Family {
    /// Linux's number of the family.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Family::Unix => AF_UNIX,
            Family::Inet => AF_INET,
            Family::Inet6 => AF_INET6,
            Family::Netlink => AF_NETLINK,
            Family::Packet => AF_PACKET,
        }
    }

    /// Whether it is IPv4 or IPv6.
    #[must_use]
    pub const fn is_internet(self) -> bool {
        matches!(self, Family::Inet | Family::Inet6)
    }
}

/// The type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SockType {
    /// A byte stream.
    Stream,
    /// Datagrams from any sender.
    Datagram,
    /// Datagrams over a connection (`SOCK_SEQPACKET`).
    SeqPacket,
    /// Raw packets.
    Raw,
}

impl SockType {
    /// Linux's number of the type.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            SockType::Stream => SOCK_STREAM,
            SockType::Datagram => SOCK_DGRAM,
            SockType::Raw => SOCK_RAW,
            SockType::SeqPacket => SOCK_SEQPACKET,
        }
    }
}

/// The credentials of a process, as its peer receives them (`struct ucred`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The process's number.
    pub process: u32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

impl PeerCredentials {
    /// An unknown sender: Linux's numbers for an unknown process and user.
    pub const NOBODY: PeerCredentials = PeerCredentials { process: 0, user: 65_534, group: 65_534 };
}

/// The connection state of a socket.
#[derive(Debug)]
pub enum State {
    /// Not connected.
    Idle,
    /// Accepting connections.
    Listening {
        /// The backlog: how many connections may wait to be accepted, minus one.
        backlog: usize,
        /// The server ends of connections that wait to be accepted.
        accept_queue: VecDeque<SocketId>,
        /// Clients that wait for a place in the queue.
        blocked_clients: VecDeque<SocketId>,
    },
    /// Connecting: to a listener whose queue is full, or to a remote host that has not answered yet.
    Connecting(SocketId),
    /// Connected to this socket, which may be closed by now.
    Connected(SocketId),
    /// A closed connection.
    Closed,
}

/// A socket.
#[derive(Debug)]
pub struct Socket {
    /// Its address family.
    pub family: Family,
    /// Its type.
    pub socket_type: SockType,
    /// Its protocol, by Linux's number.
    pub protocol: u32,
    /// Its inode number.
    pub number: u64,
    /// Its connection state.
    pub state: State,
    /// Its address.
    pub local: Address,
    /// Its peer's address.
    pub remote: Option<Address>,
    /// Its options.
    pub options: SocketOptions,
    /// Its pending error.
    pub error: Option<Errno>,
    /// Its error queue: errors of packets that it sent.
    pub error_queue: VecDeque<SocketError>,
    /// The ICMP filter: a bit for each message type that is dropped.
    pub filter: [u32; 8],
    /// The packet filter.
    pub program: Option<PacketFilter>,
    /// The receive queue.
    pub queue: Queue,
    /// Receiving was shut down.
    pub is_rcv_shutdown: bool,
    /// Sending was shut down.
    pub is_send_shutdown: bool,
    /// The peer has shut down sending.
    pub has_peer_finished: bool,
    /// The result of a connection attempt has not been reported yet.
    pub is_connect_unreported: bool,
    /// When it last became ready.
    pub event_times: EventTimes,
    /// The credentials of its creator.
    pub credentials: PeerCredentials,
    /// The credentials of its peer.
    pub peer_credentials: Option<PeerCredentials>,
    /// The state of a remote end, which represents a remote end.
    pub remote_end: Option<RemoteEnd>,
    /// It is the server end of a connection that has not been accepted yet.
    is_unaccepted: bool,
    /// The datagram being assembled (`MSG_MORE`, `UDP_CORK`).
    corked: Option<CorkedDatagram>,
    /// The Unix name by which it is found.
    name: Option<UnixName>,
    /// The port by which it is found.
    port: Option<Port>,
    /// The program chose that port.
    chose_port: bool,
}

impl Socket {
    /// Whether it is a TCP socket.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.family.is_internet() && self.socket_type == SockType::Stream
    }

    /// Whether it is a UDP socket.
    #[must_use]
    pub fn is_udp(&self) -> bool {
        self.family.is_internet() && self.socket_type == SockType::Datagram && !self.is_echo()
    }

    /// Whether it sends and receives only over a connection.
    #[must_use]
    pub fn needs_connection(&self) -> bool {
        matches!(self.socket_type, SockType::Stream | SockType::SeqPacket)
    }

    /// Its address before it is bound; of raw sockets it contains the protocol.
    fn unnamed(&self) -> Address {
        match packets::unbound(self.family, self.protocol) {
            Address::Inet(none) if self.is_raw() => Address::Inet(SocketAddr::new(none.ip(), self.protocol as u16)),
            none => none,
        }
    }

    /// Its peer.
    #[must_use]
    pub fn peer(&self) -> Option<SocketId> {
        if let State::Connected(peer) = self.state { Some(peer) } else { None }
    }

    /// Whether it listens.
    #[must_use]
    pub fn listens(&self) -> bool {
        matches!(self.state, State::Listening { .. })
    }

    /// Returns and clears the pending error.
    ///
    /// # Errors
    /// The pending error.
    pub fn take_error(&mut self) -> Result<(), Errno> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Ends both directions.
    fn end_both(&mut self) {
        self.is_rcv_shutdown = true;
        self.is_send_shutdown = true;
        self.event_times.other();
    }

    /// Sets the pending error.
    fn fail(&mut self, error: Errno) {
        self.error = Some(error);
        self.event_times.other();
    }

    /// Resets the connection, with a pending error.
    fn reset(&mut self, error: Errno) {
        self.fail(error);
        self.end_both();
        self.state = State::Closed;
    }
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    sockets: Vec<Option<Socket>>,
    free: Vec<usize>,
    last_number: u64,
    names: BTreeMap<UnixName, SocketId>,
    ports: BTreeMap<Port, Vec<SocketId>>,
    /// Sockets that receive ICMP messages.
    icmp: Vec<SocketId>,
    /// Sockets that receive frames.
    packets: Vec<SocketId>,
    /// The interface to the network outside.
    pub inet: InetState,
    /// Closed TCP connections that hold their ports.
    pub time_wait: TimeWaitTable,
    /// The wall clock in nanoseconds, for arrival times.
    pub wall_clock: Option<fn() -> u64>,
    /// The monotonic clock in nanoseconds.
    pub monotonic_clock: Option<fn() -> u64>,
    /// The start of the search for automatic names and ports.
    next_name: u32,
    next_port: u16,
}

impl Sockets {
    /// Creates a socket.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn open(&mut self, family: Family, socket_type: SockType, protocol: u32, credentials: PeerCredentials) -> Result<SocketId, Errno> {
        let index = if let Some(index) = self.free.pop() {
            index
        } else {
            self.sockets.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.sockets.push(None);
            self.sockets.len() - 1
        };
        self.last_number += 1;
        let number = self.last_number;
        self.sockets[index] = Some(Socket {
            family,
            socket_type,
            protocol,
            number,
            state: State::Idle,
            local: Address::none(family),
            remote: None,
            options: SocketOptions::new(family, socket_type),
            error: None,
            error_queue: VecDeque::new(),
            filter: [0; 8],
            program: None,
            queue: Queue::default(),
            is_rcv_shutdown: false,
            is_send_shutdown: false,
            has_peer_finished: false,
            is_connect_unreported: false,
            event_times: EventTimes::default(),
            credentials,
            peer_credentials: None,
            remote_end: None,
            is_unaccepted: false,
            corked: None,
            name: None,
            port: None,
            chose_port: false,
        });
        let id = SocketId { index, number };
        let socket = self.get_mut(id)?;
        socket.local = socket.unnamed();
        if socket.is_echo() || socket.is_raw() {
            self.icmp.push(id);
        }
        if family == Family::Packet {
            self.packets.push(id);
        }
        Ok(id)
    }

    /// The time of the wall clock, if there is one.
    pub(crate) fn time(&self) -> Option<u64> {
        self.wall_clock.map(|clock| clock())
    }

    /// Creates two connected Unix sockets.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn pair(&mut self, socket_type: SockType, protocol: u32, credentials: PeerCredentials) -> Result<[SocketId; 2], Errno> {
        let first = self.open(Family::Unix, socket_type, protocol, credentials)?;
        let second = match self.open(Family::Unix, socket_type, protocol, credentials) {
            Ok(second) => second,
            Err(error) => {
                self.remove(first);
                return Err(error);
            }
        };
        for (socket, peer) in [(first, second), (second, first)] {
            let socket = self.get_mut(socket)?;
            socket.state = State::Connected(peer);
            socket.remote = Some(Address::Unnamed);
            socket.peer_credentials = Some(credentials);
        }
        Ok([first, second])
    }

    /// A socket.
    ///
    /// # Errors
    /// `EBADF`: it is closed.
    pub fn get(&self, id: SocketId) -> Result<&Socket, Errno> {
        let socket = self.sockets.get(id.index).and_then(Option::as_ref);
        socket.filter(|socket| socket.number == id.number).ok_or(Errno::EBADF)
    }

    /// All, in order of their places.
    pub fn all(&self) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().flatten()
    }

    /// A socket, to be changed.
    ///
    /// # Errors
    /// `EBADF`: it is closed.
    pub fn get_mut(&mut self, id: SocketId) -> Result<&mut Socket, Errno> {
        let socket = self.sockets.get_mut(id.index).and_then(Option::as_mut);
        let socket = socket.filter(|socket| socket.number == id.number).ok_or(Errno::EBADF)?;
        self.inet.note(id, socket);
        Ok(socket)
    }

    /// Removes a socket from the table and from all indices.
    fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.get(id).ok()?;
        let socket = self.sockets.get_mut(id.index)?.take()?;
        self.free.push(id.index);
        self.icmp.retain(|other| *other != id);
        self.packets.retain(|other| *other != id);
        if let Some(name) = &socket.name {
            self.names.remove(name);
        }
        if let Some(port) = socket.port {
            self.release_port(port, id);
        }
        Some(socket)
    }
}
