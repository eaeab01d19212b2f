// SPDX-License-Identifier: MIT OR Apache-2.0
//! The free space of a swap file: extents by length and by position. The smallest one that fits is taken, and neighbours are joined.

use std::collections::{BTreeMap, BTreeSet};

/// The unit of allocation, in bytes: records of small cells waste little.
const UNIT: u64 = 256;

/// The free extents of a file, in units.
#[derive(Debug)]
pub(super) struct Extents {
    by_start: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    size: u64,
    free: u64,
}

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT).max(1)
}

impl Extents {
    /// A file of `bytes` bytes without records.
    pub(super) fn new(bytes: u64) -> Extents {
        let size = bytes / UNIT;
        let mut extents = Extents { by_start: BTreeMap::new(), by_length: BTreeSet::new(), size, free: size };
        if size > 0 {
            extents.insert(0, size);
        }
        extents
    }

    /// Bytes that are free, in one piece or several.
    pub(super) fn free(&self) -> u64 {
        self.free * UNIT
    }

    /// Bytes that records take.
    pub(super) fn used(&self) -> u64 {
        (self.size - self.free) * UNIT
    }

    /// Takes room for `bytes` bytes. Returns the position of the first; `None`: no free extent is long enough.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let count = units(bytes);
        let (length, start) = *self.by_length.range((count, 0)..).next()?;
        self.remove(start, length);
        if length > count {
            self.insert(start + count, length - count);
        }
        self.free -= count;
        Some(start * UNIT)
    }

    /// Gives room back.
    pub(super) fn give_back(&mut self, position: u64, bytes: u64) {
        let (mut start, mut count) = (position / UNIT, units(bytes));
        self.free += count;
        if let Some((before, length)) = self.by_start.range(..start).next_back().map(|(start, length)| (*start, *length))
            && before + length == start
        {
            self.remove(before, length);
            (start, count) = (before, length + count);
        }
        if let Some(length) = self.by_start.get(&(start + count)).copied() {
            self.remove(start + count, length);
            count += length;
        }
        self.insert(start, count);
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::{Extents, UNIT};

    #[test]
    fn extents_do_not_overlap_and_join_again() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut extents = Extents::new(1000 * UNIT + 7);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20_000 {
            let bytes = random.u64(0..20 * UNIT);
            if random.bool()
                && let Some(start) = extents.take(bytes)
            {
                let end = start + bytes.max(1);
                assert!(end <= 1000 * UNIT && taken.iter().all(|(other, count)| end <= *other || other + (*count).max(1) <= start));
                taken.push((start, bytes));
            } else if !taken.is_empty() {
                let (start, bytes) = taken.swap_remove(random.usize(..taken.len()));
                extents.give_back(start, bytes);
            }
        }
        taken.into_iter().for_each(|(start, bytes)| extents.give_back(start, bytes));
        assert_eq!((extents.used(), extents.take(1000 * UNIT), extents.take(1)), (0, Some(0), None));
    }
}
