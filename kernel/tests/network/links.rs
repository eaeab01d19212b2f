// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links that delay, lose, duplicate and reorder frames.

use pando_kernel::network::link::{Link, PerMillion};
use pando_kernel::{End, NetworkConfig};
use pando_testing::network_lab::{NetworkLab, packet};
use std::num::NonZeroU64;
use std::time::Duration;

#[test]
fn a_delayed_frame_arrives_when_its_time_has_come() {
    let link = Link { delay: Duration::from_millis(20), ..Link::default() };
    for mut bench in NetworkLab::with(2, NetworkConfig::default(), link) {
        let frame = packet(&bench.addresses(0), &bench.addresses(1), 60, 1);
        bench.listen(1, 1);
        let sent = bench.lab.kernel.now();
        // `run_all` returns when no frame is in transit any more.
        bench.send(0, std::slice::from_ref(&frame));
        assert!(bench.lab.kernel.now() >= sent + link.delay);
        assert_eq!(bench.received(1), [[frame]]);
        bench.close();
    }
}

#[test]
fn a_frame_in_transit_arrives_although_its_sender_has_ended() {
    let link = Link { delay: Duration::from_millis(20), ..Link::default() };
    for mut bench in NetworkLab::with(2, NetworkConfig::default(), link) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        bench.listen(1, 1);
        bench.post_frames(0, &[packet(&a, &b, 60, 1)]);
        while bench.traffic(0).sent.frames == 0 {
            assert!(bench.lab.turn(0), "it sends");
        }
        let (id, _) = bench.remove(0);
        bench.lab.kernel.end(id, End::Killed).expect("it idles");
        // The new cell on its port is another sender.
        let newcomer = bench.add(link);
        assert_eq!(bench.addresses(newcomer), a);
        bench.send(newcomer, &[packet(&a, &b, 60, 2)]);
        assert_eq!(bench.receive_all(0), [packet(&a, &b, 60, 1), packet(&a, &b, 60, 2)]);
        bench.close();
    }
}

#[test]
fn a_rate_bounds_sent_frames_and_frames_in_flight() {
    let link = Link { rate: NonZeroU64::new(100 << 20), ..Link::default() };
    for mut bench in NetworkLab::with(2, NetworkConfig::default(), link) {
        let frames: Vec<Vec<u8>> = (0..4).map(|mark| packet(&bench.addresses(0), &bench.addresses(1), 60_000, mark)).collect();
        bench.listen(1, 8);
        let sent = bench.lab.kernel.now();
        for _ in 0..4 {
            bench.send(0, &frames);
        }
        let taken = Duration::from_nanos(16 * 60_000 * 1_000_000_000 / (100 << 20));
        assert!(bench.lab.kernel.now() >= sent + taken);
        assert_eq!(bench.receive_all(1).len(), 16);
        bench.close();
    }
}

#[test]
fn losses_doubles_and_overtaking_happen_and_are_counted() {
    let link = Link { jitter: Duration::from_millis(2), loss: PerMillion(200_000), duplication: PerMillion(200_000), ..Link::default() };
    let run = |seed: u64| {
        let config = NetworkConfig { seed, ..NetworkConfig::default() };
        let mut stories = Vec::new();
        for mut bench in NetworkLab::with(2, config, link) {
            let frames: Vec<Vec<u8>> = (0..100).map(|mark| packet(&bench.addresses(0), &bench.addresses(1), 60, mark)).collect();
            bench.listen(1, 8);
            bench.send(0, &frames);
            let got: Vec<u8> = bench.receive_all(1).iter().map(|frame| frame[40]).collect();
            let different = got.iter().collect::<std::collections::BTreeSet<_>>().len();
            assert_eq!(different as u64 + bench.traffic(0).lost, 100, "every one is lost or arrives");
            assert!(got.len() > different, "some arrive twice");
            assert!(!got.is_sorted(), "some overtake others");
            bench.close();
            stories.push(got);
        }
        stories
    };
    // The software machine's time is the same in every run.
    assert_eq!(run(1)[0], run(1)[0]);
    assert_ne!(run(1)[0], run(2)[0]);
}
