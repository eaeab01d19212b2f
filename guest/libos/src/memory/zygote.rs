// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zygotes: address spaces with the mapped and patched code of a program and its libraries, cloned for its next run. Data is mapped again
//! from the files.
//!
//! An unused address space drops everything else and becomes a *zygote*. The next run starts in a clone of it, where its code is already
//! mapped: mapping it at the same addresses costs no exit. The program can touch code and data that it has not mapped without a fault,
//! which only a faulty program does.

use alloc::vec::Vec;

use pando_abi::layout::{SHARED, SLOT_SIZE};
use pando_abi::{MapFlags, PAGE_SIZE, Permissions};
use pando_rt::memory::{self, PageRange};

use super::patching::PageContent;
use super::regions::{Backing, Blocks, Region, Regions};
use super::{AddressSpace, COPIED_MAX};
use crate::errno::Errno;

/// Zero memory up to this size is kept: the zeros behind a file's data, and blocks for threads.
const ZEROS_MAX: u64 = 64 * PAGE_SIZE;
/// Upper limit on the pieces of data that are kept; each costs a hypercall when the zygote is made.
const DATA_MAX: usize = 128;

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

    /// Takes over memory of an earlier run in place of existing mappings, if all of the range has it as `wanted`. `false`: nothing has
    /// changed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn claim(&mut self, range: PageRange, wanted: Region) -> Result<bool, Errno> {
        let premapped = self.premapped.pieces(range);
        let bytes: u64 = premapped.iter().filter(|(_, region)| *region == wanted).map(|(part, _)| part.bytes()).sum();
        if bytes < range.bytes() {
            return Ok(false);
        }
        self.replace_region(range, wanted)?;
        self.premapped.remove(range);
        Ok(true)
    }

    /// Takes over data of an earlier run: private writable blocks of a file, as the file has them.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn claim_data(&mut self, range: PageRange, permissions: Permissions, blocks: Blocks) -> Result<bool, Errno> {
        if permissions != Permissions::READ_WRITE {
            return Ok(false);
        }
        self.claim(range, Region { permissions, backing: Backing::Blocks(blocks.as_written()) })
    }

    /// Maps memory by which a stack grows down. Memory of an earlier run keeps its content, because the program may have written to it
    /// without a fault.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn map_grown(&mut self, grown: PageRange, region: Region) -> Result<(), Errno> {
        let is_same = |found: Region| found == Region { backing: Backing::Anonymous, ..region };
        let mut start = grown.start();
        for (part, _) in self.premapped.pieces(grown).into_iter().filter(|(_, found)| is_same(*found)) {
            self.map_missing(start, part.start(), region)?;
            self.replace_region(part, region)?;
            self.premapped.remove(part);
            start = part.end();
        }
        self.map_missing(start, grown.end(), region)
    }

    /// Unmaps what an earlier run has left in a range.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn drop_premapped(&mut self, start: u64, end: u64) -> Result<(), Errno> {
        let left = PageRange::new(start, end).map(|range| self.premapped.remove(range)).unwrap_or_default();
        left.into_iter().try_for_each(|(part, _)| memory::unmap(part))?;
        Ok(())
    }

    /// Records a mapping of memory that the kernel has mapped already, in place of existing mappings.
    fn replace_region(&mut self, range: PageRange, region: Region) -> Result<(), Errno> {
        self.release(range, PageContent::Discarded)?;
        self.forget_advice(range);
        self.regions.put(range, region);
        Ok(())
    }

    /// Maps the parts of a range that are not mapped as `wanted`, or, by an earlier run, with `other` permissions.
    fn map_missing_parts(&mut self, range: PageRange, wanted: Region, other: Option<Permissions>) -> Result<(), Errno> {
        let mut ready: Vec<(PageRange, Region)> = self.regions.pieces(range).into_iter().filter(|(_, region)| *region == wanted).collect();
        let premapped = self.premapped.pieces(range);
        let fits = |region: Region| region == wanted || other.is_some_and(|permissions| region == Region { permissions, ..wanted });
        // Otherwise the data that lie here belong to other files, because the earlier run had them elsewhere.
        let had_same_start = premapped.first().is_some_and(|(part, region)| part.start() == range.start() && fits(*region));
        let reserves = other.is_some() && had_same_start;
        ready.extend(premapped.into_iter().filter(|(_, region)| fits(*region)));
        ready.sort_unstable_by_key(|(part, _)| part.start());
        let mut start = range.start();
        for (part, region) in ready {
            self.map_gap(start, part.start(), wanted, reserves)?;
            self.premapped.remove(part);
            self.regions.put(part, region);
            start = part.end();
        }
        self.map_gap(start, range.end(), wanted, reserves)
    }

    /// Maps the gap between two existing parts, if there is one. `reserves`: a linker reserves the addresses of a file, and will map
    /// the data behind the code again. Where an earlier run has left data of the same file, and zero memory directly behind them, they
    /// stay, for [`Self::claim`].
    fn map_gap(&mut self, start: u64, end: u64, wanted: Region, reserves: bool) -> Result<(), Errno> {
        let Some(range) = PageRange::new(start, end) else { return Ok(()) };
        let premapped = if reserves { self.premapped.pieces(range) } else { Vec::new() };
        let (mut start, mut data_end) = (range.start(), None);
        for (part, region) in premapped {
            let is_data = match (region.backing, wanted.backing) {
                (Backing::Blocks(data), Backing::Blocks(file)) => data.is_same_file(file),
                (Backing::Anonymous, _) => data_end == Some(part.start()),
                _ => false,
            };
            if is_data && region.permissions == Permissions::READ_WRITE {
                self.map_missing(start, part.start(), wanted)?;
                self.replace_region(part, wanted)?;
                start = part.end();
                data_end = Some(start);
            }
        }
        self.map_missing(start, range.end(), wanted)
    }

    fn map_missing(&mut self, start: u64, end: u64, wanted: Region) -> Result<(), Errno> {
        PageRange::new(start, end).map_or(Ok(()), |range| self.map(range, wanted.permissions, wanted.backing))
    }

    /// Removes everything that the next run cannot use from a space that does not run.
    ///
    /// # Errors
    /// `ENOMEM`: the space can only be destroyed now.
    pub fn become_zygote(&mut self) -> Result<(), Errno> {
        let mut mapped = self.regions.clone();
        self.premapped.all().into_iter().for_each(|(part, region)| mapped.put(part, region));
        let data = self.initial_data(&mapped);
        let (mut code, mut trampolines) = (Regions::default(), Regions::default());
        let trampoline_pages: Vec<PageRange> =
            self.patches.trampoline_pages().filter_map(|page| PageRange::new(page, page + PAGE_SIZE)).collect();
        trampoline_pages.into_iter().flat_map(|page| mapped.remove(page)).for_each(|(page, region)| trampolines.put(page, region));
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
        for (part, region) in data {
            match region.backing {
                Backing::Blocks(blocks) => {
                    memory::map_blocks_in(self.space.0.into(), part, blocks.at(part.start()), region.permissions, true)?;
                }
                _ => memory::map_in(self.space.0.into(), part, MapFlags::lazy(region.permissions))?,
            }
            code.put(part, region);
        }
        if let Some((part, blocks)) = self.linker_start.unmapped.filter(|(part, _)| code.is_free(*part) && trampolines.is_free(*part)) {
            memory::map_blocks_in(self.space.0.into(), part, blocks.at(part.start()), Permissions::READ, true)?;
            code.put(part, Region { permissions: Permissions::READ, backing: Backing::Blocks(blocks) });
        }
        let AddressSpace { space, layout, patches, program, .. } = core::mem::take(self);
        *self = AddressSpace { space, layout, patches, program, regions: trampolines, premapped: code, ..AddressSpace::default() };
        Ok(())
    }

    /// The data with which the next run starts if it maps them at the same addresses: private writable blocks of files, and small zero
    /// memory outside the area of the break. Of the stack it is the part with which the next one starts: a program accesses what lies below
    /// without mapping it.
    fn initial_data(&self, mapped: &Regions) -> Vec<(PageRange, Region)> {
        let break_area = self.break_start..self.break_end.next_multiple_of(PAGE_SIZE);
        let mut data = Regions::default();
        let initial = |(part, region)| Some((self.stack.initial_part(part)?, region));
        for (part, region) in mapped.all().into_iter().filter_map(initial) {
            let may_be_written = matches!(region.permissions, Permissions::READ | Permissions::READ_WRITE);
            let is_data = match region.backing {
                Backing::Blocks(blocks) => {
                    may_be_written && blocks == blocks.as_written() && !region.backing.is_shared() && part.bytes() <= COPIED_MAX
                }
                Backing::Anonymous => {
                    region.permissions == Permissions::READ_WRITE && part.bytes() <= ZEROS_MAX && !break_area.contains(&part.start())
                }
                _ => false,
            };
            if is_data && part.end() <= SHARED && data.count() < DATA_MAX {
                data.put(part, Region { permissions: Permissions::READ_WRITE, ..region });
            }
        }
        data.all()
    }
}

/// Whether the next run finds the same content here when it maps it.
fn is_code(region: Region) -> bool {
    let is_pristine = matches!(region.backing, Backing::Blocks(blocks) if blocks.is_pristine());
    is_pristine && matches!(region.permissions, Permissions::READ | Permissions::READ_EXECUTE)
}
