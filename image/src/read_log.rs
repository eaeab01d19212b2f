// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of host files that were read, with checksums that show later whether they are still the same.
//!
//! A file's change time moves with its links, owner and mode as well as with its content. When only that has moved, what was read of the file is
//! read again and compared: if it is the same, nobody can tell the two states apart, and the image goes on with the later one.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
};

use crate::{
    format::{BLOCK, BLOCK_SIZE},
    store::checksum,
    tables::{ChangeTime, Extent, Version},
};

/// Ranges that are remembered of an image, some 50 bytes each. Programs read most files from their start to their end.
const RANGES_MAX: usize = 1 << 16;
/// Bytes that are compared at a time.
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
    /// The change time with which that was so.
    changed: ChangeTime,
    /// Blocks of the image: the ends of ranges by their starts.
    ranges: BTreeMap<u64, u64>,
    /// The digests of all of these blocks.
    sum: u64,
    /// There were more ranges than are remembered.
    overflowed: bool,
}

impl ReadLog {
    /// The change time that the file of an extent has to have.
    pub(crate) fn changed(&self, extent: &Extent, version: &Version) -> ChangeTime {
        self.extents.get(&extent.first).map_or(version.changed, |log| log.changed)
    }

    /// Takes note of what was read of an extent from a block on, with this change time.
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

    /// Whether all that was read of an extent is still in its file.
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

    /// Goes on with a later change time.
    pub(crate) fn accept(&mut self, extent: &Extent, changed: ChangeTime) {
        let fresh = ExtentLog { changed, ranges: BTreeMap::new(), sum: 0, overflowed: false };
        self.extents.entry(extent.first).or_insert(fresh).changed = changed;
    }
}

impl ExtentLog {
    /// The parts of a range that are not remembered yet.
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

    /// Adds a range that is not remembered yet, and joins it with its neighbours.
    fn join(&mut self, range: Range<u64>) {
        let before = self.ranges.range(..=range.start).next_back().filter(|(_, end)| **end == range.start);
        let start = before.map_or(range.start, |(start, _)| *start);
        let end = self.ranges.remove(&range.end).unwrap_or(range.end);
        self.ranges.insert(start, end);
    }
}

/// The digests of blocks, which add up in any order.
fn sum(first: u64, bytes: &[u8]) -> u64 {
    let digest =
        |(block, bytes): (u64, &[u8])| (u64::from(checksum(bytes)) + 1).wrapping_mul((2 * block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (first..).zip(bytes.chunks(BLOCK)).map(digest).fold(0, u64::wrapping_add)
}
