// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links that lose, duplicate, delay and reorder: all data arrives whole, in order, once.

use proptest::prelude::*;

use crate::net::{Link, MS, Net, address, config, noise};

/// Sends so many bytes each way over a connection whose link becomes `link` once it is open.
fn transfer(link: Link, seed: u64, there: usize, back: usize, mtu: usize) -> Net {
    let mut configs = vec![config(0), config(1)];
    for config in &mut configs {
        (config.mtu, config.checksums) = (mtu, seed.is_multiple_of(2));
    }
    let mut net = Net::new(configs, Link::GOOD, seed);
    let (answer, question) = (noise(back, seed), noise(there, !seed));
    net.hosts[1].serves = Some(answer.clone());
    let (client, server) = net.open();
    net.link = link;
    net.hosts[0].ends.get_mut(&client).unwrap().finishes = true;
    net.send(0, client, &question);
    let is_over = |net: &Net| net.end(0, client).is_closed && net.end(1, server).is_closed;
    net.run_until(3_600_000 * MS, "both have finished", is_over);
    assert!(net.end(0, client).received == answer && net.end(1, server).received == question, "something was changed on the way");
    assert_eq!((net.end(0, client).failure, net.end(1, server).failure), (None, None));
    net
}

#[test]
fn a_megabyte_with_one_frame_in_twenty_lost() {
    for (seed, mtu) in [(1, 1500), (2, 9000), (3, 65_535)] {
        let link = Link { loss: 50, doubles: 0, reorders: 0, delay: MS, ..Link::GOOD };
        let net = transfer(link, seed, 1 << 20, 0, mtu);
        let counts = net.hosts[0].stack.counts();
        println!("packets of {mtu}: {} ms, {} frames, {} segments again", net.now / MS - 1000, net.frames, counts.retransmitted);
        assert!(counts.retransmitted > 0);
    }
}

#[test]
fn a_good_link_carries_nothing_twice() {
    for mtu in [576, 1500, 65_535] {
        let net = transfer(Link { delay: 20 * MS, ..Link::GOOD }, 4, 3 << 20, 1 << 20, mtu);
        println!("packets of {mtu}, 40 ms there and back: 4 MiB in {} ms", net.now / MS - 1000);
        assert_eq!(net.hosts[0].stack.counts().retransmitted + net.hosts[1].stack.counts().retransmitted, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sent_bytes_arrive(
        seed: u64, loss in 0u32..200, doubles in 0u32..100, reorders in 0u32..300, delay in 1_000u64..50 * MS,
        there in 0usize..200_000, back in 0usize..200_000, mtu in 576usize..=65_535,
    ) {
        let net = transfer(Link { loss, doubles, reorders, delay, ..Link::GOOD }, seed, there, back, mtu);
        let counts = net.hosts[0].stack.counts();
        prop_assert_eq!((counts.connections, counts.half_open), (0, 0));
    }
}

#[test]
fn a_neighbour_is_asked_again_when_the_question_is_lost() {
    let mut net = Net::pair(Link::GOOD, 9);
    net.discarding.insert(1);
    net.hosts[1].listeners.tcp.insert(80, pando_stack::Verdict::Admit);
    let tuple = net.tuple(0, 40_000, 1, 80);
    let id = net.connect(tuple, 0, Default::default());
    net.run_for(500 * MS);
    assert!(!net.end(0, id).is_open, "{} is deaf", address(1));
    net.discarding.clear();
    net.run_until(1_000 * MS, "open", |net| net.end(0, id).is_open);
}

/// smoltcp alone would wait here forever: each side retransmits what the other has, and drops the acknowledgement of its own data.
#[test]
fn both_sides_send_again_at_once() {
    let mut configs = vec![config(0), config(1)];
    for config in &mut configs {
        config.mtu = 1500;
    }
    let mut net = Net::new(configs, Link { delay: MS, ..Link::GOOD }, 1);
    let (client, server) = net.open();
    net.send(0, client, &noise(20_000, 1));
    net.send(1, server, &noise(20_000, 2));
    net.settle();
    // The data of both is in flight and arrives, and every acknowledgement of it is lost.
    net.discarding.extend([0, 1]);
    net.run_for(50 * MS);
    net.discarding.clear();
    assert!(!net.end(0, client).received.is_empty() && !net.end(1, server).received.is_empty());
    net.run_until(2_000 * MS, "all arrives", |net| {
        net.end(0, client).received.len() == 20_000 && net.end(1, server).received.len() == 20_000
    });
}

/// Likewise: smoltcp's timer would stop when a FIN that is in flight alone seems to be lost.
#[test]
fn a_lost_fin_is_sent_again_after_duplicate_acknowledgements() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    net.send(0, client, b"the last words");
    net.run_for(1_000 * MS);
    net.recording = Some(Vec::new());
    net.send(0, client, b"and these");
    net.run_for(1_000 * MS);
    let acknowledgement = net.recording.take().unwrap().pop().unwrap();
    net.discarding.insert(1);
    let now = net.now;
    net.hosts[0].stack.finish(client, now);
    net.run_for(10 * MS);
    net.discarding.clear();
    for _ in 0..5 {
        net.post(1, &acknowledgement);
    }
    net.run_until(1_000 * MS, "the end arrives", |net| net.end(1, server).has_finished);
}

/// Likewise: smoltcp's timer would stop when the window closes while something in flight is lost.
#[test]
fn a_window_closes_while_something_is_lost() {
    let mut net = Net::pair(Link::GOOD, 1);
    let (client, server) = net.open();
    net.send(0, client, b"first");
    net.run_for(1_000 * MS);
    net.recording = Some(Vec::new());
    net.send(0, client, b"second");
    net.run_for(1_000 * MS);
    let mut acknowledgement = net.recording.take().unwrap().pop().unwrap();
    acknowledgement[48..50].fill(0);
    net.discarding.insert(1);
    net.send(0, client, b"lost");
    net.settle();
    net.post(1, &acknowledgement);
    // Long enough that retransmissions for other reasons are lost too.
    net.run_for(2_000 * MS);
    net.discarding.clear();
    net.run_until(10_000 * MS, "it is sent again", |net| net.end(1, server).received == b"firstsecondlost");
}
