// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings that grow in place. Programs grow an array a page at a time, and each call to the kernel costs an exit, so memory is mapped
//! ahead.
//!
//! The memory ahead is zero and belongs to no region. A program can touch it without a fault, which only a faulty program does.

use pando_abi::{LARGE_PAGE_SIZE, PAGE_SIZE};
use pando_rt::memory::PageRange;

use super::AddressSpace;
use super::regions::{Backing, Region};
use crate::errno::Errno;

/// Minimum number of bytes mapped ahead: the initial heap size of a C library.
const GROWTH_MIN: u64 = 36 * PAGE_SIZE;

impl AddressSpace {
    /// Maps memory for the free pages by which a region of `bytes` bytes grows.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn extend(&mut self, bytes: u64, grown: PageRange, region: Region) -> Result<(), Errno> {
        if region.backing != Backing::Anonymous || !region.permissions.readable() {
            return self.map(grown, region.permissions, region.backing);
        }
        let ready =
            self.premapped.end_of(grown.start()).filter(|(_, premapped)| *premapped == region).map_or(grown.start(), |(end, _)| end);
        if let Some(missing) = PageRange::new(ready, grown.end()) {
            let end = premapped_end(bytes + grown.bytes(), grown.end(), self.room_from(grown.end()));
            let longer = PageRange::new(ready, end).unwrap_or(missing);
            // If there is not enough memory for more, there may be enough for the request itself.
            if self.make(longer, region.permissions, region.backing).is_err() {
                self.make(missing, region.permissions, region.backing)?;
            } else if let Some(premapped) = PageRange::new(grown.end(), end) {
                self.premapped.put(premapped, region);
            }
        }
        self.premapped.remove(grown);
        self.regions.put(grown, region);
        Ok(())
    }
}

/// The new end of a growing region's memory, for `bytes` bytes up to `end` and free space up to `limit`: a quarter of its size further.
/// From 2 MiB on it is the end of a large page, which is not allocated before it is touched.
fn premapped_end(bytes: u64, end: u64, limit: u64) -> u64 {
    let wanted = end.saturating_add((bytes / 4).max(GROWTH_MIN));
    let unit = if bytes >= LARGE_PAGE_SIZE { LARGE_PAGE_SIZE } else { PAGE_SIZE };
    wanted.checked_next_multiple_of(unit).unwrap_or(end).min(limit).max(end)
}

#[cfg(test)]
mod tests {
    use super::{GROWTH_MIN, LARGE_PAGE_SIZE, PAGE_SIZE, premapped_end};

    #[test]
    fn growth_steps_scale_with_the_size() {
        let start = 0x1000_0000;
        let (mut end, mut pieces) = (start, 0);
        while end < start + (64 << 20) {
            let next = premapped_end(end - start + PAGE_SIZE, end + PAGE_SIZE, u64::MAX);
            assert!(next > end + PAGE_SIZE && next <= end + ((end - start) / 4).max(GROWTH_MIN) + 2 * LARGE_PAGE_SIZE);
            (end, pieces) = (next, pieces + 1);
        }
        assert!(pieces < 32, "{pieces} calls for 64 MiB");
    }

    #[test]
    fn nothing_is_mapped_where_there_is_no_room() {
        assert_eq!(premapped_end(1 << 20, 0x40_0000, 0x40_0000), 0x40_0000);
        assert_eq!(premapped_end(1 << 20, 0x40_0000, 0x40_1000), 0x40_1000);
        assert_eq!(premapped_end(u64::MAX, u64::MAX - 0xfff, u64::MAX), u64::MAX - 0xfff);
    }
}
