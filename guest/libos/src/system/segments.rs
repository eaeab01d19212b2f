// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of shared memory in address spaces. Each has the same address in all processes. Attaching records it in the process's
//! regions, and these records define who has it attached.

use alloc::collections::BTreeSet;

use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::clock;
use pando_rt::memory::{self, PageRange};

use super::System;
use crate::errno::Errno;
use crate::memory::AddressSpace;
use crate::memory::regions::{Backing, Region};
use crate::user::NANOSECONDS;

/// The numbers of the segments in some pages.
fn numbers(memory: &AddressSpace, pages: PageRange) -> BTreeSet<u32> {
    let number = |region: Region| if let Backing::Segment(number) = region.backing { Some(number) } else { None };
    memory.pieces(pages).into_iter().filter_map(|(_, region)| number(region)).collect()
}

impl System {
    /// Allocates the memory of a segment, which is not attached yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make_segment(&mut self, number: u32, bytes: u64) -> Result<PageRange, Errno> {
        if bytes / PAGE_SIZE > memory::quota_pages() {
            return Err(Errno::ENOMEM);
        }
        let pages = self.free_shared(bytes)?;
        let region = Region { permissions: Permissions::READ_WRITE, backing: Backing::Segment(number) };
        self.memory.map(pages, region.permissions, region.backing)?;
        self.memory.forget(pages);
        self.others.shared.put(pages, region);
        self.conceal(&[(pages, region)]);
        Ok(pages)
    }

    /// Attaches a segment to the running process, possibly repeatedly.
    ///
    /// # Errors
    /// `EINVAL`: another mapping is in the way. `ENOMEM`.
    pub fn attach(&mut self, number: u32, pages: PageRange, writes: bool) -> Result<(), Errno> {
        let permissions = if writes { Permissions::READ_WRITE } else { Permissions::READ };
        let backing = Backing::Segment(number);
        if self.memory.is_free(pages) {
            self.memory.note(pages, Region { permissions, backing });
        } else if self.memory.is_full() {
            return Err(Errno::ENOMEM);
        } else if self.memory.is_covered(pages) && self.memory.pieces(pages).iter().all(|(_, region)| region.backing == backing) {
            self.memory.map_counts.add(pages);
            // Two attachments at one address grant the permissions of both.
            for (piece, region) in self.memory.pieces(pages) {
                let both = Permissions::from_bits(region.permissions.bits() | permissions.bits()).unwrap_or(permissions);
                self.memory.note(piece, Region { permissions: both, backing });
            }
        } else {
            return Err(Errno::EINVAL);
        }
        self.apply_permissions_in(pages);
        self.stamp_segment(number, 0);
        Ok(())
    }

    /// Detaches the segment at an address from the running process.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub fn detach(&mut self, address: u64) -> Result<(), Errno> {
        let first = crate::memory::pages(address, PAGE_SIZE)?;
        let number = numbers(&self.memory, first).pop_first().ok_or(Errno::EINVAL)?;
        let pages = self.ipc.segments.get(number.into())?.data.pages;
        if pages.start() != address {
            return Err(Errno::EINVAL);
        }
        let last = self.memory.map_counts.take(pages);
        if last.is_empty() {
            self.stamp_segment(number, 1);
        }
        for part in last {
            let had = self.memory.pieces(part);
            self.leave_shared(part);
            self.conceal(&had);
        }
        Ok(())
    }

    /// How many times a segment is attached.
    #[must_use]
    pub fn attachments(&self, number: u32) -> u64 {
        let Ok(object) = self.ipc.segments.get(number.into()) else { return 0 };
        let pages = object.data.pages;
        let memories = self.other_memories().chain([&*self.memory]);
        memories
            .filter(|memory| numbers(memory, pages).contains(&number))
            .map(|memory| 1 + u64::from(memory.map_counts.count(pages.start())))
            .sum()
    }

    /// Detaches the segments that the running process has in a range.
    pub(crate) fn leave_segments(&mut self, range: PageRange) {
        for number in numbers(&self.memory, range) {
            for (piece, region) in self.memory.pieces(range) {
                if region.backing == Backing::Segment(number) {
                    self.memory.forget(piece);
                }
            }
            self.stamp_segment(number, 1);
            self.release_segment(number);
        }
    }

    /// Frees a removed segment if it is not attached any more.
    pub fn release_segment(&mut self, number: u32) {
        let Ok(object) = self.ipc.segments.get(number.into()) else { return };
        let pages = object.data.pages;
        if object.data.is_removed && self.attachments(number) == 0 {
            // If it cannot be unmapped, the cell loses the memory.
            let _ = memory::unmap(pages);
            self.vacate(pages);
            self.ipc.segments.remove(number);
        }
    }

    /// Records that the running process has attached (0) or detached (1) a segment.
    fn stamp_segment(&mut self, number: u32, which: usize) {
        let process = self.process.number;
        if let Ok(object) = self.ipc.segments.get_mut(number.into()) {
            (object.data.times[which], object.data.processes[1]) = (clock::wall() / NANOSECONDS, process);
        }
    }
}
