// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans the mapping of anonymous memory: ahead of use, because a fault costs more than a hundred pages.
//!
//! Whole 2 MiB blocks become large pages, allocated at the first touch of each; the rest is allocated at once. Only stacks are populated
//! page by page.

use pando_abi::{LARGE_PAGE_SIZE, MapFlags, Permissions};
use pando_rt::memory::PageRange;

use super::regions::Backing;

/// The calls that map the range: up to three, in order of address.
pub fn plan(range: PageRange, permissions: Permissions, backing: Backing) -> impl Iterator<Item = (PageRange, MapFlags)> {
    let core_start = range.start().next_multiple_of(LARGE_PAGE_SIZE).min(range.end());
    let core_end = (range.end() / LARGE_PAGE_SIZE * LARGE_PAGE_SIZE).max(core_start);
    let small = MapFlags::eager(permissions);
    let large = MapFlags { permissions, eager: false, large: true };
    let parts = if matches!(backing, Backing::Stack | Backing::Downward) {
        [(range.start(), range.end(), MapFlags::lazy(permissions)), (0, 0, large), (0, 0, small)]
    } else if core_start == core_end {
        [(range.start(), range.end(), small), (0, 0, large), (0, 0, small)]
    } else {
        [(range.start(), core_start, small), (core_start, core_end, large), (core_end, range.end(), small)]
    };
    parts.into_iter().filter_map(|(start, end, flags)| PageRange::new(start, end).map(|part| (part, flags)))
}
