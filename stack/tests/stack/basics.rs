// SPDX-License-Identifier: MIT OR Apache-2.0
//! Basic behaviour of TCP and UDP.

use pando_stack::{Datagram, Failure, Tuple, Unreachable};
use std::net::SocketAddr;

use crate::net::{Link, LinkEnd, MS, Net, address, address6, echo, noise};

#[test]
fn bytes_arrive_both_ways_and_both_ends_close() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].echoes = true;
    let (client, server) = net.open();
    let sent = noise(300_000, 7);
    net.send(0, client, &sent);
    net.hosts[0].ends.get_mut(&client).unwrap().finishes = true;
    let now = net.now;
    net.hosts[0].pump(client, now);
    net.run_until(10_000 * MS, "closed", |net| net.end(0, client).is_closed && net.end(1, server).is_closed);
    assert_eq!(net.end(1, server).received, sent);
    assert_eq!(net.end(0, client).received, sent);
    assert_eq!(net.hosts[0].stack.counts().retransmitted, 0);
}

#[test]
fn a_port_without_a_listener_refuses() {
    let mut net = Net::pair(Link::GOOD, 1);
    let tuple = net.tuple(0, 40_000, 1, 81);
    let id = net.connect(tuple, 0, LinkEnd::default());
    net.run_until(1_000 * MS, "refused", |net| net.end(0, id).is_closed);
    assert_eq!(net.end(0, id).failure, Some(Failure::Reset));
}

#[test]
fn datagrams_and_echoes() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].listeners.udp.insert(53);
    let (local, remote) = (SocketAddr::new(address(0), 5000), SocketAddr::new(address(1), 53));
    let datagram = Datagram { local, remote, bytes: noise(1000, 3), hops: 64 };
    let now = net.now;
    let host = &mut net.hosts[0];
    host.stack.send_datagram(&datagram, now, &mut host.tx_queue).unwrap();
    let nobody = Datagram { remote: SocketAddr::new(address(1), 54), ..datagram.clone() };
    host.stack.send_datagram(&nobody, now, &mut host.tx_queue).unwrap();
    let questions = [(address(0), address(1)), (address6(0), address6(1))].map(|(from, to)| echo(from, to, &noise(56, 4)));
    for question in &questions {
        host.stack.send_message(question, now, &mut host.tx_queue).unwrap();
    }
    net.run_for(100 * MS);
    assert_eq!(net.hosts[1].datagrams.len(), 1);
    assert_eq!(net.hosts[1].datagrams[0], Datagram { local: remote, remote: local, ..datagram });
    let notices: Vec<_> = net.hosts[0].notices.iter().map(|notice| (notice.local, notice.remote, notice.unreachable)).collect();
    assert_eq!(notices, [(local, nobody.remote, Unreachable::Port)]);
    for question in questions {
        let answer = net.hosts[0].messages.iter().find(|message| matches!(message.bytes[0], 0 | 129) && message.remote == question.remote);
        let answer = answer.expect("it is answered");
        assert_eq!((answer.local, answer.hops, &answer.bytes[4..]), (question.local, 64, &question.bytes[4..]));
    }
}

#[test]
fn the_senders_stack_reports_unused_addresses() {
    let mut net = Net::pair(Link::GOOD, 1);
    for (from, to, numbers) in [(address(0), address(99), (3, 1)), (address6(0), address6(99), (1, 3))] {
        let question = echo(from, to, &noise(56, 4));
        let now = net.now;
        let host = &mut net.hosts[0];
        host.stack.send_message(&question, now, &mut host.tx_queue).unwrap();
        net.run_for(10_000 * MS);
        let notice = net.hosts[0].notices.pop().expect("an error is reported");
        assert_eq!((notice.from, notice.kind, notice.code, notice.unreachable), (from, numbers.0, numbers.1, Unreachable::Host));
        assert_eq!((notice.local, notice.remote), (SocketAddr::new(from, 0), SocketAddr::new(to, 0)));
        assert_eq!(notice.quoted, question.bytes);
    }
}

#[test]
fn tcp_over_ipv6() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].serves = Some(noise(100_000, 5));
    net.hosts[1].listeners.tcp.insert(80, pando_stack::Verdict::Admit);
    let tuple = Tuple { local: SocketAddr::new(address6(0), 40_000), remote: SocketAddr::new(address6(1), 80) };
    let id = net.connect(tuple, 0, LinkEnd { finishes: true, ..LinkEnd::default() });
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
        // Independent of the initial sequence numbers.
        for _ in 0..10 {
            let begin = net.now;
            net.open();
            assert_eq!(net.now - begin, 3 * Link::GOOD.delay);
        }
    }
}
