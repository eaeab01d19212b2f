// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zygotes: the code of a program and its libraries that one run leaves to the next, at the same addresses and with its patches.
//!
//! An unused address space drops everything else and becomes a *zygote*. The next run starts in a clone of it, where its code is already
//! mapped: mapping it at the same addresses costs no exit. The program can touch code that it has not mapped without a fault, which only
//! a faulty program does.

use alloc::vec::Vec;

use pando_abi::layout::{SHARED, SLOT_SIZE};
use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::{self, PageRange};

use super::AddressSpace;
use super::regions::{Backing, Blocks, Region, Regions};
use crate::errno::Errno;

impl AddressSpace {
    /// Maps a part of a program's or a library's file in place of existing mappings, unless it is mapped already. Code executed by an
    /// earlier run stays executable if the whole file is mapped for reading. A linker does that first, to reserve addresses for all
    /// parts.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map_program(&mut self, range: PageRange, permissions: Permissions, blocks: Blocks) -> Result<(), Errno> {
        let executed = (permissions == Permissions::READ).then_some(Permissions::READ_EXECUTE);
        self.map_missing_parts(range, Region { permissions, backing: Backing::Blocks(blocks) }, executed)
    }

    /// Maps a part of a file that the program only reads in place of existing mappings, except where an earlier run of the program had
    /// the same mapping.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map_read_only(&mut self, range: PageRange, permissions: Permissions, blocks: Blocks) -> Result<(), Errno> {
        self.map_missing_parts(range, Region { permissions, backing: Backing::Blocks(blocks) }, None)
    }

    /// Maps the parts of a range that are not mapped as `wanted`, or, by an earlier run, with `other` permissions.
    fn map_missing_parts(&mut self, range: PageRange, wanted: Region, other: Option<Permissions>) -> Result<(), Errno> {
        let mut ready: Vec<(PageRange, Region)> = self.regions.pieces(range).into_iter().filter(|(_, region)| *region == wanted).collect();
        let ahead = self.ahead.pieces(range).into_iter();
        let fits = |region: Region| region == wanted || other.is_some_and(|permissions| region == Region { permissions, ..wanted });
        ready.extend(ahead.filter(|(_, region)| fits(*region)));
        ready.sort_unstable_by_key(|(part, _)| part.start());
        let mut start = range.start();
        for (part, region) in ready {
            self.map_missing(start, part.start(), wanted)?;
            self.ahead.remove(part);
            self.regions.put(part, region);
            start = part.end();
        }
        self.map_missing(start, range.end(), wanted)
    }

    /// Maps the gap between two existing parts, if there is one.
    fn map_missing(&mut self, start: u64, end: u64, wanted: Region) -> Result<(), Errno> {
        PageRange::new(start, end).map_or(Ok(()), |range| self.map(range, wanted.permissions, wanted.backing))
    }

    /// Removes everything that the next run cannot use from a space that does not run.
    ///
    /// # Errors
    /// `ENOMEM`: the space can only be destroyed now.
    pub fn become_zygote(&mut self) -> Result<(), Errno> {
        let mut mapped = self.regions.clone();
        self.ahead.all().into_iter().for_each(|(part, region)| mapped.put(part, region));
        let (mut code, mut trampolines) = (Regions::default(), Regions::default());
        let rooms: Vec<PageRange> = self.patches.rooms().filter_map(|page| PageRange::new(page, page + PAGE_SIZE)).collect();
        rooms.into_iter().flat_map(|page| mapped.remove(page)).for_each(|(page, region)| trampolines.put(page, region));
        let (kept, gone): (Vec<_>, Vec<_>) = mapped.all().into_iter().partition(|(_, region)| is_code(*region));
        kept.into_iter().for_each(|(part, region)| code.put(part, region));
        let mut runs: Vec<PageRange> = Vec::new();
        for (part, _) in gone.into_iter().filter(|(part, region)| !region.backing.is_nothing() && part.end() <= SHARED) {
            self.patches.forget(part.start()..part.end());
            // One call unmaps everything between two parts that stay.
            let is_one =
                |run: &PageRange| code.is_free(*run) && trampolines.is_free(*run) && run.start() / SLOT_SIZE == (run.end() - 1) / SLOT_SIZE;
            match runs.last_mut().and_then(|run| Some((PageRange::new(run.start(), part.end()).filter(is_one)?, run))) {
                Some((longer, run)) => *run = longer,
                None => runs.push(part),
            }
        }
        runs.into_iter().try_for_each(|run| memory::unmap_in(self.space.0.into(), run))?;
        let AddressSpace { space, layout, patches, program, .. } = core::mem::take(self);
        *self = AddressSpace { space, layout, patches, program, regions: trampolines, ahead: code, ..AddressSpace::default() };
        Ok(())
    }
}

/// Whether the next run finds the same content here when it maps it.
fn is_code(region: Region) -> bool {
    let is_pristine = matches!(region.backing, Backing::Blocks(blocks) if blocks.is_pristine());
    is_pristine && matches!(region.permissions, Permissions::READ | Permissions::READ_EXECUTE)
}
