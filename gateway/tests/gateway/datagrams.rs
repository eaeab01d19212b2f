// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams, from cells and to them.

use crate::cell::{GATEWAY, TestCell};
use crate::pattern;
use pando_stack::Unreachable;
use std::net::{SocketAddr, UdpSocket};
use std::thread;

/// An echo server on the host's loopback, and its address for the cell.
fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("the host has a port");
    let port = socket.local_addr().expect("it has an address").port();
    thread::spawn(move || {
        let mut room = vec![0; 1 << 16];
        while let Ok((length, from)) = socket.recv_from(&mut room) {
            let _ = socket.send_to(&room[..length], from);
        }
    });
    SocketAddr::new(GATEWAY.into(), port)
}

#[test]
fn a_cell_speaks_with_a_server_of_the_host() {
    let to = echo();
    let mut cell = TestCell::new(&[format!("host:{}", to.port())], &[], &[]);
    for (number, length) in [(0, 0), (1, 1), (2, 1400), (3, 9000), (4, 60_000)] {
        let (port, bytes) = (5000 + number as u16, pattern(length, number));
        cell.process_at(port);
        cell.send(port, to, &bytes);
        let datagram = cell.until(|cell| cell.datagrams.pop());
        assert_eq!((datagram.local.port(), datagram.remote, datagram.bytes == bytes), (port, to, true), "{length} bytes");
    }
    assert_eq!(cell.stop().counts.udp.out, 5);
}

#[test]
fn destinations_without_a_rule_are_unreachable() {
    let to = echo();
    let mut cell = TestCell::new(&[], &[], &[]);
    cell.process_at(5000);
    for to in [to, SocketAddr::from(([8, 8, 8, 8], 53))] {
        cell.send(5000, to, b"x");
        assert_eq!(cell.until(|cell| cell.unreachable.pop()), Unreachable::Port, "{to}");
    }
    assert!(cell.datagrams.is_empty());
}

#[test]
fn echo_requests_to_forbidden_hosts_are_refused() {
    let mut cell = TestCell::new(&["198.51.100.7:80".into(), "198.51.100.8".into()], &[], &[]);
    for to in ["198.51.100.7", "8.8.8.8", "2606:4700::1111"].map(|to| to.parse().expect("an address")) {
        cell.ask(7, to);
        assert_eq!(cell.until(|cell| cell.unreachable.pop()), Unreachable::AdminProhibited, "{to}");
    }
    let report = cell.stop();
    let refused: Vec<String> = report.refused.iter().map(ToString::to_string).collect();
    assert_eq!(refused, ["ping 198.51.100.7", "ping 8.8.8.8", "ping 2606:4700::1111"]);
    assert_eq!((report.counts.refused, report.counts.udp.out), (3, 0));
}

#[test]
fn a_program_of_the_host_talks_to_a_server_in_the_cell() {
    let mut cell = TestCell::new(&[], &["0:53/udp"], &[]);
    cell.process_at(53);
    let to = cell.forwards[0];
    let clients: Vec<UdpSocket> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").expect("the host has a port")).collect();
    for (number, client) in clients.iter().enumerate() {
        client.send_to(&pattern(100, number), to).expect("the gateway listens");
    }
    let datagrams = cell.until(|cell| (cell.datagrams.len() == clients.len()).then(|| std::mem::take(&mut cell.datagrams)));
    for datagram in datagrams {
        let answer = [&datagram.bytes[..], b"answered"].concat();
        assert_eq!(datagram.remote.ip(), GATEWAY);
        cell.send(53, datagram.remote, &answer);
    }
    for (number, client) in clients.iter().enumerate() {
        client.set_nonblocking(true).expect("it can be");
        let mut room = [0; 200];
        let (length, from) = cell.until(|_| client.recv_from(&mut room).ok());
        assert_eq!((&room[..length], from), (&[&pattern(100, number)[..], b"answered"].concat()[..], to));
    }
}
