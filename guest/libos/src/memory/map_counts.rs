// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts how often pages are mapped again where they already are. A mapping that is made twice is unmapped twice, each of its parts
//! independently.
//!
//! A change walks the ranges that it touches, and joins adjacent ranges of equal count.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use pando_rt::memory::PageRange;

/// Counts of page ranges, by their start; absent ranges count 0.
#[derive(Clone, Debug, Default)]
pub struct MapCounts(BTreeMap<u64, (u64, u32)>);

impl MapCounts {
    /// The number of ranges with a count.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.0.len()
    }

    /// Increments the count of a range.
    pub fn add(&mut self, range: PageRange) {
        for gap in self.change(range, |count| count.saturating_add(1)) {
            self.0.insert(gap.start(), (gap.end(), 1));
        }
        self.join(range);
    }

    /// Decrements the count of a range. Returns the parts whose count was 0.
    pub fn take(&mut self, range: PageRange) -> Vec<PageRange> {
        let gaps = self.change(range, |count| count - 1);
        self.join(range);
        gaps
    }

    /// Removes all counts of a range.
    pub fn clear(&mut self, range: PageRange) {
        self.change(range, |_| 0);
    }

    /// The count of an address.
    #[must_use]
    pub fn count(&self, address: u64) -> u32 {
        self.0.range(..=address).next_back().filter(|(_, (end, _))| *end > address).map_or(0, |(_, (_, count))| *count)
    }

    /// Changes the nonzero counts in a range. Returns the parts whose count is 0.
    fn change(&mut self, range: PageRange, new: impl Fn(u32) -> u32) -> Vec<PageRange> {
        self.cut(range.start());
        self.cut(range.end());
        let (mut gaps, mut at) = (Vec::new(), range.start());
        let touched: Vec<u64> = self.0.range(range.start()..range.end()).map(|(&start, _)| start).collect();
        for start in touched {
            let Some((end, count)) = self.0.get_mut(&start) else { continue };
            gaps.extend(PageRange::new(at, start));
            at = *end;
            *count = new(*count);
            if *count == 0 {
                self.0.remove(&start);
            }
        }
        gaps.extend(PageRange::new(at, range.end()));
        gaps
    }

    /// Joins adjacent ranges of equal count, from the last one before a range to the first one behind it.
    fn join(&mut self, range: PageRange) {
        let first = self.0.range(..range.start()).next_back().map_or(range.start(), |(&start, _)| start);
        let near: Vec<(u64, (u64, u32))> = self.0.range(first..=range.end()).map(|(&start, &other)| (start, other)).collect();
        let mut last: Option<(u64, (u64, u32))> = None;
        for (start, (end, count)) in near {
            match &mut last {
                Some((joined, (before, same))) if *before == start && *same == count => {
                    self.0.remove(&start);
                    *before = end;
                    self.0.insert(*joined, (end, count));
                }
                _ => last = Some((start, (end, count))),
            }
        }
    }

    /// Splits the range that contains an address at that address.
    fn cut(&mut self, address: u64) {
        if let Some((_, (end, count))) = self.0.range_mut(..address).next_back()
            && *end > address
        {
            let rest = (*end, *count);
            *end = address;
            self.0.insert(address, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_abi::PAGE_SIZE;
    use proptest::prelude::*;

    const PAGES: u64 = 32;

    proptest! {
        #[test]
        fn counts_are_those_of_each_page(steps in prop::collection::vec((0..PAGES, 1..PAGES, 0..4_u32), 1..60)) {
            let (mut layers, mut model) = (MapCounts::default(), [0_u32; PAGES as usize]);
            for (start, length, kind) in steps {
                let end = (start + length).min(PAGES);
                let range = PageRange::new(start * PAGE_SIZE, end * PAGE_SIZE).expect("at least a page");
                let part = &mut model[start as usize..end as usize];
                match kind {
                    0 | 1 => {
                        layers.add(range);
                        part.iter_mut().for_each(|count| *count += 1);
                    }
                    2 => {
                        let free: Vec<u64> = layers.take(range).iter().flat_map(|gap| gap.start() / PAGE_SIZE..gap.end() / PAGE_SIZE).collect();
                        let expected: Vec<u64> = (start..end).filter(|page| part[(page - start) as usize] == 0).collect();
                        prop_assert_eq!(free, expected);
                        part.iter_mut().for_each(|count| *count = count.saturating_sub(1));
                    }
                    _ => {
                        layers.clear(range);
                        part.fill(0);
                    }
                }
                let (mut ranges, mut before) = (0, 0);
                for count in model {
                    ranges += usize::from(count != before && count != 0);
                    before = count;
                }
                prop_assert_eq!(layers.ranges(), ranges);
                for (page, count) in model.iter().enumerate() {
                    prop_assert_eq!(layers.count(page as u64 * PAGE_SIZE), *count);
                }
            }
        }
    }
}
