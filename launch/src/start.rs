// SPDX-License-Identifier: MIT OR Apache-2.0
//! The blocks of its volumes that a program accesses at its start: learned at one start, and read in advance at the next.

use crate::root::VolumeDisks;
use crate::{LaunchError, Root};
use pando_abi::layout::{SLOT_SIZE, VOLUME_SLOTS, volume};
use pando_abi::{BlockNumber, PAGE_SIZE};
use pando_kernel::{Kernel, StartTrace};
use std::ops::Range;

/// Bytes of the spans that one table of pages covers.
const SPAN: u64 = 512 * PAGE_SIZE;

/// The blocks of one volume that a program accesses at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStart {
    /// Blocks, in order; no two ranges touch.
    pub blocks: Vec<Range<u32>>,
    /// Spans of 2 MiB in which the libOS reads blocks, by their numbers, in order.
    pub spans: Vec<u32>,
}

impl VolumeStart {
    /// The start with these blocks and spans, in any order.
    #[must_use]
    pub fn new(mut blocks: Vec<Range<u32>>, mut spans: Vec<u32>) -> VolumeStart {
        blocks.retain(|range| !range.is_empty());
        blocks.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u32>> = Vec::with_capacity(blocks.len());
        for range in blocks {
            match joined.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => joined.push(range),
            }
        }
        spans.sort_unstable();
        spans.dedup();
        VolumeStart { blocks: joined, spans }
    }

    /// This start and another one together.
    #[must_use]
    pub fn union(&self, other: &VolumeStart) -> VolumeStart {
        VolumeStart::new([&self.blocks[..], &other.blocks].concat(), [&self.spans[..], &other.spans].concat())
    }

    /// Number of blocks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.blocks.iter().map(|range| u64::from(range.end) - u64::from(range.start)).sum()
    }

    /// The blocks and spans that this start and another one have in common.
    #[must_use]
    pub fn intersection(&self, other: &VolumeStart) -> VolumeStart {
        let (mut blocks, mut next) = (Vec::new(), other.blocks.iter().peekable());
        for range in &self.blocks {
            while let Some(there) = next.peek() {
                blocks.push(range.start.max(there.start)..range.end.min(there.end));
                if there.end > range.end {
                    break;
                }
                next.next();
            }
        }
        let spans = self.spans.iter().copied().filter(|span| other.spans.binary_search(span).is_ok()).collect();
        VolumeStart::new(blocks, spans)
    }

    /// Whether it accesses nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.spans.is_empty()
    }
}

/// The blocks that a cell has accessed of each of its volumes, if its start was learned.
#[must_use]
pub fn traced_start(trace: &StartTrace) -> Vec<VolumeStart> {
    let mut starts = vec![(Vec::new(), Vec::new()); VOLUME_SLOTS];
    for (disk, blocks) in &trace.blocks {
        if let Some((reads, _)) = starts.get_mut(disk.0 as usize) {
            reads.push(blocks.start.0..blocks.end.0);
        }
    }
    for address in &trace.spans {
        let slot = address.checked_sub(volume(0)).map(|offset| (offset / SLOT_SIZE, (offset % SLOT_SIZE / SPAN) as u32));
        if let Some((slot, span)) = slot
            && let Some((_, spans)) = starts.get_mut(slot as usize)
        {
            spans.push(span);
        }
    }
    starts.into_iter().map(|(blocks, spans)| VolumeStart::new(blocks, spans)).collect()
}

impl VolumeDisks {
    /// Reads into memory what a program accessed of its volumes at an earlier start. It is a hint: blocks that do not exist or cannot be
    /// read are left out, and the others are compared with the host's files as at any read.
    pub fn prefetch(&self, kernel: &Kernel, starts: &[VolumeStart]) {
        for (disk, start) in self.disks.iter().zip(starts) {
            start.blocks.iter().for_each(|range| kernel.prefetch_blocks(*disk, BlockNumber(range.start)..BlockNumber(range.end)));
        }
    }
}

impl Root {
    /// Makes blocks present that were read in advance, so that the libOS of each clone reads them without a fault.
    ///
    /// # Errors
    /// The root does not live.
    pub fn map_prefetched(&self, kernel: &Kernel, starts: &[VolumeStart]) -> Result<(), LaunchError> {
        for (slot, (shown, start)) in self.volumes.iter().zip(starts).enumerate() {
            let spans = start.spans.iter().map(|span| u64::from(*span) * SPAN).filter(|offset| *offset < shown.bytes());
            kernel.map_resident(self.cell, spans.map(|offset| volume(slot) + offset))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::VolumeStart;

    #[test]
    fn ranges_are_sorted_and_joined() {
        let start = VolumeStart::new(vec![7..9, 1..3, 3..4, 8..12, 5..5], vec![4, 1, 4]);
        assert_eq!(start, VolumeStart { blocks: vec![1..4, 7..12], spans: vec![1, 4] });
        let other = VolumeStart::new(vec![4..7, 20..21], vec![2]);
        assert_eq!(start.union(&other), VolumeStart { blocks: vec![1..12, 20..21], spans: vec![1, 2, 4] });
        assert_eq!(start.intersection(&other), VolumeStart::default());
        let other = VolumeStart::new(vec![0..2, 3..5, 6..8, 9..10, 11..30], vec![4, 5]);
        let common = VolumeStart { blocks: vec![1..2, 3..4, 7..8, 9..10, 11..12], spans: vec![4] };
        assert_eq!((start.intersection(&other), other.intersection(&start)), (common.clone(), common));
        assert_eq!((start.count(), start.is_empty(), VolumeStart::default().is_empty()), (8, false, true));
    }
}
