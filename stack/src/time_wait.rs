// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections in TIME-WAIT: a few hundred bytes each, enough to repeat the last segment if the peer has missed it.

use alloc::collections::{BTreeMap, BTreeSet};

use smoltcp::wire::TcpSeqNumber;

use crate::{Tuple, limits};

/// The last segment that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastSegment {
    /// The end of this side's sequence numbers.
    pub(crate) sequence: TcpSeqNumber,
    /// The end of the peer's sequence numbers.
    pub(crate) acknowledged: TcpSeqNumber,
}

#[derive(Debug)]
pub(crate) struct TimeWait {
    all: BTreeMap<Tuple, (LastSegment, u64)>,
    /// When each of them ends.
    order: BTreeSet<(u64, Tuple)>,
    bound: usize,
}

impl TimeWait {
    pub(crate) const fn new(bound: usize) -> Self {
        Self { all: BTreeMap::new(), order: BTreeSet::new(), bound }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds an entry, or renews that of the same connection. If there are too many, the one that ends first makes room.
    pub(crate) fn add(&mut self, tuple: Tuple, last: LastSegment, now: u64) {
        let until = now.saturating_add(limits::TIME_WAIT);
        self.remove(&tuple);
        self.all.insert(tuple, (last, until));
        self.order.insert((until, tuple));
        if self.order.len() > self.bound {
            self.remove_first();
        }
    }

    pub(crate) fn get(&mut self, tuple: &Tuple, now: u64) -> Option<LastSegment> {
        self.expire(now);
        self.all.get(tuple).map(|(last, _)| *last)
    }

    /// Whether there is an entry, which may have expired.
    pub(crate) fn contains(&self, tuple: &Tuple) -> bool {
        self.all.contains_key(tuple)
    }

    /// Whether no packet of the old connection can be in flight any more.
    pub(crate) fn may_reuse(&self, tuple: &Tuple, now: u64) -> bool {
        let until = self.all.get(tuple).map_or(0, |(_, until)| *until);
        now.saturating_add(limits::TIME_WAIT).saturating_sub(until) >= limits::REUSE_DELAY
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) {
        if let Some((_, until)) = self.all.remove(tuple) {
            self.order.remove(&(until, *tuple));
        }
    }

    /// Removes expired entries. This needs no wake-up.
    pub(crate) fn expire(&mut self, now: u64) {
        while self.order.first().is_some_and(|(until, _)| *until <= now) {
            self.remove_first();
        }
    }

    fn remove_first(&mut self) {
        if let Some((_, tuple)) = self.order.pop_first() {
            self.all.remove(&tuple);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LastSegment, TimeWait};
    use crate::Tuple;
    use smoltcp::wire::TcpSeqNumber;

    #[test]
    fn a_peer_that_repeats_its_last_segment_displaces_no_other_connection() {
        let tuple = |port| Tuple { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], port).into() };
        let last = LastSegment { sequence: TcpSeqNumber(1), acknowledged: TcpSeqNumber(2) };
        let mut entries = TimeWait::new(2);
        entries.add(tuple(1), last, 0);
        for now in 1..10 {
            entries.add(tuple(2), last, now);
        }
        assert!(entries.contains(&tuple(1)) && entries.contains(&tuple(2)));
        entries.add(tuple(3), last, 10);
        assert!(!entries.contains(&tuple(1)), "it ends first");
        entries.remove(&tuple(2));
        entries.add(tuple(4), last, 11);
        assert!(entries.contains(&tuple(3)) && entries.contains(&tuple(4)), "a removed entry takes no room");
    }
}
