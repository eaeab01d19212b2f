// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of a manager's cells: by number, by name, and those that have ended. No operation on one cell walks all of them.

use super::cell::ManagedCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// The cells of a manager.
#[derive(Default)]
pub(super) struct CellIndex {
    cells: BTreeMap<u64, Arc<ManagedCell>>,
    /// Numbers by requested name. Other names end with the cell's number.
    named: HashMap<String, BTreeSet<u64>>,
    ended: BTreeSet<u64>,
}

impl CellIndex {
    /// A cell by its number.
    pub(super) fn get(&self, id: u64) -> Option<&Arc<ManagedCell>> {
        self.cells.get(&id)
    }

    /// Adds a cell. If it has the number of a cell that has ended, it takes the place of that.
    pub(super) fn insert(&mut self, cell: &Arc<ManagedCell>) {
        self.remove(cell.id());
        self.cells.insert(cell.id(), Arc::clone(cell));
        if let Some(name) = &cell.spec.name {
            self.named.entry(name.clone()).or_default().insert(cell.id());
        }
    }

    /// Removes a cell.
    pub(super) fn remove(&mut self, id: u64) -> Option<Arc<ManagedCell>> {
        let cell = self.cells.remove(&id)?;
        self.ended.remove(&id);
        if let Some(name) = &cell.spec.name
            && let Some(numbers) = self.named.get_mut(name)
        {
            numbers.remove(&id);
            if numbers.is_empty() {
                self.named.remove(name);
            }
        }
        Some(cell)
    }

    /// Records that a cell has ended, and removes the oldest ended ones beyond `kept`.
    pub(super) fn end(&mut self, cell: &Arc<ManagedCell>, kept: usize) {
        // Another cell may have its number by now.
        if self.cells.get(&cell.id()).is_some_and(|present| Arc::ptr_eq(present, cell)) {
            self.ended.insert(cell.id());
        }
        while self.ended.len() > kept
            && let Some(oldest) = self.ended.pop_first()
        {
            self.remove(oldest);
        }
    }

    /// The ended cells, the oldest first.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Arc<ManagedCell>> {
        self.ended.iter().filter_map(|id| self.cells.get(id))
    }

    /// Number of cells that have not ended.
    pub(super) fn living(&self) -> usize {
        self.cells.len() - self.ended.len()
    }

    /// Up to `limit` cells with numbers above `after`, in their order.
    pub(super) fn page(&self, after: u64, limit: usize) -> Vec<Arc<ManagedCell>> {
        self.cells.range((Bound::Excluded(after), Bound::Unbounded)).take(limit).map(|(_, cell)| Arc::clone(cell)).collect()
    }

    /// The cells of a name, in the order of their numbers.
    pub(super) fn named(&self, name: &str) -> Vec<Arc<ManagedCell>> {
        let requested = self.named.get(name).into_iter().flatten().copied();
        let numbered = name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
        let mut numbers: Vec<u64> = requested.chain(numbered).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.iter().filter_map(|id| self.cells.get(id)).filter(|cell| cell.name() == name).cloned().collect()
    }
}
