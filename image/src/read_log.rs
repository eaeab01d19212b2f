// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of host files that were read, with checksums to detect later changes.
//!
//! A file's change time moves with its links, owner and mode as well as with its content. If only that has moved, the parts that were
//! read before are read again and compared. If they are the same, the two versions are indistinguishable, and the image continues with
//! the later.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
};

use crate::{
    BLOCK_SIZE,
    block::BLOCK,
    store::checksum,
    tables::Extent,
    version::{ChangeTime, Version},
};

/// Maximal number of ranges per image, some 50 bytes each. Programs read most files sequentially.
const RANGES_MAX: usize = 1 << 16;
/// Bytes per comparison.
const COMPARED: usize = 1 << 20;

/// The ranges that were read of an image's extents.
#[derive(Debug, Default)]
pub(crate) struct ReadLog {
    extents: HashMap<u32, ExtentLog>,
    ranges: usize,
}

/// The ranges that were read of an extent.
#[derive(Debug)]
struct ExtentLog {
    /// The file's change time at which the digests were valid.
    changed: ChangeTime,
    /// Blocks of the image: the ends of ranges by their starts.
    ranges: BTreeMap<u64, u64>,
    /// The digests of all of these blocks.
    sum: u64,
    /// Ranges beyond the limit were dropped.
    overflowed: bool,
}

impl ReadLog {
    /// The change time that an extent's file must have.
    pub(crate) fn changed(&self, extent: &Extent, version: &Version) -> ChangeTime {
        self.extents.get(&extent.first).map_or(version.changed, |log| log.changed)
    }

    /// The first blocks of the extents that were read.
    pub(crate) fn extents(&self) -> impl Iterator<Item = u32> {
        self.extents.keys().copied()
    }

    /// Records a read of an extent from a block on, at this change time.
    pub(crate) fn add(&mut self, extent: &Extent, first: u64, bytes: &[u8], changed: ChangeTime) {
        let fresh = ExtentLog { changed, ranges: BTreeMap::new(), sum: 0, overflowed: false };
        let log = self.extents.entry(extent.first).or_insert(fresh);
        let before = log.ranges.len();
        for gap in log.gaps(first..first + (bytes.len() as u64).div_ceil(BLOCK_SIZE)) {
            let start = ((gap.start - first) * BLOCK_SIZE) as usize;
            let end = (((gap.end - first) * BLOCK_SIZE) as usize).min(bytes.len());
            log.sum = log.sum.wrapping_add(sum(gap.start, &bytes[start..end]));
            log.join(gap);
        }
        self.ranges = self.ranges + log.ranges.len() - before.min(self.ranges);
        if self.ranges > RANGES_MAX {
            self.ranges -= log.ranges.len();
            log.ranges.clear();
            log.overflowed = true;
        }
    }

    /// Whether all recorded parts of an extent are unchanged in its file.
    pub(crate) fn is_same(&self, extent: &Extent, file: &File) -> std::io::Result<bool> {
        let Some(log) = self.extents.get(&extent.first) else { return Ok(true) };
        let mut found = 0u64;
        let mut buffer = vec![0; COMPARED];
        for (&start, &end) in &log.ranges {
            let skipped = (start - u64::from(extent.first)) * BLOCK_SIZE;
            let mut left = ((end - start) * BLOCK_SIZE).min(extent.size.saturating_sub(skipped));
            let mut block = start;
            while left > 0 {
                let piece = &mut buffer[..left.min(COMPARED as u64) as usize];
                file.read_exact_at(piece, extent.offset.saturating_add((block - u64::from(extent.first)) * BLOCK_SIZE))?;
                found = found.wrapping_add(sum(block, piece));
                left -= piece.len() as u64;
                block += (piece.len() / BLOCK) as u64;
            }
        }
        Ok(!log.overflowed && found == log.sum)
    }

    /// Accepts a later change time.
    pub(crate) fn accept(&mut self, extent: &Extent, changed: ChangeTime) {
        let fresh = ExtentLog { changed, ranges: BTreeMap::new(), sum: 0, overflowed: false };
        self.extents.entry(extent.first).or_insert(fresh).changed = changed;
    }
}

impl ExtentLog {
    /// The parts of a range that are not recorded yet.
    fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = self.ranges.range(..=at).next_back();
        let known = before.into_iter().chain(self.ranges.range(at + 1..range.end));
        for (&start, &end) in known {
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end && !self.overflowed {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Records a new range, merged with its neighbours.
    fn join(&mut self, range: Range<u64>) {
        let before = self.ranges.range(..=range.start).next_back().filter(|(_, end)| **end == range.start);
        let start = before.map_or(range.start, |(start, _)| *start);
        let end = self.ranges.remove(&range.end).unwrap_or(range.end);
        self.ranges.insert(start, end);
    }
}

/// The sum of the digests of blocks, independent of their order.
fn sum(first: u64, bytes: &[u8]) -> u64 {
    let digest =
        |(block, bytes): (u64, &[u8])| (u64::from(checksum(bytes)) + 1).wrapping_mul((2 * block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (first..).zip(bytes.chunks(BLOCK)).map(digest).fold(0, u64::wrapping_add)
}
