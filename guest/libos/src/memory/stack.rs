// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stack of a program's first thread: it grows on use, up to its limit, which may change while the program runs.

use core::ops::Range;

use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::PageRange;

use super::layout::{LOW_START, Layout};
use super::regions::{Backing, Region};
use super::{AddressSpace, pages};
use crate::errno::Errno;

/// Initial size of the stack in bytes.
const START: u64 = 64 << 10;
/// No other mapping is placed this close below the stack.
const GAP: u64 = 1 << 20;
/// Minimum and maximum address space reserved for the stack, regardless of its limit, as on Linux: compilers raise theirs when they run.
const ROOM_MIN: u64 = 128 << 20;
const ROOM_MAX: u64 = 16 << 30;
/// The minimum space that a program placed below the stack must leave free.
pub(super) const RESERVED: u64 = ROOM_MIN + GAP;

/// Addresses of the program's argument and environment strings, at the top of its initial stack. The program may change their content.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    /// The arguments.
    pub arguments: Range<u64>,
    /// The environment, directly behind them.
    pub environment: Range<u64>,
}

/// The addresses of the stack.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// Reserved for the stack: no other mapping is placed here.
    room: Range<u64>,
    /// The start of its mapped part, which ends at the end of `room`.
    start: u64,
}

impl Stack {
    /// The first address after it.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.room.end
    }

    /// The address range reserved for the stack.
    #[must_use]
    pub fn room(&self) -> &Range<u64> {
        &self.room
    }

    /// The part of a range that is no stack, or with which the next program's stack may start.
    pub(super) fn initial_part(&self, range: PageRange) -> Option<PageRange> {
        if self.room.contains(&range.start()) { PageRange::new(range.start().max(self.top() - START), range.end()) } else { Some(range) }
    }

    /// The lowest address to which it may grow with this limit.
    fn lowest(&self, limit: u64) -> u64 {
        self.top().saturating_sub(limit).next_multiple_of(PAGE_SIZE).max(self.room.start + GAP)
    }
}

impl AddressSpace {
    /// Maps the stack and sets the start of the break, once the program's image is mapped up to `image_end`. Returns the stack's end.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn prepare(&mut self, image_end: u64, stack_permissions: Permissions, stack_limit: u64) -> Result<u64, Errno> {
        self.break_start = image_end + self.layout.break_gap;
        self.break_end = self.break_start;
        let room = stack_limit.clamp(ROOM_MIN, ROOM_MAX) / PAGE_SIZE * PAGE_SIZE + GAP;
        let Layout { stack_top, high, .. } = self.layout.clone();
        let areas = [LOW_START..stack_top, high];
        let range = areas.into_iter().find_map(|area| self.regions.find(room, PAGE_SIZE, area, &(0..0))).ok_or(Errno::ENOMEM)?;
        self.stack = Stack { room: range.start()..range.end(), start: range.end() - START };
        // The stack's growth must find zeros.
        self.drop_premapped(range.start(), self.stack.start)?;
        self.map(pages(self.stack.start, START)?, stack_permissions, Backing::Anonymous)?;
        Ok(range.end())
    }

    /// Grows the stack down to `address` if `limit` bytes allow it: at least to twice its size, so that faults stay few. Returns whether
    /// it did.
    pub fn grow_stack(&mut self, address: u64, limit: u64) -> bool {
        let Stack { start, .. } = self.stack;
        let lowest = self.stack.lowest(limit);
        if address >= start || address < lowest {
            return self.grows_down && self.grow_down(address, limit);
        }
        let doubled = start.saturating_sub(self.stack.top() - start);
        let end = start;
        let start = doubled.min(address / PAGE_SIZE * PAGE_SIZE).max(lowest);
        let Some(range) = PageRange::new(start, end) else { return false };
        let above = self.regions.pieces(pages(end, PAGE_SIZE).unwrap_or(range));
        let permissions = above.first().map_or(Permissions::READ_WRITE, |(_, region)| region.permissions);
        if !self.regions.is_free(range) || self.map_grown(range, Region { permissions, backing: Backing::Anonymous }).is_err() {
            return false;
        }
        self.stack.start = start;
        true
    }

    /// Grows the `MAP_GROWSDOWN` mapping above an unmapped address down to that address. Returns whether it did.
    fn grow_down(&mut self, address: u64, limit: u64) -> bool {
        let page = address / PAGE_SIZE * PAGE_SIZE;
        let start = self.regions.free_until(page);
        let Some((end, region)) = self.regions.end_of(start).filter(|(_, region)| region.backing == Backing::Downward) else {
            return false;
        };
        let Some(grown) = PageRange::new(page, start).filter(|_| end - page <= limit) else { return false };
        // It keeps the stack guard gap to mappings below it, unless they are inaccessible anyway.
        let near = PageRange::new(page.saturating_sub(GAP), page).map(|near| self.regions.pieces(near)).unwrap_or_default();
        let is_in_the_way = |region: &Region| region.permissions != Permissions::NONE && region.backing != Backing::Downward;
        !near.iter().any(|(_, region)| is_in_the_way(region)) && self.map_grown(grown, region).is_ok()
    }

    /// Extends `pages` of the stack down to its lowest possible address, for changes that include future growth. `None`: the pages are
    /// not the stack's.
    #[must_use]
    pub fn down_the_stack(&self, pages: PageRange) -> Option<PageRange> {
        let Stack { start, room, .. } = &self.stack;
        (pages.start() >= *start && pages.end() <= room.end).then(|| PageRange::new(*start, pages.end())).flatten()
    }
}
