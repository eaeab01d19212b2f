// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is due when: one ordered set of moments, so that neither looking for the next nor moving one costs a walk.

use alloc::collections::{BTreeMap, BTreeSet};

/// Moments, at most one for each key.
#[derive(Debug)]
pub(crate) struct Agenda<K> {
    moments: BTreeMap<K, u64>,
    order: BTreeSet<(u64, K)>,
}

impl<K: Ord + Copy> Agenda<K> {
    pub(crate) const fn new() -> Self {
        Self { moments: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Something is due for a key then and at no other moment; or never.
    pub(crate) fn set(&mut self, key: K, moment: Option<u64>) {
        let before = match moment {
            Some(moment) => self.moments.insert(key, moment),
            None => self.moments.remove(&key),
        };
        if before == moment {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, key));
        }
        if let Some(moment) = moment {
            self.order.insert((moment, key));
        }
    }

    /// The first moment.
    pub(crate) fn next(&self) -> Option<u64> {
        self.order.first().map(|(moment, _)| *moment)
    }

    /// Takes out a key that is due.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<K> {
        let (_, key) = *self.order.first().filter(|(moment, _)| *moment <= now)?;
        self.set(key, None);
        Some(key)
    }
}
