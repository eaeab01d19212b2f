// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell that sends malformed frames to its gateway, which must continue.

use crate::cell::{GATEWAY, TestCell};
use fastrand::Rng;
use pando_testing::lab::repetitions;
use pando_testing::mutate::mutate;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;

/// The seed of the random changes.
const SEED: u64 = 1;

/// Echo servers on the host's loopback, for a limited number of bytes: their ports.
fn servers() -> [u16; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("the host has a port");
    let ports = [listener.local_addr(), socket.local_addr()].map(|address| address.expect("it has an address").port());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut room = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut room) {
                    if stream.write_all(&room[..length]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    thread::spawn(move || {
        let mut room = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut room) {
            let _ = socket.send_to(&room[..length], from);
        }
    });
    ports
}

#[test]
fn nonsense_from_a_cell_ends_no_gateway() {
    let [tcp, udp] = servers();
    let rules = [format!("host:{tcp}"), format!("host:{udp}"), "dns".into()];
    let mut cell = TestCell::new(&rules, &["0:80"], &[]);
    cell.echo_at(80);
    cell.record();
    let id = cell.connect_host(tcp);
    cell.say(id, b"a question", true);
    assert_eq!(cell.until_over(id), None);
    cell.process_at(5000);
    cell.send(5000, SocketAddr::new(GATEWAY.into(), udp), b"a question");
    cell.until(|cell| cell.datagrams.pop());
    cell.send(5000, SocketAddr::new(GATEWAY.into(), 53), &[0; 40]);
    cell.ask(7, [198, 51, 100, 7].into());
    let closed = cell.connect_host(1);
    assert!(cell.until_over(closed).is_some());
    // A connection that stays open, so that frames can match it.
    let open = cell.connect_host(tcp);
    cell.say(open, b"a question", false);
    cell.until(|cell| (cell.connection(open).received == b"a question").then_some(()));
    let templates = cell.recorded();
    assert!(templates.len() > 10, "{}", templates.len());

    let mut random = Rng::with_seed(SEED);
    for _ in 0..repetitions(1000, 50_000, 2_000_000) {
        cell.blurt(&mutate(&templates[random.usize(..templates.len())], &mut random));
    }
    // The gateway still serves new connections; the old one may have been reset.
    let id = cell.connect_host(tcp);
    cell.say(id, b"are you well?", true);
    assert_eq!(cell.until_over(id), None, "seed {SEED}");
    assert_eq!(cell.connection(id).received, b"are you well?", "seed {SEED}");
    let report = cell.stop();
    println!("{:?}", report.counts);
}
