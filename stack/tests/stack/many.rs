// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thousands of connections and requests: the work for a packet stays the same, and nothing leaks.

use pando_stack::{Counts, TcpOptions, Verdict};

use crate::net::{Link, LinkEnd, MS, Net, config, noise};

const SECOND: u64 = 1000 * MS;

/// Hosts with small buffers, so that there can be many connections.
fn small(hosts: usize) -> Net {
    let configs = (0..hosts).map(|host| {
        let mut config = config(host);
        config.buffer = 4 << 10;
        config
    });
    let mut net = Net::new(configs.collect(), Link::GOOD, 1);
    net.introduce();
    net
}

/// Looks at connections for one more byte and its echo, with so many other connections open.
fn looks_for_a_byte(others: u16) -> u64 {
    let mut net = small(2);
    net.hosts[1].echoes = true;
    net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
    let ids: Vec<_> = (0..others).map(|port| net.connect(net.tuple(0, 1000 + port, 1, 80), 0, LinkEnd::default())).collect();
    net.run_until(10 * SECOND, "all open", |net| ids.iter().all(|id| net.end(0, *id).is_open));
    net.run_for(SECOND);
    assert_eq!(net.hosts[1].accepted.len(), usize::from(others));
    let looks = |net: &Net| net.hosts.iter().map(|host| host.stack.counts().polls).sum::<u64>();
    let before = looks(&net);
    let some = ids[usize::from(others) / 2];
    net.send(0, some, b"x");
    net.run_until(SECOND, "answered", |net| net.end(0, some).received == b"x");
    net.run_for(SECOND);
    looks(&net) - before
}

#[test]
fn the_work_for_a_packet_does_not_grow() {
    let (few, many) = (looks_for_a_byte(2), looks_for_a_byte(5000));
    println!("a byte and its echo: {few} looks at connections with 2 open, {many} with 5000");
    assert_eq!(few, many);
}

#[test]
fn ten_thousand_strangers_are_bounded_and_a_friend_comes_in() {
    let mut configs = vec![config(0), config(1), config(2)];
    configs[1].half_open = 1000;
    let mut net = Net::new(configs, Link::GOOD, 1);
    net.introduce();
    net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
    // Host 0 sends SYNs and never completes the handshake.
    for port in 0..10_000 {
        let tuple = net.tuple(0, 1000 + port, 1, 80);
        net.connect(tuple, 0, LinkEnd::default());
        net.settle();
        net.discarding.insert(0);
        if port % 100 == 0 {
            net.step(u64::MAX);
        }
    }
    net.run_for(100 * MS);
    let counts = net.hosts[1].stack.counts();
    assert_eq!((counts.half_open, counts.connections), (1000, 0));
    assert!(counts.half_open_dropped >= 9000, "{counts:?}");
    let friend = net.connect(net.tuple(2, 40_000, 1, 80), 2, LinkEnd { to_send: noise(5000, 1), finishes: true, ..LinkEnd::default() });
    net.run_until(SECOND, "the friend is open", |net| net.end(2, friend).is_open);
    net.run_for(SECOND);
    assert_eq!(net.hosts[1].ends.values().next().unwrap().received, noise(5000, 1));
    // Host 0 retransmits its SYNs for two minutes more; after that the requests expire.
    net.run_for(200 * SECOND);
    assert_eq!(net.hosts[1].stack.counts().half_open, 0);
}

#[test]
fn a_hundred_thousand_connections_leave_nothing() {
    const AT_ONCE: usize = 100;
    let mut net = small(2);
    net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
    net.hosts[1].serves = Some(b"answer".to_vec());
    let mut most = Counts::default();
    for round in 0..100_000 / AT_ONCE {
        let port = |number: usize| 1024 + ((round * AT_ONCE + number) % 60_000) as u16;
        let ids: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                let end = LinkEnd { to_send: b"question".to_vec(), finishes: true, ..LinkEnd::default() };
                net.connect(net.tuple(0, port(number), 1, 80), 0, end)
            })
            .collect();
        net.run_until(10 * SECOND, "all closed", |net| ids.iter().all(|id| net.end(0, *id).is_closed));
        assert!(ids.iter().all(|id| net.end(0, *id).received == b"answer" && net.end(0, *id).failure.is_none()));
        let counts = net.hosts[0].stack.counts();
        most.connections = most.connections.max(counts.connections);
        most.time_wait = most.time_wait.max(counts.time_wait);
        for host in &mut net.hosts {
            host.ends.clear();
            host.accepted.clear();
            host.listeners.asked.clear();
        }
        // The ports are reused after 600 rounds; the old connections must be over by then.
        net.run_for(20 * MS);
    }
    assert!(most.time_wait <= 16_384, "{most:?}");
    net.run_for(200 * SECOND);
    for host in &mut net.hosts {
        host.stack.run(net.now, &mut host.tx_queue);
        let Counts { connections, half_open, time_wait, neighbours, waiting_bytes, buffer_bytes, .. } = host.stack.counts();
        assert_eq!((connections, half_open, time_wait, neighbours, waiting_bytes, buffer_bytes), (0, 0, 0, 1, 0, 0));
        assert_eq!(host.stack.deadline(), None);
    }
}

#[test]
fn as_many_connections_as_are_allowed() {
    let mut configs = vec![config(0), config(1)];
    (configs[0].connections, configs[1].connections) = (10, 5);
    let mut net = Net::new(configs, Link::GOOD, 1);
    net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
    let ids: Vec<_> = (0..10).map(|port| net.connect(net.tuple(0, 1000 + port, 1, 80), 0, LinkEnd::default())).collect();
    let one_more = net.tuple(0, 2000, 1, 80);
    assert_eq!(net.hosts[0].stack.connect(one_more, TcpOptions::default(), net.now), Err(pando_stack::Error::TooMany));
    net.run_for(SECOND);
    assert_eq!((net.hosts[1].accepted.len(), net.hosts[1].stack.counts().connections), (5, 5));
    // The refused peers retry, and there is room by then.
    for id in net.hosts[1].accepted.clone() {
        net.hosts[1].stack.abort(id);
    }
    for id in &ids {
        net.send(0, *id, b"let me in");
    }
    net.run_for(10 * SECOND);
    assert_eq!(net.hosts[1].accepted.len(), 10);
}

#[test]
fn as_memory_fills_new_connections_get_less() {
    let mut configs = vec![config(0), config(1)];
    (configs[1].buffer, configs[1].memory) = (256 << 10, 16 << 20);
    let mut net = Net::new(configs, Link::GOOD, 1);
    let first = net.open().1;
    let room = |net: &Net, id| net.hosts[1].stack.writable(id);
    assert_eq!(room(&net, first), 256 << 10);
    let ids: Vec<_> = (0..1000).map(|port| net.connect(net.tuple(0, 1000 + port, 1, 80), 0, LinkEnd::default())).collect();
    net.run_until(10 * SECOND, "all open", |net| net.hosts[1].accepted.len() == 1001);
    let last = *net.hosts[1].accepted.last().unwrap();
    assert_eq!((room(&net, first), room(&net, last)), (256 << 10, 8 << 10));
    let bytes = net.hosts[1].stack.counts().buffer_bytes;
    assert!(bytes <= (16 << 20) + 1000 * (16 << 10), "{bytes}");
    // However small its buffers, it carries everything.
    net.hosts[1].echoes = true;
    net.send(0, ids[999], &noise(100_000, 1));
    net.run_until(10 * SECOND, "all arrives", |net| net.end(0, ids[999]).received.len() == 100_000);
}
