// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchpoints: the program executes one instruction at a time, and the watched values are compared after each.

use crate::watched_cell::WatchedCell;
use std::collections::BTreeMap;
use std::io::Result;

/// Bytes of the longest watched value.
const MAX_BYTES: u64 = 4096;

/// The watched values by address and length, as they were last seen.
#[derive(Debug, Default)]
pub(super) struct Watchpoints(BTreeMap<(u64, u64), Vec<u8>>);

impl Watchpoints {
    /// Adds one. Returns whether it is possible.
    pub(super) fn add(&mut self, address: u64, bytes: u64) -> bool {
        let is_possible = (1..=MAX_BYTES).contains(&bytes);
        if is_possible {
            self.0.insert((address, bytes), Vec::new());
        }
        is_possible
    }

    /// Removes one. Returns whether it was there.
    pub(super) fn remove(&mut self, address: u64, bytes: u64) -> bool {
        self.0.remove(&(address, bytes)).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers the present values.
    ///
    /// # Errors
    /// The operator does not allow it.
    pub(super) fn remember(&mut self, cell: &dyn WatchedCell, space: Option<u32>) -> Result<()> {
        self.changed(cell, space).map(drop)
    }

    /// The address of a value that has changed, and remembers all values.
    ///
    /// # Errors
    /// The operator does not allow it.
    pub(super) fn changed(&mut self, cell: &dyn WatchedCell, space: Option<u32>) -> Result<Option<u64>> {
        let mut changed = None;
        for ((address, bytes), value) in &mut self.0 {
            let mut present = vec![0; *bytes as usize];
            let count = cell.read(space, *address, &mut present)?;
            present.truncate(count);
            if *value != present {
                *value = present;
                changed = changed.or(Some(*address));
            }
        }
        Ok(changed)
    }
}
