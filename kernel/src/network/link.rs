// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: what lies between a port and its switch. A perfect one takes no time and loses nothing.

use crate::limits::LINK_BYTES;
use fastrand::Rng;
use pando_machine::Nanos;
use std::num::NonZeroU64;
use std::time::Duration;

/// So many of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerMillion(pub u32);

impl PerMillion {
    fn happens(self, random: &mut Rng) -> bool {
        self.0 > 0 && random.u32(0..1_000_000) < self.0
    }
}

/// What a link does to the frames that its port sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Bytes that it carries in a second; `None`: any number at once.
    pub rate: Option<NonZeroU64>,
    /// How long each frame is on its way, at least.
    pub delay: Duration,
    /// By how much longer it may be, at random: frames overtake each other then.
    pub jitter: Duration,
    /// How many are lost.
    pub loss: PerMillion,
    /// How many arrive twice.
    pub duplication: PerMillion,
}

/// A link with what is on it.
#[derive(Debug)]
pub(super) struct Wire {
    link: Link,
    random: Rng,
    /// When the last byte of the last frame has gone out.
    free_at: Nanos,
    /// Bytes that are on their way.
    pub(super) under_way: usize,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crossing {
    /// It arrives at once.
    Now,
    /// It arrives at a moment, and perhaps again at another.
    Later(Nanos, Option<Nanos>),
    /// The link has lost it.
    Lost,
    /// There was no room on the link.
    Full,
}

impl Wire {
    pub(super) fn new(link: Link, seed: u64) -> Wire {
        Wire { link, random: Rng::with_seed(seed), free_at: Nanos(0), under_way: 0 }
    }

    /// Whether frames are across as soon as they are sent.
    pub(super) fn is_perfect(&self) -> bool {
        self.link == Link::default()
    }

    /// Sends a frame of so many bytes across.
    pub(super) fn cross(&mut self, bytes: usize, now: Nanos) -> Crossing {
        if self.is_perfect() {
            return Crossing::Now;
        }
        let Wire { link, random, .. } = self;
        if self.under_way + bytes > LINK_BYTES {
            return Crossing::Full;
        }
        if link.loss.happens(random) {
            return Crossing::Lost;
        }
        let start = now.max(self.free_at);
        let sending = link.rate.map_or(0, |rate| (bytes as u128 * 1_000_000_000 / u128::from(rate.get())) as u64);
        self.free_at = start + Duration::from_nanos(sending);
        let sent = self.free_at;
        let arrival = |random: &mut Rng| sent + link.delay + Duration::from_nanos(random.u64(0..=link.jitter.as_nanos() as u64));
        let first = arrival(random);
        let again = link.duplication.happens(random).then(|| arrival(random));
        Crossing::Later(first, again)
    }
}

#[cfg(test)]
mod tests {
    use super::{Crossing, Link, PerMillion, Wire};
    use crate::limits::LINK_BYTES;
    use pando_machine::Nanos;
    use std::num::NonZeroU64;
    use std::time::Duration;

    #[test]
    fn a_perfect_link_takes_no_time() {
        assert_eq!(Wire::new(Link::default(), 1).cross(1 << 16, Nanos(5)), Crossing::Now);
    }

    #[test]
    fn a_rate_spaces_frames_out_and_a_delay_moves_them() {
        let link = Link { rate: NonZeroU64::new(1_000_000), delay: Duration::from_millis(3), ..Link::default() };
        let mut wire = Wire::new(link, 1);
        let arrivals: Vec<Crossing> = (0..3).map(|_| wire.cross(1000, Nanos(0))).collect();
        let at = |milliseconds: u64| Crossing::Later(Nanos(milliseconds * 1_000_000), None);
        assert_eq!(arrivals, [at(4), at(5), at(6)]);
        wire.under_way = LINK_BYTES;
        assert_eq!(wire.cross(1000, Nanos(0)), Crossing::Full);
    }

    #[test]
    fn losses_and_doubles_come_as_often_as_asked_for_and_the_same_for_a_seed() {
        let link = Link { loss: PerMillion(100_000), duplication: PerMillion(50_000), jitter: Duration::from_millis(1), ..Link::default() };
        let run = || {
            let mut wire = Wire::new(link, 7);
            (0..10_000).map(|_| wire.cross(60, Nanos(0))).collect::<Vec<_>>()
        };
        let count = |is: fn(&Crossing) -> bool| run().iter().filter(|crossing| is(crossing)).count();
        let (lost, doubled) = (count(|it| *it == Crossing::Lost), count(|it| matches!(it, Crossing::Later(_, Some(_)))));
        assert!((900..1100).contains(&lost) && (350..550).contains(&doubled), "{lost} {doubled}");
        assert_eq!(run(), run());
    }
}
