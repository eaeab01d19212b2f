// SPDX-License-Identifier: MIT OR Apache-2.0
//! What everybody expects of TCP and UDP.

use pando_stack::{Datagram, Echo, Failure, Obstacle, Tuple};
use std::net::SocketAddr;

use crate::net::{End, Link, MS, Net, address, address6, noise};

#[test]
fn bytes_arrive_both_ways_and_both_ends_close() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].echoes = true;
    let (client, server) = net.open();
    let sent = noise(300_000, 7);
    net.say(0, client, &sent);
    net.hosts[0].ends.get_mut(&client).unwrap().finishes = true;
    let now = net.now;
    net.hosts[0].pump(client, now);
    net.run_until(10_000 * MS, "closed", |net| net.end(0, client).is_closed && net.end(1, server).is_closed);
    assert_eq!(net.end(1, server).received, sent);
    assert_eq!(net.end(0, client).received, sent);
    assert_eq!(net.hosts[0].stack.counts().sent_again, 0);
}

#[test]
fn nobody_listens() {
    let mut net = Net::pair(Link::GOOD, 1);
    let tuple = net.tuple(0, 40_000, 1, 81);
    let id = net.connect(tuple, 0, End::default());
    net.run_until(1_000 * MS, "refused", |net| net.end(0, id).is_closed);
    assert_eq!(net.end(0, id).failure, Some(Failure::Reset));
}

#[test]
fn datagrams_and_echoes() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].door.udp.insert(53);
    let (local, remote) = (SocketAddr::new(address(0), 5000), SocketAddr::new(address(1), 53));
    let datagram = Datagram { local, remote, bytes: noise(1000, 3), hops: 64 };
    let now = net.now;
    let host = &mut net.hosts[0];
    host.stack.send_datagram(&datagram, now, &mut host.outbox).unwrap();
    let nobody = Datagram { remote: SocketAddr::new(address(1), 54), ..datagram.clone() };
    host.stack.send_datagram(&nobody, now, &mut host.outbox).unwrap();
    let echo = Echo { local: address(0), remote: address(1), identity: 7, sequence: 9, bytes: noise(56, 4), hops: 64 };
    host.stack.ping(&echo, now, &mut host.outbox).unwrap();
    let echo6 = Echo { local: address6(0), remote: address6(1), ..echo.clone() };
    host.stack.ping(&echo6, now, &mut host.outbox).unwrap();
    net.run_for(100 * MS);
    assert_eq!(net.hosts[1].datagrams.len(), 1);
    assert_eq!(net.hosts[1].datagrams[0], Datagram { local: remote, remote: local, ..datagram });
    assert_eq!(net.hosts[0].unreachable, [(local, nobody.remote, Obstacle::Port)]);
    assert_eq!(net.hosts[0].echo_answers.len(), 2);
    assert!(net.hosts[0].echo_answers.contains(&echo) && net.hosts[0].echo_answers.contains(&echo6));
}

#[test]
fn tcp_over_ipv6() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].serves = Some(noise(100_000, 5));
    net.hosts[1].door.tcp.insert(80, pando_stack::Verdict::Admit);
    let tuple = Tuple { local: SocketAddr::new(address6(0), 40_000), remote: SocketAddr::new(address6(1), 80) };
    let id = net.connect(tuple, 0, End { finishes: true, ..End::default() });
    net.run_until(10_000 * MS, "closed", |net| net.end(0, id).is_closed);
    assert_eq!(net.end(0, id).received, noise(100_000, 5));
}

#[test]
fn a_connection_opens_in_one_and_a_half_times_round() {
    for seed in 0..20 {
        let mut net = Net::pair(Link::GOOD, seed);
        net.introduce();
        let begin = net.now;
        let (client, _) = net.open();
        assert_eq!((net.now - begin, net.end(0, client).is_open), (3 * Link::GOOD.delay, true));
        // Whatever the numbers that connections begin with.
        for _ in 0..10 {
            let begin = net.now;
            net.open();
            assert_eq!(net.now - begin, 3 * Link::GOOD.delay);
        }
    }
}
