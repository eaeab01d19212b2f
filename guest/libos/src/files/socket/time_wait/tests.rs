// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of closed connections that hold their ports, with a clock that the tests set.

use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::BTreeSet;
use std::vec::Vec;
use std::{thread_local, vec};

use super::super::transfer::ReceiveRequest;
use super::super::{Family, PeerCredentials, SockType, SocketId, Sockets};
use super::{TIME_WAIT_MAX, TIMEWAIT_LEN};
use crate::errno::Errno;
use crate::uapi::{IPPROTO_TCP, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_FIN_WAIT2, TCP_TIME_WAIT};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1) };
}

fn pass(nanoseconds: u64) {
    NOW.set(NOW.get() + nanoseconds);
}

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);

fn sockets() -> Sockets {
    Sockets { monotonic_clock: Some(|| NOW.get()), ..Sockets::default() }
}

fn stream(sockets: &mut Sockets, reuses: bool) -> SocketId {
    let id = sockets.open(Family::Inet, SockType::Stream, IPPROTO_TCP, PeerCredentials::default()).expect("there is memory");
    sockets.get_mut(id).expect("it is open").options.reuses_address = reuses;
    id
}

fn listener(sockets: &mut Sockets, reuses: bool) -> SocketId {
    let id = stream(sockets, reuses);
    sockets.bind_port(id, SERVER, false).expect("the port is free");
    sockets.listen(id, 5, PeerCredentials::default()).expect("it is bound");
    id
}

/// A connection to a listener: the client's end and the server's.
fn connection(sockets: &mut Sockets, listener: SocketId) -> [SocketId; 2] {
    let client = stream(sockets, false);
    sockets.connect_port(client, SERVER, true).expect("somebody listens");
    [client, sockets.accept(listener, false).expect("it is connected")]
}

fn states(sockets: &Sockets) -> Vec<u8> {
    sockets.in_time_wait(NOW.get()).map(|(_, state)| state).collect()
}

/// The result of binding a new socket to the server's port.
fn bind_again(sockets: &mut Sockets, reuses: bool) -> Result<(), Errno> {
    let id = stream(sockets, reuses);
    let result = sockets.bind_port(id, SERVER, false);
    sockets.close(id);
    result
}

#[test]
fn the_end_that_closes_first_stays_for_a_minute() {
    let mut sockets = sockets();
    let listener = listener(&mut sockets, false);
    let [client, server] = connection(&mut sockets, listener);
    sockets.close(listener);
    // The accepted socket holds the port, too.
    assert_eq!(bind_again(&mut sockets, false), Err(Errno::EADDRINUSE));
    sockets.close(server);
    assert_eq!((states(&sockets), sockets.get(client).map(|socket| socket.tcp_state())), (vec![TCP_FIN_WAIT2], Ok(TCP_CLOSE_WAIT)));
    assert_eq!(bind_again(&mut sockets, false), Err(Errno::EADDRINUSE));
    pass(TIMEWAIT_LEN / 2);
    sockets.close(client);
    assert_eq!(states(&sockets), [TCP_TIME_WAIT]);
    // The minute begins anew with the state.
    pass(TIMEWAIT_LEN - 1);
    assert_eq!(bind_again(&mut sockets, false), Err(Errno::EADDRINUSE));
    assert_eq!(bind_again(&mut sockets, true), Err(Errno::EADDRINUSE));
    pass(1);
    assert_eq!((states(&sockets), bind_again(&mut sockets, false)), (vec![], Ok(())));
}

#[test]
fn a_listener_listens_anew_whatever_it_has_closed() {
    let mut sockets = sockets();
    let listener = listener(&mut sockets, false);
    let [client, server] = connection(&mut sockets, listener);
    assert_eq!(sockets.listen(listener, 6, PeerCredentials::default()), Ok(()));
    sockets.close(server);
    sockets.close(client);
    assert_eq!((states(&sockets), sockets.listen(listener, 7, PeerCredentials::default())), (vec![TCP_TIME_WAIT], Ok(())));
}

#[test]
fn a_server_that_reuses_its_address_starts_again() {
    let mut sockets = sockets();
    let first = listener(&mut sockets, true);
    let [client, server] = connection(&mut sockets, first);
    for id in [server, client, first] {
        sockets.close(id);
    }
    assert_eq!(bind_again(&mut sockets, false), Err(Errno::EADDRINUSE));
    let second = listener(&mut sockets, true);
    // The state of its connection goes when the same client connects again.
    assert_eq!(states(&sockets), [TCP_TIME_WAIT]);
    let port = sockets.in_time_wait(NOW.get()).next().expect("there is one").0.remote;
    let client = stream(&mut sockets, true);
    sockets.bind_port(client, port, false).expect("the client's end is gone");
    sockets.connect_port(client, SERVER, true).expect("somebody listens");
    assert_eq!(states(&sockets), []);
    // The same connection cannot exist twice.
    let twin = stream(&mut sockets, true);
    sockets.bind_port(twin, port, false).expect("both reuse the address");
    assert_eq!(sockets.connect_port(twin, SERVER, true), Err(Errno::EADDRNOTAVAIL));
    sockets.close(second);
}

#[test]
fn a_socket_that_is_still_open_is_closed_beside_its_entry() {
    let mut sockets = sockets();
    let listener = listener(&mut sockets, false);
    let [client, server] = connection(&mut sockets, listener);
    sockets.shutdown(client, 1).expect("it is connected");
    assert_eq!(states(&sockets), []);
    sockets.close(server);
    assert_eq!((states(&sockets), sockets.get(client).map(|socket| socket.tcp_state())), (vec![TCP_TIME_WAIT], Ok(TCP_CLOSE)));
    sockets.close(client);
    assert_eq!(states(&sockets), [TCP_TIME_WAIT]);
}

#[test]
fn a_reset_connection_leaves_nothing() {
    let mut sockets = sockets();
    let listener = listener(&mut sockets, false);
    // Lingering for no time.
    let [client, server] = connection(&mut sockets, listener);
    sockets.get_mut(client).expect("it is open").options.linger = Some(0);
    sockets.close(client);
    sockets.close(server);
    assert_eq!(states(&sockets), []);
    // Unread bytes, at the end that closes first and at the other.
    for first in [0, 1] {
        let ends = connection(&mut sockets, listener);
        assert_eq!(sockets.send_bytes(ends[0], b"unread"), Ok(6));
        sockets.close(ends[1 - first]);
        sockets.close(ends[first]);
        assert_eq!(states(&sockets), []);
    }
    // Bytes for a closed end.
    let [client, server] = connection(&mut sockets, listener);
    sockets.close(client);
    assert_eq!((states(&sockets), sockets.send_bytes(server, b"late")), (vec![TCP_FIN_WAIT2], Ok(4)));
    assert_eq!(states(&sockets), []);
    // A connection that is not accepted.
    let client = stream(&mut sockets, false);
    sockets.connect_port(client, SERVER, true).expect("somebody listens");
    sockets.close(client);
    assert_eq!(states(&sockets), [TCP_FIN_WAIT2]);
    sockets.close(listener);
    assert_eq!(states(&sockets), []);
}

#[test]
fn entries_and_their_indices_are_bounded() {
    let mut sockets = sockets();
    let listener = listener(&mut sockets, true);
    let mut ports = BTreeSet::new();
    for _ in 0..TIME_WAIT_MAX + 10 {
        let [client, server] = connection(&mut sockets, listener);
        ports.insert(sockets.get(client).expect("it is open").local.internet());
        sockets.close(client);
        let mut take = |bytes: &[u8]| bytes.len();
        let end = sockets.receive(server, ReceiveRequest { room: 1, peeks: false, waits: false, take: &mut take });
        assert!(end.is_ok(), "the client has closed");
        sockets.close(server);
    }
    assert_eq!((sockets.in_time_wait(NOW.get()).count(), ports.len()), (TIME_WAIT_MAX, TIME_WAIT_MAX + 10));
    pass(TIMEWAIT_LEN);
    let [client, server] = connection(&mut sockets, listener);
    sockets.close(client);
    sockets.close(server);
    let table = &sockets.time_wait;
    assert_eq!([table.entries.len(), table.by_port.len(), table.by_expiry.len()], [1; 3]);
}
