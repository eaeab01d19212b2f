// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy-on-write in clusters: how many pages around a written one are copied with it.
//!
//! A fault costs as much as copying many pages, but a copy of a page that is never written wastes memory. So the cluster grows where
//! faults are dense, as readahead does. The first fault in a group of 64 pages copies one page, the second eight, the third the group. The
//! third fault in a third group of a large page's span copies the span. In the spans next to it, the first fault in each group counts as
//! the third.

use super::page::CellPage;
use crate::limits::CLUSTER_SPANS;
use crate::memory::tree::span;
use pando_abi::SpaceIndex;
use std::ops::Range;

/// Pages of a group.
const GROUP: u64 = 64;
/// Pages of the smallest cluster that is larger than a page.
const SMALL_CLUSTER: u64 = 8;
/// Groups of a span.
const GROUPS: usize = 8;
/// Faults in a group after which it is copied as a whole.
const DENSE_FAULTS: u8 = 3;
/// Groups copied as a whole after which the span is copied as a whole.
const DENSE_GROUPS: usize = 3;

/// The write faults on shared pages of a large page's span, by group.
#[derive(Clone, Copy, Debug)]
struct SpanFaults {
    /// Its space, its slot and the number of the large page.
    key: (u32, u32, u64),
    /// Faults in each group.
    faults: [u8; GROUPS],
}

impl SpanFaults {
    /// Whether a fault in it copies the whole span.
    fn is_dense(&self) -> bool {
        self.faults.iter().filter(|faults| **faults >= DENSE_FAULTS).count() >= DENSE_GROUPS
    }
}

/// The spans in which a cell has recently written shared pages, the most recent first.
#[derive(Clone, Debug, Default)]
pub(in crate::memory) struct CopyClusters(Vec<SpanFaults>);

impl CopyClusters {
    /// Counts a write fault on a shared page. Returns the pages to copy, an aligned range that contains it. O([`CLUSTER_SPANS`]).
    pub(in crate::memory) fn after_fault(&mut self, page: CellPage) -> Range<u64> {
        let number = page.at.number;
        let (space, slot, large) = page.large();
        let mut counts = self.take((space, slot, large));
        let is_neighbour =
            |other: &SpanFaults| [large.wrapping_sub(1), large + 1].contains(&other.key.2) && (other.key.0, other.key.1) == (space, slot);
        let follows_dense = self.0.iter().any(|other| is_neighbour(other) && other.is_dense());
        let group = (number % span(2) / GROUP) as usize;
        counts.faults[group] = if follows_dense { DENSE_FAULTS } else { counts.faults[group].saturating_add(1) };
        let size = match counts.faults[group] {
            _ if counts.is_dense() => span(2),
            DENSE_FAULTS.. => GROUP,
            2 => SMALL_CLUSTER,
            _ => 1,
        };
        self.0.insert(0, counts);
        let start = number - number % size;
        start..start + size
    }

    /// Forgets the spans of a space that is destroyed or cloned.
    pub(in crate::memory) fn forget(&mut self, space: SpaceIndex) {
        self.0.retain(|counts| counts.key.0 != space.0);
    }

    /// Takes a span out of the list, or creates one and drops the least recently written one if there are too many.
    fn take(&mut self, key: (u32, u32, u64)) -> SpanFaults {
        match self.0.iter().position(|counts| counts.key == key) {
            Some(position) => self.0.remove(position),
            None => {
                self.0.truncate(CLUSTER_SPANS - 1);
                SpanFaults { key, faults: [0; GROUPS] }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CopyClusters;
    use crate::limits::CLUSTER_SPANS;
    use crate::memory::prefetch::page::{CellPage, VirtualPage};
    use std::collections::BTreeSet;

    fn page(number: u64) -> CellPage {
        CellPage { space: 1, at: VirtualPage { slot: 0, number } }
    }

    /// Writes pages in turn. Returns the number of faults and of copied pages.
    fn write(pages: impl IntoIterator<Item = u64>) -> (usize, usize) {
        let (mut clusters, mut copied, mut faults) = (CopyClusters::default(), BTreeSet::new(), 0);
        for number in pages {
            if !copied.contains(&number) {
                let cluster = clusters.after_fault(page(number));
                assert!(cluster.contains(&number) && cluster.start.is_multiple_of(cluster.end - cluster.start));
                copied.extend(cluster);
                faults += 1;
            }
        }
        (faults, copied.len())
    }

    #[test]
    fn clusters_grow_where_writes_are_dense() {
        assert_eq!(write(0..512), (9, 512), "in order");
        assert_eq!(write(0..8 * 512), (9 + 7 * 3, 8 * 512), "the next spans begin with a group");
        assert_eq!(write((0..8 * 512).rev()), (9 + 7 * 3, 8 * 512), "backwards");
        let (faults, copied) = write((0..4 * 512).map(|number| number * 769 % (4 * 512)));
        assert!(faults <= 100 && copied == 4 * 512, "in disorder: {faults}, {copied}");
    }

    #[test]
    fn sparse_writes_copy_little() {
        assert_eq!(write((0..100).map(|number| number * 64)), (100, 100), "a page of each group");
        let (faults, copied) = write((0..100).flat_map(|number| [number * 64, number * 64 + 32]));
        assert_eq!((faults, copied), (200, 100 * 9), "two pages of each group");
        assert_eq!(write((0..200).map(|number| number % 2 * 512 * 100 + number / 2 * 512)).1, 200);
    }

    #[test]
    fn the_list_of_spans_is_bounded_and_spaces_are_distinct() {
        let mut clusters = CopyClusters::default();
        for number in 0..10_000 {
            let _ = clusters.after_fault(page(number * 512));
            assert!(clusters.0.len() <= CLUSTER_SPANS);
        }
        let mut clusters = CopyClusters::default();
        for space in 0..10 {
            assert_eq!(clusters.after_fault(CellPage { space, ..page(7) }), 7..8);
        }
    }
}
