// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often pages are mapped once more where they are already: a mapping that is made twice is given up twice, each part of it by itself.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use pando_rt::memory::PageRange;

/// Counts of ranges of pages, by their start; what is not there counts nothing.
#[derive(Clone, Debug, Default)]
pub struct Layers(BTreeMap<u64, (u64, u32)>);

impl Layers {
    /// Counts a range once more.
    pub fn add(&mut self, range: PageRange) {
        for gap in self.change(range, |count| count.saturating_add(1)) {
            self.0.insert(gap.start(), (gap.end(), 1));
        }
    }

    /// Counts a range once less. Returns the parts that did not count.
    pub fn take(&mut self, range: PageRange) -> Vec<PageRange> {
        self.change(range, |count| count - 1)
    }

    /// Forgets all counts of a range.
    pub fn clear(&mut self, range: PageRange) {
        self.change(range, |_| 0);
    }

    /// How often an address counts.
    #[must_use]
    pub fn count(&self, address: u64) -> u32 {
        self.0.range(..=address).next_back().filter(|(_, (end, _))| *end > address).map_or(0, |(_, (_, count))| *count)
    }

    /// Changes the counts in a range, which are not 0. Returns the parts that do not count.
    fn change(&mut self, range: PageRange, new: impl Fn(u32) -> u32) -> Vec<PageRange> {
        self.cut(range.start());
        self.cut(range.end());
        let (mut gaps, mut at) = (Vec::new(), range.start());
        self.0.retain(|&start, (end, count)| {
            if start < range.start() || start >= range.end() {
                return true;
            }
            gaps.extend(PageRange::new(at, start));
            at = *end;
            *count = new(*count);
            *count > 0
        });
        gaps.extend(PageRange::new(at, range.end()));
        gaps
    }

    /// Cuts the range that holds an address there.
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
            let (mut layers, mut model) = (Layers::default(), [0_u32; PAGES as usize]);
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
                for (page, count) in model.iter().enumerate() {
                    prop_assert_eq!(layers.count(page as u64 * PAGE_SIZE), *count);
                }
            }
        }
    }
}
