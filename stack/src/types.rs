// SPDX-License-Identifier: MIT OR Apache-2.0
//! The public types of a stack: connection ids, events, admission, and errors.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// The id of a connection. It is never reused; the default belongs to no connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

/// Both ends of a connection, as the stack sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// This side.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
}

/// An event for the user of a stack.
///
/// Each event of a connection is queued once at most, however often it occurs, in the order of this list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketEvent {
    /// A connection from a peer is open; [`Stack::tuple`](crate::Stack::tuple) returns its ends.
    Accepted(ConnectionId),
    /// A connection that this side opened is established.
    Opened(ConnectionId),
    /// There is something to read, or the peer has finished.
    Readable(ConnectionId),
    /// There is room to write again, after [`Stack::send`](crate::Stack::send) left none.
    Writable(ConnectionId),
    /// The connection failed, or never opened. Data that arrived before can be read until [`SocketEvent::Closed`].
    Failed(ConnectionId, Failure),
    /// The connection is closed, all of it was read, and its id is released. The last event of it.
    Closed(ConnectionId),
    /// A datagram arrived for a port that [`Listeners::accepts_datagram`] accepts.
    Datagram(Datagram),
    /// An ICMP error reports that a datagram or an ICMP message did not arrive.
    Unreachable(IcmpError),
    /// A received ICMP message, if [`Listeners::wants_icmp`], or an echo request that [`Listeners::accepts_echo`] accepts for another host.
    Message(IcmpMessage),
}

/// The reason why a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer reset it (RST); before it was open, the peer refused it.
    Reset,
    /// The peer did not answer in time.
    TimedOut,
    /// The peer is unreachable.
    Unreachable(Unreachable),
}

/// The reason why a destination is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// Network unreachable.
    Network,
    /// Host unreachable: no host has that address.
    Host,
    /// Port or protocol unreachable.
    Port,
    /// Administratively prohibited.
    AdminProhibited,
    /// The packet exceeds the MTU of a link on the path.
    PacketTooBig,
    /// The hop limit was exceeded.
    TimeExceeded,
}

/// A UDP datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// This side.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// The payload.
    pub bytes: Vec<u8>,
    /// The hop limit: the remaining one of a received datagram, the initial one of a datagram to send.
    pub hops: u8,
}

/// An ICMP message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IcmpMessage {
    /// This side.
    pub local: IpAddr,
    /// The peer.
    pub remote: IpAddr,
    /// The message from its type on. A message to send includes its checksum ([`sum`](crate::sum)).
    pub bytes: Vec<u8>,
    /// The hop limit, as a datagram's.
    pub hops: u8,
}

/// An error about a datagram or an ICMP message that did not arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IcmpError {
    /// Source of the undelivered packet: this side.
    pub local: SocketAddr,
    /// Its destination. An ICMP message has port 0 on both sides.
    pub remote: SocketAddr,
    /// The reason.
    pub unreachable: Unreachable,
    /// The sender of the error: this side, if no neighbour answered.
    pub from: IpAddr,
    /// Type of the ICMP error.
    pub kind: u8,
    /// Code of the ICMP error.
    pub code: u8,
    /// The MTU of the link, if the packet was too long.
    pub mtu: u32,
    /// The payload of the packet, as far as it was quoted: the header of UDP or ICMP first.
    pub quoted: Vec<u8>,
}

/// Admission control: the user's decisions on connection requests, datagrams and echo requests.
pub trait Listeners {
    /// Decides on a connection request. It is called for each such packet, so perhaps more than once.
    fn admits(&mut self, tuple: &Tuple) -> Verdict;

    /// Whether a UDP port is open and has room for a datagram. If it is closed, the sender of a unicast datagram gets an ICMP error.
    fn accepts_datagram(&mut self, local: SocketAddr, remote: SocketAddr) -> DatagramVerdict;

    /// Whether to accept an echo request to an address that this stack serves for others
    /// ([`Config::any_address`](crate::Config::any_address)). It becomes a [`SocketEvent::Message`]; otherwise the
    /// sender gets an ICMP error. `remote` has the request's identifier as its port.
    ///
    /// # Errors
    /// The reason why the request is refused.
    fn accepts_echo(&mut self, _local: IpAddr, _remote: SocketAddr) -> Result<(), Unreachable> {
        Err(Unreachable::Host)
    }

    /// Whether the user wants every received ICMP message, in addition to the stack's own processing.
    fn wants_icmp(&mut self) -> bool {
        false
    }
}

/// The decision on a connection request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Accept: after the handshake it becomes [`SocketEvent::Accepted`].
    Admit,
    /// Hold it unanswered until [`Stack::admit`](crate::Stack::admit) or [`Stack::refuse`](crate::Stack::refuse).
    Hold,
    /// Refuse it.
    Refuse(SynRefusal),
    /// Drop it silently. The peer will retry.
    Ignore,
}

/// The answer to a refused connection request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynRefusal {
    /// As if no socket listened (RST).
    Reset,
    /// As if there were no route (ICMP).
    Unreachable(Unreachable),
}

/// The decision on a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramVerdict {
    /// The port is open.
    Accepted,
    /// The port is closed: the sender gets an ICMP error.
    Closed,
    /// Dropped silently, as if the receive buffer were full.
    Dropped,
}

/// An operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither a network nor a gateway leads there.
    #[error("no route to the destination")]
    NoRoute,
    /// An invalid port or address, or two addresses of different families.
    #[error("invalid address or port")]
    Unaddressable,
    /// The two ends have a connection already, or had one just now.
    #[error("the pair of addresses is in use")]
    InUse,
    /// The configured maximum of connections is reached.
    #[error("the maximum number of connections is reached")]
    TooMany,
    /// Longer than a packet may be.
    #[error("the packet exceeds the MTU")]
    TooLong,
    /// The link has no room now: retry later.
    #[error("the link has no room: try again later")]
    Full,
}

/// The current sizes of all tables, and the counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that have an id.
    pub connections: usize,
    /// Half-open connections.
    pub half_open: usize,
    /// Connections in TIME-WAIT.
    pub time_wait: usize,
    /// Entries of the neighbour table.
    pub neighbours: usize,
    /// Bytes of connections' buffers.
    pub buffer_bytes: usize,
    /// Bytes of datagrams and messages that wait for the user.
    pub waiting_bytes: usize,
    /// Received frames.
    pub received: u64,
    /// Received frames that were ignored, because they were not for this stack or malformed.
    pub ignored: u64,
    /// Sent frames.
    pub sent: u64,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Half-open connections that were dropped because there were too many.
    pub half_open_dropped: u64,
    /// Polls of connections' sockets: the measure of the work.
    pub polls: u64,
}
