// SPDX-License-Identifier: MIT OR Apache-2.0
//! The positions of the readers for which a cell waits.

use super::changes::Changes;
use super::tasks::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The read positions of the clients for which a cell waits. A cell that is started again has those of the one before.
#[derive(Debug, Default)]
pub(super) struct ReadPositions {
    positions: Mutex<BTreeMap<u64, u64>>,
    /// Notified when a position changes.
    pub(super) changed: Changes,
}

impl ReadPositions {
    /// The first of them. `None`: the cell waits for no client.
    pub(super) fn first(&self) -> Option<u64> {
        lock(&self.positions).values().copied().min()
    }

    /// Changes them by their keys, and lets the cell look at them.
    pub(super) fn change(&self, change: impl FnOnce(&mut BTreeMap<u64, u64>)) {
        change(&mut lock(&self.positions));
        self.changed.notify();
    }
}
