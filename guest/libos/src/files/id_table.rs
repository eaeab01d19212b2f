// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table that assigns the lowest free number first.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Values by their numbers.
#[derive(Clone, Debug)]
pub struct IdTable<T> {
    all: Vec<Option<T>>,
    /// The free numbers below the end: there may be tens of thousands of used ones.
    free: BTreeSet<usize>,
}

impl<T> Default for IdTable<T> {
    fn default() -> IdTable<T> {
        IdTable { all: Vec::new(), free: BTreeSet::new() }
    }
}

impl<T> IdTable<T> {
    /// The lowest free number from `minimum` on.
    #[must_use]
    pub fn free_from(&self, minimum: usize) -> usize {
        self.free.range(minimum..).next().copied().unwrap_or(self.all.len().max(minimum))
    }

    /// Stores a value under a number, in place of the previous one.
    pub fn put(&mut self, number: usize, thing: T) {
        if number >= self.all.len() {
            self.free.extend(self.all.len()..number);
            self.all.resize_with(number + 1, || None);
        }
        self.free.remove(&number);
        self.all[number] = Some(thing);
    }

    /// Removes the value of a number, which becomes free.
    pub fn take(&mut self, number: usize) -> Option<T> {
        let object = self.all.get_mut(number)?.take()?;
        self.free.insert(number);
        Some(object)
    }

    /// The value of a number.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.all.get(number)?.as_ref()
    }

    /// The value of a number, mutably.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.all.get_mut(number)?.as_mut()
    }

    /// The end of all numbers ever used.
    #[must_use]
    pub fn end(&self) -> usize {
        self.all.len()
    }

    /// All values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.all.iter().enumerate().filter_map(|(number, thing)| thing.as_ref().map(|thing| (number, thing)))
    }
}

#[cfg(test)]
mod tests {
    use super::IdTable;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_lowest_free_number_is_found(steps in prop::collection::vec((0..3_u32, 0..40_usize), 1..100)) {
            let (mut numbered, mut model) = (IdTable::default(), BTreeMap::new());
            for (step, (kind, number)) in steps.into_iter().enumerate() {
                let lowest = |model: &BTreeMap<usize, usize>| (number..).find(|number| !model.contains_key(number)).expect("there is no end");
                match kind {
                    0 => {
                        numbered.put(number, step);
                        model.insert(number, step);
                    }
                    1 => prop_assert_eq!(numbered.take(number), model.remove(&number)),
                    _ => {
                        let free = numbered.free_from(number);
                        prop_assert_eq!(free, lowest(&model));
                        numbered.put(free, step);
                        model.insert(free, step);
                    }
                }
                prop_assert_eq!(numbered.free_from(number), lowest(&model));
                prop_assert_eq!(numbered.get(number), model.get(&number));
                prop_assert!(numbered.iter().eq(model.iter().map(|(number, thing)| (*number, thing))));
            }
        }
    }
}
