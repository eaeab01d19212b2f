// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's memory: bookkeeping of regions, and the calls that make it so.
//!
//! The kernel holds pages, this holds intentions: what was reserved, where the break is, how far the stack may grow.
//!
//! # Where things lie
//! Small programs fit into the first GiB, so that all their private pages hang on few page tables: the image where it was linked, the break
//! behind it, the stack below `STACK_TOP`, small mappings above the stack in its own 2 MiB and then below it. Large mappings lie
//! high. Nothing is randomised: a cell's neighbours cannot reach its memory anyway.

pub mod backing;
pub mod growth;
pub mod patching;
pub mod regions;
pub mod remap;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::{LARGE_PAGE_SIZE, PAGE_SIZE, Permissions};
use pando_rt::memory::{self, PageRange};
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::patch::Patches;
use backing::plan;
use patching::Content;
use regions::{Backing, Region, Regions};

/// Nothing is mapped below this address, so that null pointers fault.
pub const LOWEST: u64 = 0x1_0000;
/// Where position-independent programs are loaded: where the others are linked.
pub const DYNAMIC_BASE: u64 = 0x40_0000;
/// Small mappings lie here; below it there is room for the break.
const LOW_AREA: Range<u64> = 0x1000_0000..0x4000_0000;
/// Mappings up to this size lie low.
const SMALL: u64 = 32 << 20;
/// Everything else.
const HIGH_AREA: Range<u64> = 0x1_0000_0000..user::END - LARGE_PAGE_SIZE;
/// The first address after the stack: half of the last 2 MiB of the low area is left to small mappings.
const STACK_TOP: u64 = LOW_AREA.end - LARGE_PAGE_SIZE / 2;
/// Bytes that the stack may grow to.
pub const STACK_LIMIT: u64 = 8 << 20;
/// Bytes of the stack at the start.
const STACK_START: u64 = 64 << 10;
/// Nothing else is put this close below the stack.
const STACK_GAP: u64 = 1 << 20;
/// Regions that a program may have, as Linux counts mappings.
const REGIONS_MAX: usize = 65_530;
/// Up to this size a shrinking break clears memory rather than giving it back.
const CLEAR_MAX: u64 = 1 << 20;

/// The application's memory.
#[derive(Debug, Default)]
pub struct AddressSpace {
    regions: Regions,
    /// What is mapped behind regions that grew, for them to grow into; to everyone else it is free.
    ahead: Regions,
    /// Start of the break's area.
    break_start: u64,
    /// The break itself.
    break_end: u64,
    /// What the stack has: it grows down from here as it is used, to `stack_top - STACK_LIMIT`.
    stack_start: u64,
    stack_top: u64,
    /// What was patched in it.
    pub patches: Patches,
}

/// The pages that hold `length` bytes from `start`, a page's start.
///
/// # Errors
/// `EINVAL`: not page aligned, empty, or not where applications have memory.
pub fn pages(start: u64, length: u64) -> Result<PageRange, Errno> {
    let end = length.checked_next_multiple_of(PAGE_SIZE).and_then(|length| start.checked_add(length));
    end.and_then(|end| PageRange::new(start, end)).ok_or(Errno::EINVAL)
}

impl AddressSpace {
    /// Maps anonymous memory over whatever is there.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map(&mut self, range: PageRange, permissions: Permissions, backing: Backing) -> Result<(), Errno> {
        if range.start() < LOWEST {
            return Err(Errno::EPERM);
        }
        if self.regions.count() >= REGIONS_MAX {
            return Err(Errno::ENOMEM);
        }
        if permissions == Permissions::NONE {
            self.unmap(range)?;
            self.regions.put(range, Region { permissions, backing: Backing::Reserved });
            return Ok(());
        }
        self.release(range, Content::Goes)?;
        self.regions.remove(range);
        self.make(range, permissions)?;
        self.regions.put(range, Region { permissions, backing });
        Ok(())
    }

    /// Maps zero memory over whatever is there, without taking note of it.
    fn make(&mut self, range: PageRange, permissions: Permissions) -> Result<(), Errno> {
        self.ahead.remove(range);
        plan(range, permissions).try_for_each(|(part, flags)| memory::map(part, flags)).map_err(|refusal| {
            // What was there is gone, as it may be on Linux; nothing half made stays. That this fails too changes nothing.
            let _ = memory::unmap(range);
            refusal.into()
        })
    }

    /// Unmaps whatever is there.
    ///
    /// # Errors
    /// `ENOMEM`: no memory for the kernel's tables.
    pub fn unmap(&mut self, range: PageRange) -> Result<(), Errno> {
        self.release(range, Content::Goes)?;
        let mut gone = self.regions.remove(range);
        gone.retain(|(_, region)| region.backing != Backing::Reserved);
        // Without the region before it, nothing will grow into what lies behind.
        let end = self.ahead.end_of(range.end()).map_or(range.end(), |(end, _)| end);
        gone.extend(self.ahead.remove(PageRange::new(range.start(), end).unwrap_or(range)));
        gone.sort_unstable_by_key(|(part, _)| part.start());
        self.unmap_pieces(&gone)
    }

    /// Unmaps pieces, which are in order; what is adjacent at once.
    fn unmap_pieces(&self, pieces: &[(PageRange, Region)]) -> Result<(), Errno> {
        let mut mapped: Option<PageRange> = None;
        for &(part, _) in pieces {
            mapped = match mapped.and_then(|run| if run.end() == part.start() { PageRange::new(run.start(), part.end()) } else { None }) {
                Some(longer) => Some(longer),
                None => {
                    mapped.map_or(Ok(()), memory::unmap)?;
                    Some(part)
                }
            };
        }
        Ok(mapped.map_or(Ok(()), memory::unmap)?)
    }

    /// Changes permissions; what never had any gets its memory now.
    ///
    /// # Errors
    /// `ENOMEM`: there are holes in the range, or no memory is left.
    pub fn protect(&mut self, range: PageRange, permissions: Permissions) -> Result<(), Errno> {
        if permissions != Permissions::READ_EXECUTE {
            self.release(range, Content::Stays)?;
        }
        for (part, region) in self.regions.pieces(range) {
            match region.backing {
                _ if region.permissions == permissions => {}
                Backing::Reserved => self.map(part, permissions, Backing::Anonymous)?,
                backing => {
                    memory::protect(part, permissions)?;
                    self.regions.put(part, Region { permissions, backing });
                }
            }
        }
        if self.regions.covers(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Everything that is mapped or reserved, in order.
    #[must_use]
    pub fn all(&self) -> Vec<(PageRange, Region)> {
        PageRange::new(0, user::END).map(|all| self.regions.pieces(all)).unwrap_or_default()
    }

    /// Bytes of all that is mapped or reserved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.all().iter().map(|(range, _)| range.bytes()).sum()
    }

    /// What a mapping is called, if anything.
    #[must_use]
    pub fn name_of(&self, range: PageRange) -> &'static str {
        if range.end() == self.stack_top {
            "[stack]"
        } else if (self.break_start.next_multiple_of(PAGE_SIZE)..self.break_end).contains(&range.start()) {
            "[heap]"
        } else {
            ""
        }
    }

    /// Whether nothing is mapped in the range.
    #[must_use]
    pub fn is_free(&self, range: PageRange) -> bool {
        self.regions.is_free(range)
    }

    /// Whether the range has no holes.
    #[must_use]
    pub fn is_covered(&self, range: PageRange) -> bool {
        self.regions.covers(range)
    }

    /// Whether an address is in a mapping, whatever it permits.
    #[must_use]
    pub fn is_mapped(&self, address: u64) -> bool {
        pages(address / PAGE_SIZE * PAGE_SIZE, PAGE_SIZE).is_ok_and(|page| self.regions.covers(page))
    }

    /// Makes anonymous memory zero again.
    ///
    /// # Errors
    /// `ENOMEM`: there are holes in the range, or no memory is left.
    pub fn discard(&mut self, range: PageRange) -> Result<(), Errno> {
        self.release(range, Content::Stays)?;
        for (part, region) in self.regions.pieces(range) {
            // A copy of a file keeps its bytes: they are what reading the file again would give, unless the program wrote to them.
            if region.backing == Backing::Anonymous && region.permissions != Permissions::NONE {
                plan(part, region.permissions).try_for_each(|(part, flags)| memory::map(part, flags))?;
            }
        }
        if self.regions.covers(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Finds room for a mapping.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn find(&self, bytes: u64) -> Result<PageRange, Errno> {
        let alignment = if bytes >= LARGE_PAGE_SIZE { LARGE_PAGE_SIZE } else { PAGE_SIZE };
        let areas = if bytes <= SMALL { [LOW_AREA, HIGH_AREA] } else { [HIGH_AREA, LOW_AREA] };
        areas.into_iter().find_map(|area| self.regions.find(bytes, alignment, area, &self.stack_room())).ok_or(Errno::ENOMEM)
    }

    /// Where nothing but the stack is put.
    fn stack_room(&self) -> Range<u64> {
        self.stack_top.saturating_sub(STACK_LIMIT + STACK_GAP)..self.stack_top
    }

    /// Where free memory that starts at `address` ends; `address` itself if it is not free.
    fn room_from(&self, address: u64) -> u64 {
        let stack = self.stack_room();
        let stack = if stack.contains(&address) {
            address
        } else if stack.start >= address {
            stack.start
        } else {
            user::END
        };
        stack.min(self.regions.free_until(address)).min(user::END)
    }

    /// Makes the stack and sets the start of the break, once the program's image is mapped up to `image_end`. Returns the stack's end.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn prepare(&mut self, image_end: u64, stack_permissions: Permissions) -> Result<u64, Errno> {
        (self.break_start, self.break_end) = (image_end, image_end);
        let room = STACK_LIMIT + STACK_GAP;
        let none = 0..0;
        let low = LOW_AREA.start..STACK_TOP;
        let place = self.regions.find(room, PAGE_SIZE, low, &none).or_else(|| self.regions.find(room, PAGE_SIZE, HIGH_AREA, &none));
        self.stack_top = place.ok_or(Errno::ENOMEM)?.end();
        self.stack_start = self.stack_top - STACK_START;
        self.map(pages(self.stack_start, STACK_START)?, stack_permissions, Backing::Anonymous)?;
        Ok(self.stack_top)
    }

    /// Grows the stack down to `address` if that is where it may grow: at least to twice its size, so that faults stay few. Says whether it did.
    pub fn grow_stack(&mut self, address: u64) -> bool {
        let limit = self.stack_top.saturating_sub(STACK_LIMIT);
        if address < limit || address >= self.stack_start {
            return false;
        }
        let doubled = self.stack_start.saturating_sub(self.stack_top - self.stack_start);
        let start = doubled.min(address / PAGE_SIZE * PAGE_SIZE).max(limit);
        let Some(range) = PageRange::new(start, self.stack_start) else { return false };
        let below = self.regions.pieces(pages(self.stack_start, PAGE_SIZE).unwrap_or(range));
        let permissions = below.first().map_or(Permissions::READ_WRITE, |(_, region)| region.permissions);
        if !self.regions.is_free(range) || self.map(range, permissions, Backing::Anonymous).is_err() {
            return false;
        }
        self.stack_start = start;
        true
    }

    /// Moves the break if it can be moved. Returns where it is.
    pub fn set_break(&mut self, wanted: u64) -> u64 {
        if wanted >= self.break_start && wanted <= user::END {
            let (now, end) = (self.break_end.next_multiple_of(PAGE_SIZE), wanted.next_multiple_of(PAGE_SIZE));
            let done = match (PageRange::new(now, end), PageRange::new(end, now)) {
                (Some(grown), _) => self.grow_break(grown),
                (_, Some(given_up)) => self.shrink_break(given_up),
                _ => Ok(()),
            };
            if done.is_ok() {
                self.break_end = wanted;
            }
        }
        self.break_end
    }

    fn grow_break(&mut self, grown: PageRange) -> Result<(), Errno> {
        if self.room_from(grown.start()) < grown.end() {
            return Err(Errno::ENOMEM);
        }
        let before = grown.start() - self.break_start;
        self.extend(before, grown, Region { permissions: Permissions::READ_WRITE, backing: Backing::Anonymous })
    }

    /// Leaves zeros above the break, as new memory has them.
    fn shrink_break(&mut self, given_up: PageRange) -> Result<(), Errno> {
        let cleared = given_up.bytes() <= CLEAR_MAX
            && self.regions.pieces(given_up).iter().all(|(_, region)| region.permissions == Permissions::READ_WRITE)
            && UserRange::new(given_up.start(), given_up.bytes()).and_then(user::zero).is_ok();
        if !cleared {
            return self.unmap(given_up);
        }
        for (part, region) in self.regions.remove(given_up) {
            self.ahead.put(part, region);
        }
        Ok(())
    }
}
