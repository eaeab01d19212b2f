// SPDX-License-Identifier: MIT OR Apache-2.0
//! The start of a program by its dynamic linker.
//!
//! glibc's linker maps its cache of library paths, maps the libraries, relocates each, makes the relocated data read-only, and unmaps
//! the cache at last. Then it runs the first code of the libraries and of the program. So protections that it sets while its cache is
//! mapped can wait until it unmaps that: one exit for all. The kernel gets them earlier if anything else happens: any other call, an
//! exception, an event, a signal, or a switch to another thread. Until then the pages stay writable for the linker alone, and for the
//! resolvers of indirect functions that it calls.
//!
//! The next run of the program finds the cache mapped in its [zygote](super::zygote).

use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::Permissions;
use pando_rt::memory::{Batch, PageRange};

use super::AddressSpace;
use super::layout::is_shared;
use super::patching::Content;
use super::regions::{Backing, Blocks, Region};
use crate::errno::Errno;

/// Upper limit on protections that wait, and on the pieces of each.
const LATE_MAX: usize = 32;

/// How far the linker has come.
#[derive(Clone, Debug, Default)]
pub struct LinkerStart {
    /// The linker's own code; empty when the program runs.
    image: Range<u64>,
    /// The file that it has mapped to read it.
    cache: Option<(PageRange, Blocks)>,
    /// Data that become read-only.
    late: Vec<PageRange>,
    /// The file, once the linker has unmapped it.
    pub(super) unmapped: Option<(PageRange, Blocks)>,
}

impl LinkerStart {
    /// The start of a program whose linker is mapped here.
    #[must_use]
    pub fn new(image: Range<u64>) -> LinkerStart {
        LinkerStart { image, ..LinkerStart::default() }
    }

    /// Whether an instruction is the linker's, and its cache is mapped.
    fn is_linking(&self, instruction: u64) -> bool {
        self.cache.is_some() && self.image.contains(&instruction)
    }
}

impl AddressSpace {
    /// Whether protections wait that the kernel does not know yet.
    #[must_use]
    pub fn has_late_protections(&self) -> bool {
        !self.linker_start.late.is_empty()
    }

    /// Notes that a call at `instruction` has mapped blocks of a file for reading.
    pub fn note_read_mapping(&mut self, instruction: u64, range: PageRange, blocks: Blocks) {
        let start = &mut self.linker_start;
        if start.cache.is_none() && start.image.contains(&instruction) && blocks.is_pristine() && blocks.end() >= range.end() {
            start.cache = Some((range, blocks));
        }
    }

    /// Makes data of a program read-only when the linker, which calls at `instruction`, is done. `false`: nothing has changed.
    ///
    /// # Errors
    /// `ENOMEM`: the program's own code could not be restored.
    pub fn protect_late(&mut self, instruction: u64, range: PageRange, permissions: Permissions) -> Result<bool, Errno> {
        if permissions != Permissions::READ || !self.linker_start.is_linking(instruction) || self.linker_start.late.len() >= LATE_MAX {
            return Ok(false);
        }
        let is_data = |region: &Region| {
            region.permissions == Permissions::READ_WRITE && matches!(region.backing, Backing::Anonymous | Backing::Blocks(_))
        };
        let pieces = self.regions.pieces(range);
        let can_wait = !is_shared(range.start())
            && self.regions.covers(range)
            && pieces.len() <= LATE_MAX
            && pieces.iter().all(|(_, region)| is_data(region) && !region.backing.is_shared());
        if !can_wait {
            return Ok(false);
        }
        self.release(range, Content::Stays)?;
        self.premapped.remove(range);
        for (part, region) in pieces {
            self.regions.put(part, Region { permissions, ..region });
        }
        self.linker_start.late.push(range);
        Ok(true)
    }

    /// Sets the protections that wait. Without memory for tables they wait on, and this is tried again.
    pub fn set_late_protections(&mut self) {
        let mut batch = Batch::default();
        self.linker_start.late.iter().for_each(|range| batch.protect(*range, Permissions::READ));
        if batch.perform() == batch.count() {
            self.linker_start.late.clear();
        }
    }

    /// Unmaps the linker's cache, if it is this range and the linker calls at `instruction`, and sets the protections that wait, at one
    /// exit. `false`: nothing has changed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn unmap_linker_cache(&mut self, instruction: u64, range: PageRange) -> Result<bool, Errno> {
        let Some((cache, blocks)) = self.linker_start.cache.filter(|(cache, _)| *cache == range) else { return Ok(false) };
        let is_whole = |(part, region): &(PageRange, Region)| *part == cache && region.backing == Backing::Blocks(blocks);
        if !self.linker_start.is_linking(instruction) || !self.regions.pieces(range).first().is_some_and(is_whole) {
            return Ok(false);
        }
        self.release(range, Content::Goes)?;
        let mut batch = Batch::default();
        self.linker_start.late.iter().for_each(|late| batch.protect(*late, Permissions::READ));
        let protections = batch.count();
        batch.unmap(range);
        let performed = batch.perform();
        if performed < protections {
            return Err(Errno::ENOMEM);
        }
        self.linker_start.late.clear();
        if performed < batch.count() {
            return Err(Errno::ENOMEM);
        }
        self.regions.remove(range);
        self.linker_start = LinkerStart { unmapped: Some((cache, blocks)), ..LinkerStart::default() };
        Ok(true)
    }
}
