// SPDX-License-Identifier: MIT OR Apache-2.0
//! The start of a program by its dynamic linker.
//!
//! glibc's linker maps its cache of library paths, maps the libraries, relocates each, makes the relocated data read-only, and unmaps
//! the cache at last. Then it runs the first code of the libraries and of the program. So protections that it sets while its cache is
//! mapped can wait until it unmaps that: one exit for all. The kernel gets them earlier if anything else happens: any other call, an
//! exception, an event, a signal, or a switch to another thread. Until then the pages stay writable for the linker alone, and for the
//! resolvers of indirect functions that it calls.
//!
//! Nothing waits after the first call from outside the linker's code. With musl the linker is the C library, whose code makes the
//! program's calls, too: there nothing ever waits.
//!
//! The next run of the program finds the cache mapped in its [zygote](super::zygote).

use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::Permissions;
use pando_abi::layout::SHARED;
use pando_rt::memory::{Batch, PageRange};

use super::AddressSpace;
use super::patching::PageContent;
use super::regions::{Backing, Blocks, Region};
use crate::errno::Errno;

/// Upper limit on protections that wait, and on the pieces of each.
const LATE_MAX: usize = 32;
/// How the names of the files of glibc's linkers begin; in old versions they contain the version.
const LINKERS: [&[u8]; 2] = [b"ld-linux", b"ld-2."];

/// How far the linker has come.
#[derive(Clone, Debug, Default)]
pub struct LinkerStart {
    /// The linker's own code; empty once the program runs.
    image: Range<u64>,
    /// The cache of library paths, while the linker has it mapped.
    cache: Option<(PageRange, Blocks)>,
    /// Data that become read-only. Their regions are so already.
    late: Vec<PageRange>,
    /// The cache, once the linker has unmapped it.
    pub(super) unmapped: Option<(PageRange, Blocks)>,
}

impl LinkerStart {
    /// The start of a program by the linker of this name, whose code is mapped here.
    #[must_use]
    pub fn new(name: &[u8], image: Range<u64>) -> LinkerStart {
        let is_known = LINKERS.iter().any(|linker| name.starts_with(linker));
        LinkerStart { image: if is_known { image } else { 0..0 }, ..LinkerStart::default() }
    }

    /// The start of a forked child: the linker's work is over.
    #[must_use]
    pub fn forked(&self) -> LinkerStart {
        LinkerStart { unmapped: self.unmapped, ..LinkerStart::default() }
    }

    /// Whether the program's own code may not have begun, or protections wait.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        !self.image.is_empty() || !self.late.is_empty()
    }

    /// Whether an instruction is the linker's.
    #[must_use]
    pub fn contains(&self, instruction: u64) -> bool {
        self.image.contains(&instruction)
    }

    /// Whether the linker's cache is mapped.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Whether a protection of some of these addresses waits.
    #[must_use]
    pub fn is_late(&self, addresses: &Range<u64>) -> bool {
        self.late.iter().any(|late| late.start() < addresses.end && addresses.start < late.end())
    }

    /// Notes that code other than the linker's runs: no further protections wait.
    pub fn finish(&mut self) {
        (self.image, self.cache) = (0..0, None);
    }

    /// Whether an instruction is the linker's, and its cache is mapped.
    fn is_linking(&self, instruction: u64) -> bool {
        self.has_cache() && self.contains(instruction)
    }
}

impl AddressSpace {
    /// Whether protections wait that the kernel does not know yet.
    #[must_use]
    pub fn has_late_protections(&self) -> bool {
        !self.linker_start.late.is_empty()
    }

    /// Notes that the linker has mapped its cache.
    pub fn note_linker_cache(&mut self, range: PageRange, blocks: Blocks) {
        if blocks.is_pristine() && blocks.end() >= range.end() && range.end() <= SHARED {
            self.linker_start.cache = Some((range, blocks));
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
        let can_wait = range.end() <= SHARED
            && self.regions.covers(range)
            && pieces.len() <= LATE_MAX
            && pieces.iter().all(|(_, region)| is_data(region) && !region.backing.is_shared());
        if !can_wait {
            return Ok(false);
        }
        self.release(range, PageContent::Kept)?;
        self.premapped.remove(range);
        for (part, region) in pieces {
            self.regions.put(part, Region { permissions, ..region });
        }
        self.linker_start.late.push(range);
        Ok(true)
    }

    /// Sets the protections that wait. Without memory for tables they wait on, and this is tried again.
    pub fn set_late_protections(&mut self) {
        let batch = self.late_batch();
        if batch.perform() == batch.count() {
            self.linker_start.late.clear();
        } else {
            self.linker_start.finish();
        }
    }

    /// The protections that wait, of the data that are still read-only.
    fn late_batch(&self) -> Batch<'static> {
        let mut batch = Batch::default();
        let is_read_only = |(_, region): &(PageRange, Region)| region.permissions == Permissions::READ && !region.backing.is_nothing();
        let pieces = self.linker_start.late.iter().flat_map(|late| self.regions.pieces(*late));
        pieces.filter(is_read_only).for_each(|(part, _)| batch.protect(part, Permissions::READ));
        batch
    }

    /// Unmaps the linker's cache, if it is this range and the linker calls at `instruction`, and sets the protections that wait, at one
    /// exit. `false`: nothing has changed. No further protections wait if the range contains a part of the cache.
    ///
    /// # Errors
    /// `ENOMEM`. The protections wait on.
    pub fn unmap_linker_cache(&mut self, instruction: u64, range: PageRange) -> Result<bool, Errno> {
        let touches = |(cache, _): &(PageRange, Blocks)| cache.start() < range.end() && range.start() < cache.end();
        let Some((cache, blocks)) = self.linker_start.cache.filter(touches) else { return Ok(false) };
        let is_linking = self.linker_start.is_linking(instruction);
        self.linker_start.finish();
        let is_whole = |(part, region): &(PageRange, Region)| *part == range && region.backing == Backing::Blocks(blocks);
        if !is_linking || cache != range || !self.regions.pieces(range).first().is_some_and(is_whole) {
            return Ok(false);
        }
        self.release(range, PageContent::Discarded)?;
        let mut batch = self.late_batch();
        let protections = batch.count();
        batch.unmap(range);
        let performed = batch.perform();
        if performed >= protections {
            self.linker_start.late.clear();
        }
        if performed < batch.count() {
            return Err(Errno::ENOMEM);
        }
        self.regions.remove(range);
        self.linker_start.unmapped = Some((cache, blocks));
        Ok(true)
    }
}
