// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faulty links: data that two cells exchange in both directions arrives complete, whatever the links between them do to frames.

use crate::world::CellNetwork;
use pando_kernel::NetworkConfig;
use pando_kernel::network::link::{Link, PerMillion};
use pando_testing::lab::repetitions;
use std::num::NonZeroU64;
use std::time::Duration;

const PERFECT: Link = Link { rate: None, delay: Duration::ZERO, jitter: Duration::ZERO, loss: PerMillion(0), duplication: PerMillion(0) };
const fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}
const fn megabytes(count: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(count * 1_000_000)
}

/// The properties of the links of both sides.
const LINKS: [(&str, Link); 9] = [
    ("perfect", PERFECT),
    ("1% lost, 1 ms", Link { loss: PerMillion(10_000), delay: micros(1000), ..PERFECT }),
    ("0.1% lost, 10 ms", Link { loss: PerMillion(1000), delay: micros(10_000), ..PERFECT }),
    ("5% doubled", Link { duplication: PerMillion(50_000), delay: micros(100), ..PERFECT }),
    ("1 to 2 ms", Link { delay: micros(1000), jitter: micros(1000), ..PERFECT }),
    ("5 to 5.2 ms", Link { delay: micros(5000), jitter: micros(200), ..PERFECT }),
    ("10 MB/s, 2 ms", Link { rate: megabytes(10), delay: micros(2000), ..PERFECT }),
    ("50 MB/s, 10 ms", Link { rate: megabytes(50), delay: micros(10_000), ..PERFECT }),
    (
        "all at once",
        Link { rate: megabytes(20), delay: micros(1000), jitter: micros(300), loss: PerMillion(5000), duplication: PerMillion(10_000) },
    ),
];

/// Lets two cells exchange this many bytes over such links. Returns the seconds until both have received all; `None` on
/// machines that cannot run it.
fn exchange(link: Link, mtu: u16, seed: u64, there: u64, back: u64) -> Option<f64> {
    let network = NetworkConfig { mtu, seed, ..NetworkConfig::default() };
    let mut world = CellNetwork::with_peer(network)?;
    let server = world.serve(&format!("/peer hear 5000 {back} {there}"), link);
    let client = world.start(&format!("/peer tell {} 5000 {there} {back}", server.addresses.v4), link);
    let said = [&client, &server].map(|cell| world.output_of(cell));
    assert!(said.iter().all(|said| said.starts_with("whole:")), "{said:?}, seed {seed}");
    let seconds = said.iter().map(|said| said.split(' ').nth_back(1).and_then(|word| word.parse::<f64>().ok()).expect("it says how long"));
    Some(seconds.fold(0.0, f64::max))
}

#[test]
fn streams_over_bad_links_arrive_whole() {
    let bytes = u64::from(repetitions(100_000, 1_000_000, 100_000_000));
    for (number, (name, link)) in LINKS.into_iter().enumerate() {
        // In the ordinary run each link is tested with one packet size only.
        for mtu in [1500, u16::MAX].into_iter().skip(usize::from(repetitions(number as u32 % 2, number as u32 % 2, 0) > 0)) {
            let rate = |seconds: f64| bytes as f64 / 1e6 / seconds;
            let Some(alone) = exchange(link, mtu, 1, bytes, 0).map(rate) else { return };
            let Some(both) = exchange(link, mtu, 2, bytes, bytes).map(rate) else { return };
            println!("{name:20} packets of {mtu:5}: {alone:7.2} MB/s one way, {both:7.2} MB/s each way");
        }
    }
}
