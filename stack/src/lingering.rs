// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that are over (TIME-WAIT): a few bytes each, enough to say once more what the other side may not have heard.

use alloc::collections::{BTreeMap, VecDeque};

use smoltcp::wire::TcpSeqNumber;

use crate::{Tuple, limits};

/// What was said last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastWord {
    /// Where this side's numbers end.
    pub(crate) sequence: TcpSeqNumber,
    /// Where the other side's do.
    pub(crate) acknowledged: TcpSeqNumber,
}

#[derive(Debug)]
pub(crate) struct Lingering {
    all: BTreeMap<Tuple, (LastWord, u64)>,
    order: VecDeque<(u64, Tuple)>,
    bound: usize,
}

impl Lingering {
    pub(crate) const fn new(bound: usize) -> Self {
        Self { all: BTreeMap::new(), order: VecDeque::new(), bound }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn add(&mut self, tuple: Tuple, word: LastWord, now: u64) {
        let until = now.saturating_add(limits::LINGER);
        self.all.insert(tuple, (word, until));
        self.order.push_back((until, tuple));
        if self.order.len() > self.bound {
            self.forget_first();
        }
    }

    pub(crate) fn get(&mut self, tuple: &Tuple, now: u64) -> Option<LastWord> {
        self.expire(now);
        self.all.get(tuple).map(|(word, _)| *word)
    }

    /// Whether nothing can be under way any more of a connection that is over.
    pub(crate) fn is_quiet(&self, tuple: &Tuple, now: u64) -> bool {
        let until = self.all.get(tuple).map_or(0, |(_, until)| *until);
        now.saturating_add(limits::LINGER).saturating_sub(until) >= limits::QUIET
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) {
        self.all.remove(tuple);
    }

    /// Forgets those whose time is over. Nobody need be woken for it.
    pub(crate) fn expire(&mut self, now: u64) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((until, tuple)) = self.order.pop_front()
            && self.all.get(&tuple).is_some_and(|(_, moment)| *moment == until)
        {
            self.all.remove(&tuple);
        }
    }
}
