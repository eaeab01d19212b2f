// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links between ports and their switch. A perfect link takes no time and loses nothing.

use crate::limits::LINK_BYTES;
use fastrand::Rng;
use pando_machine::Nanos;
use std::num::NonZeroU64;
use std::time::Duration;

/// A probability in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerMillion(pub u32);

impl PerMillion {
    fn happens(self, random: &mut Rng) -> bool {
        self.0 > 0 && random.u32(0..1_000_000) < self.0
    }
}

/// The properties of a link, applied to the frames that its port sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Bytes per second; `None`: unlimited.
    pub rate: Option<NonZeroU64>,
    /// Minimum latency of each frame.
    pub delay: Duration,
    /// Largest random addition to `delay`; frames can be reordered by it.
    pub jitter: Duration,
    /// Probability that a frame is lost.
    pub loss: PerMillion,
    /// Probability that a frame arrives twice.
    pub duplication: PerMillion,
}

/// A link and its state.
#[derive(Debug)]
pub(super) struct LinkState {
    link: Link,
    random: Rng,
    /// When the last byte of the last frame has been sent.
    free_at: Nanos,
    /// Bytes in transit.
    pub(super) in_transit: usize,
}

/// The outcome of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarding {
    /// It arrives at once.
    Now,
    /// It arrives at this time, and a duplicate perhaps at another.
    Later(Nanos, Option<Nanos>),
    /// The link lost it.
    Lost,
    /// The link had no room.
    Full,
}

impl LinkState {
    pub(super) fn new(link: Link, seed: u64) -> LinkState {
        LinkState { link, random: Rng::with_seed(seed), free_at: Nanos(0), in_transit: 0 }
    }

    /// Whether frames arrive as soon as they are sent.
    pub(super) fn is_perfect(&self) -> bool {
        self.link == Link::default()
    }

    /// Sends a frame of `bytes` bytes.
    pub(super) fn transmit(&mut self, bytes: usize, now: Nanos) -> Forwarding {
        if self.is_perfect() {
            return Forwarding::Now;
        }
        let LinkState { link, random, .. } = self;
        if self.in_transit + bytes > LINK_BYTES {
            return Forwarding::Full;
        }
        if link.loss.happens(random) {
            return Forwarding::Lost;
        }
        let start = now.max(self.free_at);
        let sending = link.rate.map_or(0, |rate| (bytes as u128 * 1_000_000_000 / u128::from(rate.get())) as u64);
        self.free_at = start + Duration::from_nanos(sending);
        let sent = self.free_at;
        let arrival = |random: &mut Rng| sent + link.delay + Duration::from_nanos(random.u64(0..=link.jitter.as_nanos() as u64));
        let first = arrival(random);
        let duplicate = link.duplication.happens(random).then(|| arrival(random));
        Forwarding::Later(first, duplicate)
    }
}

#[cfg(test)]
mod tests {
    use super::{Forwarding, Link, LinkState, PerMillion};
    use crate::limits::LINK_BYTES;
    use pando_machine::Nanos;
    use std::num::NonZeroU64;
    use std::time::Duration;

    #[test]
    fn a_perfect_link_takes_no_time() {
        assert_eq!(LinkState::new(Link::default(), 1).transmit(1 << 16, Nanos(5)), Forwarding::Now);
    }

    #[test]
    fn a_rate_spaces_frames_out_and_a_delay_moves_them() {
        let link = Link { rate: NonZeroU64::new(1_000_000), delay: Duration::from_millis(3), ..Link::default() };
        let mut state = LinkState::new(link, 1);
        let arrivals: Vec<Forwarding> = (0..3).map(|_| state.transmit(1000, Nanos(0))).collect();
        let at = |milliseconds: u64| Forwarding::Later(Nanos(milliseconds * 1_000_000), None);
        assert_eq!(arrivals, [at(4), at(5), at(6)]);
        state.in_transit = LINK_BYTES;
        assert_eq!(state.transmit(1000, Nanos(0)), Forwarding::Full);
    }

    #[test]
    fn losses_and_duplicates_have_their_probability_and_repeat_for_a_seed() {
        let link = Link { loss: PerMillion(100_000), duplication: PerMillion(50_000), jitter: Duration::from_millis(1), ..Link::default() };
        let run = || {
            let mut state = LinkState::new(link, 7);
            (0..10_000).map(|_| state.transmit(60, Nanos(0))).collect::<Vec<_>>()
        };
        let count = |is: fn(&Forwarding) -> bool| run().iter().filter(|forwarding| is(forwarding)).count();
        let (lost, doubled) = (count(|it| *it == Forwarding::Lost), count(|it| matches!(it, Forwarding::Later(_, Some(_)))));
        assert!((900..1100).contains(&lost) && (350..550).contains(&doubled), "{lost} {doubled}");
        assert_eq!(run(), run());
    }
}
