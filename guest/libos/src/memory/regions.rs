// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the address space holds: an ordered map of regions that never overlap. Pure bookkeeping; nothing is mapped here.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::Permissions;
use pando_rt::memory::PageRange;

/// Where a region's pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nothing is mapped: address space that was reserved without any permission and never had one.
    Reserved,
    /// Zero memory.
    Anonymous,
    /// A private copy of a file's bytes.
    Copy,
}

/// A property of a stretch of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// What the application may do with it.
    pub permissions: Permissions,
    /// Where its pages come from.
    pub backing: Backing,
}

/// Regions by their start.
#[derive(Debug, Default)]
pub struct Regions(BTreeMap<u64, (u64, Region)>);

impl Regions {
    /// How many regions there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether no page of the range is in a region.
    #[must_use]
    pub fn is_free(&self, range: PageRange) -> bool {
        self.last_before(range.end()).is_none_or(|(_, end)| end <= range.start())
    }

    /// Start and end of the last region that starts before `address`.
    fn last_before(&self, address: u64) -> Option<(u64, u64)> {
        self.0.range(..address).next_back().map(|(&start, &(end, _))| (start, end))
    }

    /// The end of the region that holds `address`, and what it is.
    #[must_use]
    pub fn end_of(&self, address: u64) -> Option<(u64, Region)> {
        self.0.range(..=address).next_back().map(|(_, &found)| found).filter(|&(end, _)| end > address)
    }

    /// The start of the first region behind `address`; `address` itself if that is in a region. All ones: there is none.
    #[must_use]
    pub fn free_until(&self, address: u64) -> u64 {
        if self.end_of(address).is_some() { address } else { self.0.range(address..).next().map_or(u64::MAX, |(&start, _)| start) }
    }

    /// The parts of the range that are in regions, in order.
    #[must_use]
    pub fn pieces(&self, range: PageRange) -> Vec<(PageRange, Region)> {
        let first = self.last_before(range.start()).map_or(range.start(), |(start, _)| start);
        let regions = self.0.range(first..range.end());
        let cut = |(&start, &(end, region)): (&u64, &(u64, Region))| {
            PageRange::new(start.max(range.start()), end.min(range.end())).map(|part| (part, region))
        };
        regions.filter_map(cut).collect()
    }

    /// Whether every page of the range is in a region.
    #[must_use]
    pub fn covers(&self, range: PageRange) -> bool {
        self.pieces(range).iter().map(|(part, _)| part.bytes()).sum::<u64>() == range.bytes()
    }

    /// Takes the range out of all regions. Returns what was there.
    pub fn remove(&mut self, range: PageRange) -> Vec<(PageRange, Region)> {
        let pieces = self.pieces(range);
        for (part, region) in &pieces {
            // A piece is in exactly one region, which starts at or before it.
            let Some((start, end)) = self.last_before(part.start() + 1) else { continue };
            self.0.remove(&start);
            if start < part.start() {
                self.0.insert(start, (part.start(), *region));
            }
            if part.end() < end {
                self.0.insert(part.end(), (end, *region));
            }
        }
        pieces
    }

    /// Puts a region over the range, in place of what was there. Joins it with equal neighbours.
    pub fn put(&mut self, range: PageRange, region: Region) {
        self.remove(range);
        let (mut start, mut end) = (range.start(), range.end());
        if let Some((&before, &(before_end, other))) = self.0.range(..start).next_back()
            && before_end == start
            && other == region
        {
            self.0.remove(&before);
            start = before;
        }
        if let Some(&(after_end, other)) = self.0.get(&end)
            && other == region
        {
            self.0.remove(&end);
            end = after_end;
        }
        self.0.insert(start, (end, region));
    }

    /// Finds the highest free place for `bytes` bytes at a multiple of `alignment` inside `area`, outside `avoid`.
    #[must_use]
    pub fn find(&self, bytes: u64, alignment: u64, area: Range<u64>, avoid: &Range<u64>) -> Option<PageRange> {
        let mut ceiling = area.end;
        loop {
            let start = ceiling.checked_sub(bytes)? / alignment * alignment;
            if start < area.start {
                return None;
            }
            let end = start + bytes;
            let blocking_region = self.last_before(end).filter(|&(_, region_end)| region_end > start).map(|(region, _)| region);
            let blocking_avoid = Some(avoid.start).filter(|_| avoid.start < end && avoid.end > start);
            match blocking_region.max(blocking_avoid) {
                Some(blocker) => ceiling = blocker,
                None => return PageRange::new(start, end),
            }
        }
    }
}
