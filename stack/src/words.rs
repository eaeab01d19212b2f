// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a stack and its user say to each other: connections and their names, what happened, what may come in, what cannot be done.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// The name of a connection: never used again after its end. The default is no connection's.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

/// Both ends of a connection, as the stack sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
}

/// Something that the user of a stack learns.
///
/// Of a connection each stands in the queue once at most, however often it happened, in the order of this list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// A stranger that was admitted is connected: [`Stack::tuple`](crate::Stack::tuple) says who.
    Accepted(ConnectionId),
    /// A connection that this side asked for is open.
    Opened(ConnectionId),
    /// There is something to read, or the other side has finished.
    Data(ConnectionId),
    /// There is room to write again, after [`Stack::send`](crate::Stack::send) left none.
    Room(ConnectionId),
    /// The connection broke, or never opened. What arrived before can be read until [`Happening::Closed`].
    Failed(ConnectionId, Failure),
    /// The connection is over, all of it was read, and its name is forgotten. The last word on it.
    Closed(ConnectionId),
    /// A datagram arrived for a port that the doorkeeper hears.
    Datagram(Datagram),
    /// Somebody on the way says that a datagram or a message did not arrive.
    Unreachable(Notice),
    /// A message arrived, and the doorkeeper overhears them; or a question for an echo that it asks of somebody else.
    Message(Message),
}

/// Why a connection ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The other side said so (RST): before it was open, it was refused.
    Reset,
    /// Nobody answered for too long.
    TimedOut,
    /// The other side cannot be reached.
    Unreachable(Obstacle),
}

/// Why something cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// Its network.
    Network,
    /// The host: nobody has that address.
    Host,
    /// Nobody has the port there, or the protocol.
    Port,
    /// It is not allowed.
    Forbidden,
    /// The packet was too long for a part of the way.
    TooLong,
    /// It passed too many routers.
    TooFar,
}

/// A datagram of UDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
    /// What it says.
    pub bytes: Vec<u8>,
    /// How many more routers it might have passed; of one to be sent, how many it may.
    pub hops: u8,
}

/// A message of ICMP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// This side.
    pub local: IpAddr,
    /// The other side.
    pub remote: IpAddr,
    /// What stands behind the header of its packet: its kind first. Of one to be sent, with its sum ([`sum`](crate::sum)).
    pub bytes: Vec<u8>,
    /// As a datagram's.
    pub hops: u8,
}

/// What is said of a datagram or a message of ICMP that did not arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Who sent it: this side.
    pub local: SocketAddr,
    /// Who should have got it. A message has port 0 on both sides.
    pub remote: SocketAddr,
    /// What was in the way.
    pub obstacle: Obstacle,
    /// Who says so: this side, where no neighbour answered.
    pub from: IpAddr,
    /// The number of the kind of ICMP's message that said so.
    pub kind: u8,
    /// The number of its reason.
    pub code: u8,
    /// Of what was too long, the bytes that a packet may have there.
    pub mtu: u32,
    /// What the packet carried, as far as it was sent back: the header of UDP or ICMP first.
    pub quoted: Vec<u8>,
}

/// Who may come in.
pub trait Doorkeeper {
    /// A stranger asks for a connection. Asked for each such packet, so perhaps again.
    fn admits(&mut self, tuple: &Tuple) -> Verdict;

    /// Whether somebody has this port of UDP, and has room for a datagram. Otherwise the sender is told, unless the datagram was for all.
    fn hears(&mut self, local: SocketAddr, remote: SocketAddr) -> Hearing;

    /// Whether somebody is asked for an echo at an address for which this stack stands in ([`Config::any_address`](crate::Config::any_address)): the question is then a
    /// [`Happening::Message`]. Otherwise who asks is told what is in the way. `remote` has the question's number where others have a port.
    ///
    /// # Errors
    /// Nobody is asked, for this reason.
    fn asks(&mut self, _local: IpAddr, _remote: SocketAddr) -> Result<(), Obstacle> {
        Err(Obstacle::Host)
    }

    /// Whether the user wants to know of every message of ICMP that arrives, whatever the stack does about it.
    fn overhears(&mut self) -> bool {
        false
    }
}

/// What becomes of a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Is let in: after the rest of the handshake it is [`Happening::Accepted`].
    Admit,
    /// Waits, without an answer, for [`Stack::admit`](crate::Stack::admit) or [`Stack::refuse`](crate::Stack::refuse).
    Hold,
    /// Is told that it may not.
    Refuse(Refusal),
    /// Gets no answer. It will ask again.
    Ignore,
}

/// How a stranger is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// As if nobody listened (RST).
    Reset,
    /// As if there were no way (ICMP).
    Unreachable(Obstacle),
}

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    /// Somebody wants it.
    Heard,
    /// Nobody has the port: the sender is told.
    Nobody,
    /// It is lost without a word, as if its reader's room were full.
    Lost,
}

/// What a stack could not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither a network nor a gateway leads there.
    #[error("no route leads there")]
    NoRoute,
    /// A port or an address that nobody can be asked under, or two of different families.
    #[error("this address cannot be used")]
    Unaddressable,
    /// There is a connection between these two already, or there was one just now.
    #[error("these two ends are connected already")]
    InUse,
    /// As many connections as the configuration allows.
    #[error("there are too many connections")]
    TooMany,
    /// Longer than a packet may be.
    #[error("it is longer than a packet may be")]
    TooLong,
    /// The link has no room now: later.
    #[error("the link has no room now")]
    Full,
}

/// How much there is of everything, and what was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that have a name.
    pub connections: usize,
    /// Strangers that knocked.
    pub half_open: usize,
    /// Connections that are over and only answer to what was lost at their end.
    pub lingering: usize,
    /// Neighbours that are known or asked for.
    pub neighbours: usize,
    /// Bytes of connections' buffers.
    pub buffer_bytes: usize,
    /// Bytes of datagrams and messages that wait to be heard of.
    pub waiting_bytes: usize,
    /// Frames that were taken.
    pub taken: u64,
    /// Frames among them that said nothing to this stack, or nothing sensible.
    pub ignored: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Segments among them that had been sent before.
    pub sent_again: u64,
    /// Strangers that were forgotten because there were too many.
    pub forgotten: u64,
    /// Times that a connection was looked at: what the work grows with.
    pub looks: u64,
}
