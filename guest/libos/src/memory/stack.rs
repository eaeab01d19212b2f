// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stack of a program's first thread: it grows as it is used, up to its limit, which may change while the program runs.

use core::ops::Range;

use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::PageRange;

use super::layout::{LOW_START, Layout};
use super::regions::{Backing, Region};
use super::{AddressSpace, pages};
use crate::errno::Errno;

/// Bytes of the stack at the start.
const START: u64 = 64 << 10;
/// Nothing else is put this close below the stack.
const GAP: u64 = 1 << 20;
/// Room that the stack has at least, whatever its limit, as on Linux: compilers raise theirs when they run. And at most.
const ROOM_LEAST: u64 = 128 << 20;
const ROOM_MOST: u64 = 16 << 30;
/// The least and all that a program which is put below the stack must leave free.
pub(super) const RESERVED: u64 = ROOM_LEAST + GAP;

/// Where the strings that a program was given lie, at the top of its first stack: it may change what stands there.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    /// The arguments.
    pub arguments: Range<u64>,
    /// The environment, right behind them.
    pub environment: Range<u64>,
}

/// Where the stack lies.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// Where nothing else is put.
    room: Range<u64>,
    /// What it has, up to its room's end.
    start: u64,
}

impl Stack {
    /// The first address after it.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.room.end
    }

    /// Where nothing but the stack is put.
    #[must_use]
    pub fn room(&self) -> &Range<u64> {
        &self.room
    }

    /// The address that it may grow to with this limit.
    fn lowest(&self, limit: u64) -> u64 {
        self.top().saturating_sub(limit).next_multiple_of(PAGE_SIZE).max(self.room.start + GAP)
    }
}

impl AddressSpace {
    /// Makes the stack and sets the start of the break, once the program's image is mapped up to `image_end`. Returns the stack's end.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn prepare(&mut self, image_end: u64, stack_permissions: Permissions, stack_limit: u64) -> Result<u64, Errno> {
        self.break_start = image_end + self.layout.break_gap;
        self.break_end = self.break_start;
        let room = stack_limit.clamp(ROOM_LEAST, ROOM_MOST) / PAGE_SIZE * PAGE_SIZE + GAP;
        let Layout { stack_top, high, .. } = self.layout.clone();
        let areas = [LOW_START..stack_top, high];
        let place = areas.into_iter().find_map(|area| self.regions.find(room, PAGE_SIZE, area, &(0..0))).ok_or(Errno::ENOMEM)?;
        self.stack = Stack { room: place.start()..place.end(), start: place.end() - START };
        self.map(pages(self.stack.start, START)?, stack_permissions, Backing::Anonymous)?;
        Ok(place.end())
    }

    /// Grows the stack down to `address` if it may grow there, up to `limit` bytes: at least to twice its size, so that faults stay few. Says whether it did.
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
        if !self.regions.is_free(range) || self.map(range, permissions, Backing::Anonymous).is_err() {
            return false;
        }
        self.stack.start = start;
        true
    }

    /// Grows the mapping above an address that nothing is mapped at down to it, if it is one that grows. Says whether it did.
    fn grow_down(&mut self, address: u64, limit: u64) -> bool {
        let page = address / PAGE_SIZE * PAGE_SIZE;
        let start = self.regions.free_until(page);
        let Some((end, region)) = self.regions.end_of(start).filter(|(_, region)| region.backing == Backing::Downward) else {
            return false;
        };
        let Some(grown) = PageRange::new(page, start).filter(|_| end - page <= limit) else { return false };
        // It keeps its distance from what lies below, unless that is out of reach anyway.
        let near = PageRange::new(page.saturating_sub(GAP), page).map(|near| self.regions.pieces(near)).unwrap_or_default();
        let is_in_the_way = |region: &Region| region.permissions != Permissions::NONE && region.backing != Backing::Downward;
        !near.iter().any(|(_, region)| is_in_the_way(region)) && self.map(grown, region.permissions, region.backing).is_ok()
    }

    /// The stack from a page of it on, to which a change is to apply that goes on to where it may grow. `None`: the pages are not the stack's.
    #[must_use]
    pub fn down_the_stack(&self, pages: PageRange) -> Option<PageRange> {
        let Stack { start, room, .. } = &self.stack;
        (pages.start() >= *start && pages.end() <= room.end).then(|| PageRange::new(*start, pages.end())).flatten()
    }
}
