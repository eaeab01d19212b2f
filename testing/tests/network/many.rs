// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many connections: half-open ones that are never completed, and complete ones in sequence that leak nothing.

use crate::host_peer::HostPeer;
use crate::world::{CellNetwork, Running};
use bytes::Bytes;
use pando_kernel::NetworkConfig;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_machine::PageCount;
use pando_testing::lab::repetitions;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// The quota of a small cell: 8 MiB.
const SMALL: PageCount = PageCount(2048);
/// Frames that the host port sends at once.
const AT_ONCE: u32 = 64;

/// The Internet checksum (RFC 1071) of an IPv4 header.
fn sum(header: &[u8]) -> [u8; 2] {
    let words: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (words & 0xffff) + (words >> 16);
    (!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes()
}

/// A SYN to port 80 from an address that does not exist.
fn syn_frame(from_mac: [u8; 6], from: Ipv4Addr, port: u16, to: &Addresses) -> Bytes {
    let mut ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0].to_vec();
    ip.extend(from.octets());
    ip.extend(to.v4.octets());
    let check = sum(&ip);
    ip[10..12].copy_from_slice(&check);
    let tcp = [&port.to_be_bytes()[..], &[0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]].concat();
    [&to.mac.0[..], &from_mac, &[8, 0], &ip, &tcp].concat().into()
}

#[test]
fn honest_clients_are_served_among_ten_thousand_half_open_connections() {
    let Some(mut world) = CellNetwork::new() else { return };
    let server = world.serve("echo hello > index.html; exec httpd -f -p 80 -h /tmp", Link::default());
    let mut host_peer = HostPeer::new(&world, world.network);
    let question = b"GET / HTTP/1.0\r\n\r\n";
    let to = (server.addresses.v4, 80).into();
    assert!(host_peer.ask(&mut world, to, question).ends_with(b"\r\n\r\nhello\n"));
    let before = world.pages(&server);
    let (router, _) = world.lab.kernel.router(world.network).expect("the network is there");
    for number in 0..repetitions(500, 10_000, 10_000) {
        let from = Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(10, 77, 100, 0)) + number % 5000);
        host_peer.host_port.send([syn_frame(router.mac.0, from, 1024 + (number / 5000) as u16, &server.addresses)]);
        if number % AT_ONCE == 0 {
            host_peer.step(&world);
            world.lab.turn(0);
        }
        if number % 1000 == 500 {
            assert!(host_peer.ask(&mut world, to, question).ends_with(b"\r\n\r\nhello\n"), "after {number} SYNs");
        }
    }
    assert!(host_peer.ask(&mut world, to, question).ends_with(b"\r\n\r\nhello\n"));
    assert_eq!(world.run(&format!("wget -qO- http://{}/", server.addresses.v4)), "hello\n", "a client in another cell");
    let after = world.pages(&server);
    println!("the server has {before} before and {after} after");
    assert!(after.0 <= before.0 + 2048, "4096 half-open connections take at most two KiB each");
}

#[test]
fn a_small_cell_outlives_ten_thousand_half_open_connections() {
    let Some(mut world) = CellNetwork::new() else { return };
    let server = world.serve_with("echo hello > index.html; exec httpd -f -p 80 -h /tmp", Link::default(), SMALL);
    let host_peer = HostPeer::new(&world, world.network);
    let (router, _) = world.lab.kernel.router(world.network).expect("the network is there");
    for number in 0..repetitions(500, 10_000, 10_000) {
        let from = Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(10, 77, 100, 0)) + number);
        host_peer.host_port.send([syn_frame(router.mac.0, from, 1024, &server.addresses)]);
        if number % AT_ONCE == 0 {
            host_peer.host_port.receive(usize::MAX);
            world.lab.turn(0);
        }
    }
    assert_eq!(world.run(&format!("wget -qO- http://{}/", server.addresses.v4)), "hello\n");
    println!("the server has {} of {SMALL}", world.pages(&server));
}

/// Receives a program's output on a thread of its own, because receiving blocks.
fn receive_output(program: &Running) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let port = Arc::clone(&program.port);
    thread::spawn(move || {
        while let Some((_, bytes)) = port.receive() {
            // The test may be over.
            let _ = sender.send(bytes);
        }
    });
    receiver
}

/// Lets a client connect `count` times, and returns the pages of both cells afterwards.
fn round(world: &mut CellNetwork, [server, client]: [&Running; 2], receiver: &Receiver<Vec<u8>>, count: u32) -> [PageCount; 2] {
    let mut said = Vec::new();
    client.port.send(b"go\n");
    while !said.ends_with(b"\n") {
        if !world.lab.turn(0) {
            // The kernel is idle: either the thread has the output soon, or the test hangs.
            let rest = receiver.recv_timeout(Duration::from_secs(10));
            said.extend(rest.unwrap_or_else(|_| panic!("no progress: {}", String::from_utf8_lossy(&said))));
        }
        said.extend(receiver.try_iter().flatten());
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    let descriptors: Vec<&str> = said.trim().split(' ').collect();
    assert!(said.starts_with(&format!("{count} connections")) && descriptors[3] == descriptors[5], "{said}");
    [server, client].map(|cell| world.pages(cell))
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    const ROUNDS: u32 = 4;
    let each = repetitions(25, 500, 25_000);
    let Some(mut world) = CellNetwork::with_peer(NetworkConfig::default()) else { return };
    world.run("/peer || true");
    world.lab.kernel.free_unused_frames();
    let owned = world.owned();
    // It ends with one more connection, which comes after its memory was measured.
    let all = each * ROUNDS + 1;
    let server = world.serve(&format!("exec /peer serve 5000 {all}"), Link::default());
    let churn = format!("while read go; do /peer churn {} 5000 {each}; done", server.addresses.v4);
    let client = world.listening(&churn, Link::default());
    let receiver = receive_output(&client);
    let pages: Vec<[PageCount; 2]> = (0..ROUNDS).map(|_| round(&mut world, [&server, &client], &receiver, each)).collect();
    println!("{} connections: pages of server and client after each {each}: {pages:?}", each * ROUNDS);
    world.run(&format!("/peer churn {} 5000 1", server.addresses.v4));
    let said = world.output_of(&server);
    assert!(said.starts_with(&format!("{all} served")), "{said}");
    let descriptors: Vec<&str> = said.trim().split(' ').collect();
    assert_eq!(descriptors[3], descriptors[5], "{said}");
    // TIME-WAIT lasts a minute, for at most 16,384 connections; in the long run there are as many after the second round.
    let [second, last] = [pages[1], pages[ROUNDS as usize - 1]];
    for (second, last) in second.iter().zip(last) {
        assert!(last.0 <= second.0 + 384, "{pages:?}");
    }
    world.end(&client);
    world.lab.kernel.free_unused_frames();
    assert_eq!(world.owned(), owned, "every frame has come back");
}
