// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of a manager's cells: by number, by name, and those that have ended. No operation on one cell walks all of them.

use super::cell::ManagedCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// The numbers of cells that have ended, in the order in which they ended.
#[derive(Default)]
struct EndOrder {
    numbers: BTreeMap<u64, u64>,
    /// The key in `numbers` of each.
    keys: HashMap<u64, u64>,
}

impl EndOrder {
    /// Adds a cell that ended last, unless it is there.
    fn insert(&mut self, id: u64) {
        if !self.keys.contains_key(&id) {
            let key = self.numbers.last_key_value().map_or(0, |(last, _)| last + 1);
            self.numbers.insert(key, id);
            self.keys.insert(id, key);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(key) = self.keys.remove(&id) {
            self.numbers.remove(&key);
        }
    }

    /// The one that ended first.
    fn first(&self) -> Option<u64> {
        self.numbers.first_key_value().map(|(_, id)| *id)
    }
}

/// The cells of a manager.
#[derive(Default)]
pub(super) struct CellIndex {
    cells: BTreeMap<u64, Arc<ManagedCell>>,
    /// Numbers by requested name, in lower case. Other names end with the cell's number.
    named: HashMap<String, BTreeSet<u64>>,
    /// Those that have ended and are not started again.
    ended: EndOrder,
    /// Those that have ended and may be started again.
    waiting: BTreeSet<u64>,
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
            self.named.entry(name.to_ascii_lowercase()).or_default().insert(cell.id());
        }
    }

    /// Removes a cell.
    pub(super) fn remove(&mut self, id: u64) -> Option<Arc<ManagedCell>> {
        let cell = self.cells.remove(&id)?;
        self.ended.remove(id);
        self.waiting.remove(&id);
        if let Some(name) = cell.spec.name.as_ref().map(|name| name.to_ascii_lowercase())
            && let Some(numbers) = self.named.get_mut(&name)
        {
            numbers.remove(&id);
            if numbers.is_empty() {
                self.named.remove(&name);
            }
        }
        Some(cell)
    }

    /// Records that a cell has ended, and removes the ones beyond `kept` that ended first. A cell that may be started again stays until it
    /// is recorded again: as one that is not.
    pub(super) fn end(&mut self, cell: &Arc<ManagedCell>, kept: usize) {
        // Another cell may have its number by now.
        if self.cells.get(&cell.id()).is_some_and(|present| Arc::ptr_eq(present, cell)) {
            if cell.may_restart() {
                self.waiting.insert(cell.id());
            } else {
                self.waiting.remove(&cell.id());
                self.ended.insert(cell.id());
            }
        }
        while self.ended.keys.len() > kept
            && let Some(oldest) = self.ended.first()
        {
            self.remove(oldest);
        }
    }

    /// The ended cells that are not started again, in the order in which they ended.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Arc<ManagedCell>> {
        self.ended.numbers.values().filter_map(|id| self.cells.get(id))
    }

    /// Number of cells that have not ended.
    pub(super) fn living(&self) -> usize {
        self.cells.len() - self.ended.keys.len() - self.waiting.len()
    }

    /// Up to `limit` cells with numbers above `after`, in their order.
    pub(super) fn page(&self, after: u64, limit: usize) -> Vec<Arc<ManagedCell>> {
        self.cells.range((Bound::Excluded(after), Bound::Unbounded)).take(limit).map(|(_, cell)| Arc::clone(cell)).collect()
    }

    /// The cells of a name, in the order of their numbers.
    pub(super) fn named(&self, name: &str) -> Vec<Arc<ManagedCell>> {
        let mut cells = self.named_in_any_case(name);
        cells.retain(|cell| cell.name() == name);
        cells
    }

    /// The cells whose names differ from this one in case only, or not at all, in the order of their numbers.
    pub(super) fn named_in_any_case(&self, name: &str) -> Vec<Arc<ManagedCell>> {
        let requested = self.named.get(&name.to_ascii_lowercase()).into_iter().flatten().copied();
        let numbered = name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
        let mut numbers: Vec<u64> = requested.chain(numbered).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.iter().filter_map(|id| self.cells.get(id)).filter(|cell| cell.name().eq_ignore_ascii_case(name)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::EndOrder;

    #[test]
    fn the_first_is_the_one_that_ended_first_whatever_its_number() {
        let mut ended = EndOrder::default();
        for id in [5, 9, 1, 9, 7] {
            ended.insert(id);
        }
        assert_eq!(ended.numbers.values().copied().collect::<Vec<_>>(), [5, 9, 1, 7]);
        ended.remove(9);
        ended.remove(5);
        ended.remove(5);
        assert_eq!((ended.first(), ended.keys.len()), (Some(1), 2));
        ended.insert(5);
        assert_eq!(ended.numbers.values().copied().collect::<Vec<_>>(), [1, 7, 5]);
    }
}
