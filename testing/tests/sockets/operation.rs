// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on sockets and their random generators: few sockets, so that they interact.

use pando_libos::files::socket::SockType;
use proptest::collection::vec;
use proptest::prelude::*;

/// The maximum number of sockets.
pub(crate) const SOCKETS: usize = 6;

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unix(SockType),
    Tcp,
    Udp,
}

/// An operation on a socket, which is named by its slot.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Puts two connected sockets into two slots.
    Pair(usize, usize, SockType),
    /// Puts a new socket into a slot.
    Open(usize, Kind),
    /// Binds it to a unique name or a port.
    Bind(usize),
    Listen(usize, u32),
    /// Connects it to the address of another.
    Connect(usize, usize),
    /// Dissolves its connection (AF_UNSPEC).
    Disconnect(usize),
    /// Accepts a connection and puts its socket into a slot.
    Accept(usize, usize),
    Send(usize, usize),
    /// Sends to the address of another.
    SendTo(usize, usize, usize),
    Receive(usize, usize),
    Peek(usize, usize),
    Shutdown(usize, u64),
    Close(usize),
    /// Returns its readiness (poll).
    Ready(usize),
    /// Returns its pending error (SO_ERROR).
    Error(usize),
    /// Whether it is connected.
    Peer(usize),
    /// Returns the number of unread bytes.
    Waiting(usize),
}

fn socket_type() -> impl Strategy<Value = SockType> {
    prop_oneof![2 => Just(SockType::Stream), 1 => Just(SockType::Datagram), 1 => Just(SockType::SeqPacket)]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![3 => socket_type().prop_map(Kind::Unix), 3 => Just(Kind::Tcp), 1 => Just(Kind::Udp)]
}

/// Operations that together make a connection, which random single ones seldom do.
fn connection() -> impl Strategy<Value = Vec<Operation>> {
    use Operation as O;
    (kind(), 0..SOCKETS, 0..SOCKETS, 0..SOCKETS).prop_map(|(kind, listener, client, server)| {
        vec![
            O::Open(listener, kind),
            O::Bind(listener),
            O::Listen(listener, 5),
            O::Open(client, kind),
            O::Connect(client, listener),
            O::Accept(listener, server),
        ]
    })
}

pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation as O;
    let place = 0..SOCKETS;
    let two = (place.clone(), place.clone());
    let operation = prop_oneof![
        2 => (two.clone(), socket_type()).prop_map(|((one, other), socket_type)| O::Pair(one, other, socket_type)),
        2 => (place.clone(), kind()).prop_map(|(place, kind)| O::Open(place, kind)),
        2 => place.clone().prop_map(O::Bind),
        2 => (place.clone(), 0..3u32).prop_map(|(place, backlog)| O::Listen(place, backlog + 3)),
        3 => two.clone().prop_map(|(one, other)| O::Connect(one, other)),
        1 => place.clone().prop_map(O::Disconnect),
        2 => two.clone().prop_map(|(one, other)| O::Accept(one, other)),
        8 => (place.clone(), 1..100usize).prop_map(|(place, bytes)| O::Send(place, bytes)),
        3 => (two, 1..100usize).prop_map(|((one, other), bytes)| O::SendTo(one, other, bytes)),
        8 => (place.clone(), 1..150usize).prop_map(|(place, bytes)| O::Receive(place, bytes)),
        1 => (place.clone(), 1..150usize).prop_map(|(place, bytes)| O::Peek(place, bytes)),
        3 => (place.clone(), 0..4u64).prop_map(|(place, how)| O::Shutdown(place, how)),
        2 => place.clone().prop_map(O::Close),
        4 => place.clone().prop_map(O::Ready),
        1 => place.clone().prop_map(O::Error),
        1 => place.clone().prop_map(O::Peer),
        1 => place.prop_map(O::Waiting),
    ];
    let some = prop_oneof![8 => operation.prop_map(|operation| vec![operation]), 1 => connection()];
    vec(some, 0..40).prop_map(|groups| groups.concat())
}
