// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throughput of a connection over links that are long, slow, or bad. The clock is simulated, so the results are the same on every machine.

use crate::net::{Link, MS, Net, config, noise};

const MEGABYTE: usize = 1_000_000;

/// Sends so many bytes over such a link. Returns MB/s and the number of retransmitted segments.
fn carry(link: Link, mtu: usize, bytes: usize, seed: u64) -> (f64, u64) {
    let mut configs = vec![config(0), config(1)];
    for config in &mut configs {
        (config.mtu, config.buffer) = (mtu, 256 << 10);
    }
    let mut net = Net::new(configs, link, seed);
    let (client, server) = net.open();
    let (begin, before) = (net.now, net.hosts[0].stack.counts().retransmitted);
    let words = noise(bytes, seed);
    net.send(0, client, &words);
    net.run_until(3_600_000 * MS, "all has arrived", |net| net.end(1, server).received.len() == bytes);
    assert!(net.end(1, server).received == words, "something was changed on the way");
    (bytes as f64 * 1e3 / (net.now - begin) as f64, net.hosts[0].stack.counts().retransmitted - before)
}

/// A link, the minimum MB/s in packets of 1500 and of 65535, and the maximum number of retransmitted segments of 2 MB.
/// The bounds are about three quarters of the measured rates, and one and a half times the measured retransmissions.
type Promise = (&'static str, Link, [f64; 2], u64);

const PROMISES: [Promise; 9] = [
    ("1% lost, 1 ms", Link { loss: 10, delay: MS, ..Link::GOOD }, [13.0, 80.0], 20),
    ("0.1% lost, 10 ms", Link { loss: 1, delay: 10 * MS, ..Link::GOOD }, [5.5, 8.5], 4),
    ("5% lost, 1 ms", Link { loss: 50, delay: MS, ..Link::GOOD }, [1.3, 45.0], 120),
    ("5% doubled", Link { doubles: 50, delay: MS / 10, ..Link::GOOD }, [500.0, 750.0], 4),
    ("1 to 2 ms", Link { delay: MS, jitter: MS, ..Link::GOOD }, [40.0, 45.0], 8),
    ("5 to 5.2 ms", Link { delay: 5 * MS, jitter: MS / 5, ..Link::GOOD }, [12.0, 13.0], 8),
    ("10 MB/s, 2 ms", Link { rate: Some(10_000_000), delay: 2 * MS, ..Link::GOOD }, [7.0, 7.0], 0),
    ("50 MB/s, 10 ms", Link { rate: Some(50_000_000), delay: 10 * MS, ..Link::GOOD }, [6.0, 7.0], 0),
    ("all at once", Link { rate: Some(20_000_000), delay: MS, jitter: 3 * MS / 10, loss: 5, doubles: 10, ..Link::GOOD }, [11.0, 13.0], 15),
];

#[test]
fn a_bad_link_is_slowed_by_its_losses_only() {
    const SEEDS: u64 = 4;
    for (name, link, least, most_again) in PROMISES {
        for (mtu, least) in [1500, 65_535].into_iter().zip(least) {
            let runs: Vec<_> = (1..=SEEDS).map(|seed| carry(link, mtu, 2 * MEGABYTE, seed)).collect();
            let rate = runs.iter().map(|(rate, _)| rate).sum::<f64>() / SEEDS as f64;
            let again = runs.iter().map(|(_, again)| again).sum::<u64>();
            println!("{name:18} packets of {mtu:5}: {rate:7.2} MB/s, {again:4} segments again in {SEEDS} times 2 MB");
            assert!(rate >= least, "{name}, packets of {mtu}: {rate} MB/s, not {least}");
            assert!(again <= SEEDS * most_again, "{name}, packets of {mtu}: {again} segments again, not {most_again} each time");
        }
    }
}
