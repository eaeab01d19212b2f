// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways to open and close connections.

use std::net::SocketAddr;
use std::time::Duration;

use pando_stack::{Error, Failure, KeepAlive, SynRefusal, TcpOptions, Tuple, Unreachable, Verdict};

use crate::net::{Link, LinkEnd, MS, Net, address, noise};

const SECOND: u64 = 1000 * MS;

#[test]
fn one_half_closes_and_the_other_goes_on() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    let now = net.now;
    net.hosts[0].stack.finish(client, now);
    net.run_until(SECOND, "the end is heard of", |net| net.end(1, server).has_finished);
    assert!(!net.end(1, server).is_closed);
    net.send(1, server, &noise(50_000, 2));
    net.run_until(SECOND, "all arrives", |net| net.end(0, client).received.len() == 50_000);
    assert!(!net.end(0, client).has_finished);
    let now = net.now;
    net.hosts[1].stack.finish(server, now);
    net.run_until(SECOND, "closed", |net| net.end(0, client).is_closed && net.end(1, server).is_closed);
    assert_eq!((net.end(0, client).failure, net.end(1, server).failure), (None, None));
}

#[test]
fn both_close_at_once() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    let now = net.now;
    net.hosts[0].stack.finish(client, now);
    net.hosts[1].stack.finish(server, now);
    net.run_until(SECOND, "closed", |net| net.end(0, client).is_closed && net.end(1, server).is_closed);
    assert_eq!((net.end(0, client).failure, net.end(1, server).failure), (None, None));
    let (one, other) = (net.hosts[0].stack.counts(), net.hosts[1].stack.counts());
    assert_eq!((one.connections, other.connections, one.time_wait + other.time_wait), (0, 0, 2));
}

#[test]
fn both_open_at_once() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.introduce();
    let (there, back) = (net.tuple(0, 5000, 1, 6000), net.tuple(1, 6000, 0, 5000));
    let one = net.connect(there, 0, LinkEnd { to_send: noise(10_000, 1), ..LinkEnd::default() });
    let other = net.connect(back, 1, LinkEnd { to_send: noise(10_000, 2), ..LinkEnd::default() });
    net.run_until(SECOND, "both have all", |net| net.end(0, one).received.len() == 10_000 && net.end(1, other).received.len() == 10_000);
    assert_eq!(net.end(0, one).received, noise(10_000, 2));
    assert_eq!(net.end(1, other).received, noise(10_000, 1));
}

#[test]
fn a_reset_leaves_the_received_bytes() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    net.hosts[1].ends.get_mut(&server).unwrap().discards_input = true;
    net.send(0, client, b"the last words");
    net.run_until(SECOND, "arrived", |net| net.hosts[1].stack.readable(server) == 14);
    net.hosts[0].stack.abort(client);
    assert_eq!(net.hosts[0].stack.counts().connections, 1, "the reset is not sent yet");
    net.run_until(SECOND, "broken", |net| net.end(1, server).failure == Some(Failure::Reset));
    assert_eq!(net.hosts[0].stack.counts().connections, 0);
    assert!(!net.end(1, server).is_closed);
    net.hosts[1].ends.get_mut(&server).unwrap().discards_input = false;
    let now = net.now;
    net.hosts[1].pump(server, now);
    net.run_until(SECOND, "closed", |net| net.end(1, server).is_closed);
    assert_eq!(net.end(1, server).received, b"the last words");
}

#[test]
fn a_release_sends_queued_bytes_and_resets_on_unread_ones() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    net.send(0, client, &noise(60_000, 1));
    let now = net.now;
    net.hosts[0].stack.release(client, now);
    net.run_until(SECOND, "all arrives", |net| net.end(1, server).has_finished);
    assert_eq!(net.end(1, server).received, noise(60_000, 1));
    net.send(1, server, b"is anybody there?");
    net.run_until(SECOND, "broken", |net| net.end(1, server).failure == Some(Failure::Reset));
    assert_eq!(net.hosts[0].stack.counts().connections, 0);
    assert!(net.end(0, client).failure.is_none() && !net.end(0, client).is_closed, "a released connection causes no events");

    let (client, server) = net.open();
    net.hosts[0].ends.get_mut(&client).unwrap().discards_input = true;
    net.send(1, server, b"unread");
    net.run_until(SECOND, "arrived", |net| net.hosts[0].stack.readable(client) == 6);
    let now = net.now;
    net.hosts[0].stack.release(client, now);
    net.run_until(SECOND, "broken", |net| net.end(1, server).failure == Some(Failure::Reset));
}

#[test]
fn released_connections_wait_a_minute_for_the_peer() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    let now = net.now;
    net.hosts[0].stack.release(client, now);
    net.run_for(59 * SECOND);
    assert_eq!(net.hosts[0].stack.counts().connections, 1);
    net.run_for(2 * SECOND);
    assert_eq!(net.hosts[0].stack.counts().connections, 0);
    assert!(net.end(1, server).has_finished);
}

#[test]
fn connections_at_rest_have_no_timers() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    net.send(0, client, &noise(100_000, 1));
    net.send(1, server, &noise(100_000, 1));
    net.run_for(5 * SECOND);
    assert_eq!((net.hosts[0].stack.deadline(), net.hosts[1].stack.deadline()), (None, None));
    let before = net.frames;
    net.run_for(100_000 * SECOND);
    assert_eq!(net.frames, before);
    net.send(0, client, b"still there");
    net.run_until(2 * SECOND, "heard", |net| net.end(1, server).received.ends_with(b"still there"));
    assert_eq!(net.hosts[0].stack.counts().retransmitted, 0);
}

#[test]
fn a_silent_peer_is_asked_and_given_up() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    let keep_alive = KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(5), count: 4 };
    net.hosts[0].stack.set(client, TcpOptions { keep_alive: Some(keep_alive), ..TcpOptions::default() });
    let before = net.frames;
    net.run_for(59 * SECOND);
    assert_eq!(net.frames, before, "nobody is asked before the time");
    net.run_for(240 * SECOND);
    let asked = net.frames - before;
    assert!((8..20).contains(&asked), "four questions, four answers, and who has which address: {asked}");
    assert!(net.end(0, client).failure.is_none());
    net.discarding.insert(1);
    net.run_until(90 * SECOND, "given up", |net| net.end(0, client).failure == Some(Failure::TimedOut));
    net.discarding.clear();
    net.send(1, server, b"hello?");
    net.run_until(20 * SECOND, "the other side learns it", |net| net.end(1, server).failure == Some(Failure::Reset));
}

#[test]
fn unanswered_connections_are_given_up() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, _) = net.open();
    net.hosts[0].stack.set(client, TcpOptions { timeout: Duration::from_secs(30), ..TcpOptions::default() });
    net.run_for(3600 * SECOND);
    net.discarding.insert(1);
    net.send(0, client, b"hello?");
    net.run_for(29 * SECOND);
    assert_eq!(net.end(0, client).failure, None);
    net.run_until(2 * SECOND, "given up", |net| net.end(0, client).failure == Some(Failure::TimedOut));
    net.run_until(60 * SECOND, "forgotten", |net| net.hosts[0].stack.counts().connections == 0);
}

#[test]
fn an_unused_address_is_unreachable() {
    let mut net = Net::pair(Link::GOOD, 1);
    let tuple = Tuple { local: SocketAddr::new(address(0), 40_000), remote: SocketAddr::new(address(77), 80) };
    let id = net.connect(tuple, 0, LinkEnd::default());
    net.run_until(4 * SECOND, "given up", |net| net.end(0, id).is_closed);
    assert_eq!(net.end(0, id).failure, Some(Failure::Unreachable(Unreachable::Host)));
    let far = Tuple { remote: "192.0.2.1:80".parse().unwrap(), ..tuple };
    assert_eq!(net.hosts[0].stack.connect(far, TcpOptions::default(), net.now), Err(Error::NoRoute));
    let group = Tuple { remote: "224.0.0.1:80".parse().unwrap(), ..tuple };
    assert_eq!(net.hosts[0].stack.connect(group, TcpOptions::default(), net.now), Err(Error::Unaddressable));
}

#[test]
fn a_host_that_says_nothing_is_given_up() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].listeners.tcp.insert(80, Verdict::Ignore);
    let tuple = net.tuple(0, 40_000, 1, 80);
    let id = net.connect(tuple, 0, LinkEnd::default());
    net.run_for(126 * SECOND);
    assert_eq!(net.end(0, id).failure, None);
    net.run_until(2 * SECOND, "given up", |net| net.end(0, id).is_closed);
    assert_eq!(net.end(0, id).failure, Some(Failure::TimedOut));
    assert!(net.hosts[1].listeners.asked.len() > 5);
}

#[test]
fn strangers_are_held_admitted_and_refused() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].listeners.tcp.insert(80, Verdict::Hold);
    let ids: Vec<_> = (0..3).map(|number| net.connect(net.tuple(0, 40_000 + number, 1, 80), 0, LinkEnd::default())).collect();
    net.run_for(3 * SECOND);
    assert_eq!(net.hosts[1].stack.counts().half_open, 3);
    assert_eq!(net.hosts[1].listeners.asked.len(), 3, "each is asked about once");
    assert!(ids.iter().all(|id| !net.end(0, *id).is_open));
    let [first, second, third] = std::array::from_fn(|number| net.tuple(1, 80, 0, 40_000 + number as u16));
    let now = net.now;
    let host = &mut net.hosts[1];
    assert!(host.stack.admit(&first, now));
    host.stack.refuse(&second, SynRefusal::Reset, &mut host.tx_queue);
    host.stack.refuse(&third, SynRefusal::Unreachable(Unreachable::AdminProhibited), &mut host.tx_queue);
    net.run_for(100 * MS);
    assert!(net.end(0, ids[0]).is_open);
    assert_eq!(net.hosts[1].accepted.len(), 1);
    assert_eq!(net.end(0, ids[1]).failure, Some(Failure::Reset));
    assert_eq!(net.end(0, ids[2]).failure, Some(Failure::Unreachable(Unreachable::AdminProhibited)));
    assert_eq!(net.hosts[1].stack.counts().half_open, 0);
}

#[test]
fn a_server_that_speaks_first_is_heard_though_the_last_of_the_handshake_is_lost() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.introduce();
    net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
    net.hosts[1].serves = Some(b"220 welcome".to_vec());
    let tuple = net.tuple(0, 40_000, 1, 80);
    let id = net.connect(tuple, 0, LinkEnd::default());
    net.run_until(SECOND, "half open", |net| net.hosts[1].stack.counts().half_open == 1);
    net.discarding.insert(1);
    net.run_until(SECOND, "open on one side", |net| net.end(0, id).is_open);
    net.run_for(50 * MS);
    net.discarding.clear();
    assert_eq!(net.hosts[1].accepted.len(), 0);
    net.run_until(2 * SECOND, "greeted", |net| net.end(0, id).received == b"220 welcome");
}

#[test]
fn a_reader_that_rests_stops_the_sender_and_starts_it_again() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    net.hosts[1].ends.get_mut(&server).unwrap().discards_input = true;
    net.send(0, client, &noise(1 << 20, 1));
    net.run_for(300 * SECOND);
    assert_eq!(net.hosts[1].stack.readable(server), 64 << 10);
    assert!(net.end(0, client).failure.is_none());
    net.hosts[1].ends.get_mut(&server).unwrap().discards_input = false;
    let now = net.now;
    net.hosts[1].pump(server, now);
    net.run_until(2 * SECOND, "all arrives", |net| net.end(1, server).received.len() == 1 << 20);
    assert!(net.end(1, server).received == noise(1 << 20, 1));
}

#[test]
fn a_reader_that_rests_starts_a_sender_again_that_has_finished() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    net.hosts[0].ends.get_mut(&client).unwrap().discards_input = true;
    let now = net.now;
    net.hosts[0].stack.finish(client, now);
    net.hosts[1].ends.get_mut(&server).unwrap().finishes = true;
    net.send(1, server, &noise(100 << 10, 1));
    net.run_for(300 * SECOND);
    assert_eq!((net.hosts[0].stack.readable(client), net.end(1, server).given), (64 << 10, 100 << 10));
    net.hosts[0].ends.get_mut(&client).unwrap().discards_input = false;
    let now = net.now;
    net.hosts[0].pump(client, now);
    net.run_until(5 * MS, "all arrives at once", |net| net.end(0, client).received.len() == 100 << 10 && net.end(0, client).is_closed);
    assert!(net.end(0, client).received == noise(100 << 10, 1));
}

/// A peer that answers but acknowledges nothing does not hold memory forever.
#[test]
fn unsent_bytes_wait_some_minutes_for_a_reader_that_pauses() {
    for is_known in [false, true] {
        let mut net = Net::pair(Link::GOOD, 1);
        let (client, server) = net.open();
        net.hosts[1].ends.get_mut(&server).unwrap().discards_input = true;
        net.send(0, client, &noise(120 << 10, 1));
        net.run_for(SECOND);
        let now = net.now;
        if is_known {
            net.hosts[0].stack.orphan(client, now);
        } else {
            net.hosts[0].stack.release(client, now);
        }
        // It acknowledges a little now and then, so the connection stays.
        for _ in 0..2 {
            net.run_for(250 * SECOND);
            assert_eq!(net.hosts[0].stack.counts().connections, 1);
            let mut rest = 20 << 10;
            net.hosts[1].stack.receive(server, &mut |piece| {
                let taken = piece.len().min(rest);
                rest -= taken;
                taken
            });
        }
        net.run_for(310 * SECOND);
        assert_eq!((net.hosts[0].stack.counts().connections, net.end(1, server).failure), (0, Some(Failure::Reset)));
        let told = net.end(0, client);
        assert_eq!((told.failure, told.is_closed), if is_known { (Some(Failure::TimedOut), true) } else { (None, false) });
    }
}

/// A client that opens one connection after the other reuses a port, perhaps with a lower sequence number than before.
#[test]
fn a_reused_port_replaces_time_wait() {
    let mut net = Net::pair(Link::GOOD, 1);
    net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
    net.hosts[1].serves = Some(b"answer".to_vec());
    for round in 0..20 {
        let tuple = net.tuple(0, 40_000, 1, 80);
        // The server closes first, so it keeps TIME-WAIT.
        let id = net.connect(tuple, 0, LinkEnd { to_send: b"question".to_vec(), ..LinkEnd::default() });
        net.run_until(100 * MS, "answered", |net| net.end(0, id).received == b"answer" && net.end(0, id).has_finished);
        let now = net.now;
        net.hosts[0].stack.finish(id, now);
        net.run_until(100 * MS, "closed", |net| net.end(0, id).is_closed);
        assert_eq!(net.hosts[1].stack.counts().time_wait, 1, "round {round}");
        net.run_for(2 * SECOND);
    }
}

#[test]
fn a_lost_last_segment_is_sent_again() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    let now = net.now;
    net.hosts[0].stack.finish(client, now);
    net.run_until(SECOND, "the end is heard of", |net| net.end(1, server).has_finished);
    net.run_for(100 * MS);
    net.discarding.insert(1);
    let now = net.now;
    net.hosts[1].stack.finish(server, now);
    net.run_until(SECOND, "over on one side", |net| net.end(0, client).is_closed);
    assert!(!net.end(1, server).is_closed);
    assert_eq!(net.hosts[0].stack.counts().time_wait, 1);
    net.discarding.clear();
    net.run_until(SECOND, "over on both", |net| net.end(1, server).is_closed);
    assert_eq!(net.end(1, server).failure, None);

    let tuple = net.tuple(0, 40_000, 1, 80);
    assert_eq!(net.hosts[0].stack.connect(tuple, TcpOptions::default(), net.now), Err(Error::InUse));
    net.run_for(61 * SECOND);
    assert!(net.hosts[0].stack.connect(tuple, TcpOptions::default(), net.now).is_ok());
}
