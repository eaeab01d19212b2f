// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links that lose, double, delay and reorder: what was sent arrives whole, in order, once.

use proptest::prelude::*;

use crate::net::{Link, MS, Net, address, config, noise};

/// Sends so much each way over such a link, between hosts that know each other.
fn transfer(link: Link, seed: u64, there: usize, back: usize, mtu: usize) -> Net {
    let mut configs = vec![config(0), config(1)];
    for config in &mut configs {
        (config.mtu, config.checksums) = (mtu, seed.is_multiple_of(2));
    }
    let mut net = Net::new(configs, Link::GOOD, seed);
    net.introduce();
    net.link = link;
    let (answer, question) = (noise(back, seed), noise(there, !seed));
    net.hosts[1].serves = Some(answer.clone());
    let (client, server) = net.open();
    net.hosts[0].ends.get_mut(&client).unwrap().finishes = true;
    net.say(0, client, &question);
    let is_over = |net: &Net| net.end(0, client).is_closed && net.end(1, server).is_closed;
    net.run_until(3_600_000 * MS, "both have finished", is_over);
    assert!(net.end(0, client).received == answer && net.end(1, server).received == question, "something was changed on the way");
    assert_eq!((net.end(0, client).failure, net.end(1, server).failure), (None, None));
    net
}

#[test]
fn a_megabyte_with_one_frame_in_twenty_lost() {
    for (seed, mtu) in [(1, 1500), (2, 9000), (3, 65_535)] {
        let link = Link { loss: 50, doubles: 0, reorders: 0, delay: MS };
        let net = transfer(link, seed, 1 << 20, 0, mtu);
        let counts = net.hosts[0].stack.counts();
        println!("packets of {mtu}: {} ms, {} frames, {} segments again", net.now / MS - 1000, net.frames, counts.sent_again);
        assert!(counts.sent_again > 0);
    }
}

#[test]
fn a_good_link_carries_nothing_twice() {
    for mtu in [576, 1500, 65_535] {
        let net = transfer(Link { delay: 20 * MS, ..Link::GOOD }, 4, 3 << 20, 1 << 20, mtu);
        println!("packets of {mtu}, 40 ms there and back: 4 MiB in {} ms", net.now / MS - 1000);
        assert_eq!(net.hosts[0].stack.counts().sent_again + net.hosts[1].stack.counts().sent_again, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sent_arrives(
        seed: u64, loss in 0u32..200, doubles in 0u32..100, reorders in 0u32..300, delay in 1_000u64..50 * MS,
        there in 0usize..200_000, back in 0usize..200_000, mtu in 576usize..=65_535,
    ) {
        let net = transfer(Link { loss, doubles, reorders, delay }, seed, there, back, mtu);
        let counts = net.hosts[0].stack.counts();
        prop_assert_eq!((counts.connections, counts.half_open), (0, 0));
    }
}

#[test]
fn a_neighbour_is_asked_again_when_the_question_is_lost() {
    let mut net = Net::pair(Link::GOOD, 9);
    net.deaf.insert(1);
    net.hosts[1].door.tcp.insert(80, pando_stack::Verdict::Admit);
    let tuple = net.tuple(0, 40_000, 1, 80);
    let id = net.connect(tuple, 0, Default::default());
    net.run_for(500 * MS);
    assert!(!net.end(0, id).is_open, "{} is deaf", address(1));
    net.deaf.clear();
    net.run_until(1_000 * MS, "open", |net| net.end(0, id).is_open);
}

/// smoltcp alone would wait here without end. Its clock stops when an end that is under way alone seems to be lost.
#[test]
fn an_end_is_lost() {
    transfer(Link { loss: 36, doubles: 0, reorders: 234, delay: 1000 }, 14_588_533_325_388_634_724, 108_402, 134_121, 8233);
    transfer(Link { loss: 76, doubles: 26, reorders: 217, delay: 24_335_485 }, 1_953_574_519_593_379_557, 39_611, 2049, 5977);
}

/// Here too: each side sends again what the other has, and throws away what acknowledges its own.
#[test]
fn both_sides_send_again_at_once() {
    transfer(Link { loss: 0, doubles: 0, reorders: 202, delay: 32_188_001 }, 3_843_647_562_568_839_839, 109_119, 108_095, 21_203);
}
