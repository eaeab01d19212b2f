// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several sockets at one port (SO_REUSEPORT): each receives a share of the connections and datagrams, as on Linux.

use core::net::{Ipv4Addr, SocketAddr};
use pando_libos::errno::Errno;
use pando_libos::files::socket::queue::ControlMessage;
use pando_libos::files::socket::transfer::{Destination, ReceiveRequest, SendRequest, giving};
use pando_libos::files::socket::{Family, PeerCredentials, SockType, SocketId, Sockets};
use pando_libos::uapi::{SO_REUSEPORT, SOL_SOCKET};

const MEMBERS: usize = 4;
const CLIENTS: usize = 400;
const PORT: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 80);

/// Sockets that share a port.
fn members(sockets: &mut Sockets, socket_type: SockType) -> Vec<SocketId> {
    let member = |_| {
        let id = sockets.open(Family::Inet, socket_type, 0, PeerCredentials::default()).expect("there is memory");
        sockets.get_mut(id).and_then(|socket| socket.set_option(SOL_SOCKET, SO_REUSEPORT, 1, None, true)).expect("it has it");
        sockets.bind_port(id, PORT, true).expect("it is shared");
        if socket_type == SockType::Stream {
            sockets.listen(id, CLIENTS as u32, PeerCredentials::default()).expect("it is shared");
        }
        id
    };
    (0..MEMBERS).map(member).collect()
}

/// The number of pending connections of each.
fn accepted(sockets: &mut Sockets, members: &[SocketId]) -> Vec<usize> {
    members.iter().map(|member| std::iter::from_fn(|| sockets.accept(*member, false).ok()).count()).collect()
}

fn is_fair(parts: &[usize]) -> bool {
    parts.iter().sum::<usize>() == CLIENTS && parts.iter().all(|part| *part > CLIENTS / parts.len() / 2)
}

#[test]
fn connections_are_spread_over_the_listeners() {
    let mut sockets = Sockets::default();
    let mut members = members(&mut sockets, SockType::Stream);
    let connect = |sockets: &mut Sockets| {
        for _ in 0..CLIENTS {
            let client = sockets.open(Family::Inet, SockType::Stream, 0, PeerCredentials::default()).expect("there is memory");
            assert_eq!(sockets.connect_port(client, PORT, false), Err(Errno::EINPROGRESS));
            assert_eq!(sockets.connect_port(client, PORT, false), Ok(()));
        }
    };
    connect(&mut sockets);
    let parts = accepted(&mut sockets, &members);
    assert!(is_fair(&parts), "{parts:?}");
    // A closed socket gets no more connections.
    sockets.close(members.remove(1));
    connect(&mut sockets);
    let parts = accepted(&mut sockets, &members);
    assert!(is_fair(&parts), "{parts:?}");
}

#[test]
fn datagrams_are_spread_and_those_of_one_sender_stay_together() {
    let mut sockets = Sockets::default();
    let members = members(&mut sockets, SockType::Datagram);
    for number in 0..CLIENTS as u16 {
        let client = sockets.open(Family::Inet, SockType::Datagram, 0, PeerCredentials::default()).expect("there is memory");
        for _ in 0..3 {
            let bytes = number.to_le_bytes();
            let mut give = giving(&bytes);
            let sending =
                SendRequest { length: bytes.len(), control: ControlMessage::default(), urgent: false, more: false, give: &mut give };
            assert_eq!(sockets.send(client, &Destination::Inet(PORT), sending), Ok(bytes.len()));
        }
    }
    let received = |member: &SocketId| {
        let mut numbers: Vec<u16> = Vec::new();
        let mut take = |bytes: &[u8]| {
            numbers.push(u16::from_le_bytes([bytes[0], bytes[1]]));
            bytes.len()
        };
        while sockets.receive(*member, ReceiveRequest { room: 2, peeks: false, waits: false, take: &mut take }).is_ok() {}
        // The three datagrams of each sender arrive one after the other.
        assert!(numbers.chunks(3).all(|three| three.len() == 3 && three.iter().all(|number| *number == three[0])));
        numbers.len() / 3
    };
    let parts: Vec<usize> = members.iter().map(received).collect();
    assert!(is_fair(&parts), "{parts:?}");
}
