// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections in TIME-WAIT: a few hundred bytes each, enough to repeat the last segment if the peer has missed it.

use alloc::collections::{BTreeMap, VecDeque};

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
    order: VecDeque<(u64, Tuple)>,
    bound: usize,
}

impl TimeWait {
    pub(crate) const fn new(bound: usize) -> Self {
        Self { all: BTreeMap::new(), order: VecDeque::new(), bound }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn add(&mut self, tuple: Tuple, last: LastSegment, now: u64) {
        let until = now.saturating_add(limits::TIME_WAIT);
        self.all.insert(tuple, (last, until));
        self.order.push_back((until, tuple));
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
    pub(crate) fn is_quiet(&self, tuple: &Tuple, now: u64) -> bool {
        let until = self.all.get(tuple).map_or(0, |(_, until)| *until);
        now.saturating_add(limits::TIME_WAIT).saturating_sub(until) >= limits::REUSE_DELAY
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) {
        self.all.remove(tuple);
    }

    /// Removes expired entries. This needs no wake-up.
    pub(crate) fn expire(&mut self, now: u64) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.remove_first();
        }
    }

    fn remove_first(&mut self) {
        if let Some((until, tuple)) = self.order.pop_front()
            && self.all.get(&tuple).is_some_and(|(_, moment)| *moment == until)
        {
            self.all.remove(&tuple);
        }
    }
}
