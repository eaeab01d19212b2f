// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's memory: the map of its regions, and the calls that establish them.
//!
//! The kernel holds the pages. This module holds the policy: reserved ranges, the break, the growth of the stack.
//!
//! The [layout] chooses addresses.

pub mod file_mapping;
pub mod growth;
pub mod layout;
pub mod linker_start;
pub mod map_counts;
pub mod patching;
pub mod population_plan;
pub mod regions;
pub mod remap;
pub mod resident;
pub mod stack;
#[cfg(test)]
mod tests;
pub mod wipe_on_fork;
pub mod zygote;

use alloc::vec::Vec;

use pando_abi::{BlockAddress, LARGE_PAGE_SIZE, PAGE_SIZE, Permissions, SpaceIndex};
use pando_rt::memory::{self, PageRange};
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::files::sharing::Sharing;
use crate::patch::Patches;
use file_mapping::MappedFiles;
use layout::{LOW_START, Layout, SMALL};
use linker_start::LinkerStart;
use map_counts::MapCounts;
use patching::PageContent;
use population_plan::plan;
use regions::{Backing, Blocks, NodePages, Region, Regions};
use stack::{RESERVED, Stack, Strings};

/// Nothing is mapped below this address, so that null pointers fault.
pub const LOWEST: u64 = pando_abi::layout::USER_START;
/// Mappings of files up to this size are populated at once.
const EAGER_MAX: u64 = 4 << 20;
/// Private writable mappings of files up to this size are copied.
pub const COPIED_MAX: u64 = 4 << 20;
/// Upper limit on the regions of a program, like Linux's limit on mappings.
const REGIONS_MAX: usize = 65_530;
/// Up to this size, a shrinking break clears memory instead of unmapping it.
const CLEAR_MAX: u64 = 1 << 20;

/// The application's memory.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    /// The space that it describes.
    pub space: SpaceIndex,
    regions: Regions,
    /// The layout.
    pub layout: Layout,
    /// Memory that is mapped in advance: behind growing regions, for them to grow into, and where an earlier run of the program had its
    /// code. Everything else treats it as free.
    premapped: Regions,
    /// Start of the break's area.
    break_start: u64,
    /// The break itself.
    break_end: u64,
    /// The first thread's stack.
    pub stack: Stack,
    /// The addresses of the program's arguments and environment.
    pub strings: Strings,
    /// The files that are mapped.
    mapped_files: MappedFiles,
    /// A file of the overlay has been mapped.
    shows_nodes: bool,
    /// Blocks of a volume's file have been mapped shared.
    pub(crate) shows_blocks: bool,
    /// The [changes](crate::files::tree::content::changes) of files that its own mappings contain.
    pub(crate) known_changes: u64,
    /// How many files of volumes had [become nodes](crate::files::tree::Tree::owned) when its mappings of blocks were last checked.
    pub(crate) known_owned: u64,
    /// A `MAP_GROWSDOWN` mapping has been made.
    grows_down: bool,
    /// Shared mappings that were mapped again at the same address.
    pub map_counts: MapCounts,
    /// Ranges that children get as zeros (`MADV_WIPEONFORK`).
    wipe_on_fork: Regions,
    /// Ranges that children do not get (`MADV_DONTFORK`).
    dont_fork: Regions,
    /// Ranges that are locked (`mlock`).
    locked: Regions,
    /// The patches in it.
    pub patches: Patches,
    /// How far the program's linker has come.
    pub linker_start: LinkerStart,
    /// The program that was loaded into it, identified by its first block.
    pub program: Option<BlockAddress>,
}

/// The pages of `length` bytes from `start`, the start of a page.
///
/// # Errors
/// `EINVAL`: not page aligned, empty, or outside application memory.
pub fn pages(start: u64, length: u64) -> Result<PageRange, Errno> {
    let end = length.checked_next_multiple_of(PAGE_SIZE).and_then(|length| start.checked_add(length));
    end.and_then(|end| PageRange::new(start, end)).ok_or(Errno::EINVAL)
}

impl AddressSpace {
    /// The address space of a space without program memory.
    #[must_use]
    pub fn new(space: SpaceIndex, patches: Patches) -> AddressSpace {
        AddressSpace { space, patches, ..AddressSpace::default() }
    }

    /// Maps blocks of a file, or zeros into which the caller may copy, in place of existing mappings.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map(&mut self, range: PageRange, permissions: Permissions, backing: Backing) -> Result<(), Errno> {
        if range.start() < LOWEST {
            return Err(Errno::EPERM);
        }
        if self.is_full() {
            return Err(Errno::ENOMEM);
        }
        if let Backing::Blocks(blocks) = backing {
            return self.map_blocks(range, permissions, blocks);
        }
        self.shows_nodes |= backing.node().is_some();
        self.grows_down |= backing == Backing::Downward;
        let is_reserved = permissions == Permissions::NONE && backing == Backing::Anonymous;
        if is_reserved || backing.is_nothing() {
            self.unmap(range)?;
            self.regions.put(range, Region { permissions, backing: if is_reserved { Backing::Reserved } else { backing } });
            return Ok(());
        }
        if backing == Backing::Anonymous && self.claim(range, Region { permissions, backing })? {
            return Ok(());
        }
        self.release(range, PageContent::Discarded)?;
        self.forget_advice(range);
        self.regions.remove(range);
        self.make(range, permissions, backing)?;
        self.regions.put(range, Region { permissions, backing });
        Ok(())
    }

    /// Whether the limit of regions is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.regions.count() + self.map_counts.ranges() >= REGIONS_MAX
    }

    /// Maps blocks of a file in place of existing mappings, and nothing behind its last one.
    fn map_blocks(&mut self, range: PageRange, permissions: Permissions, blocks: Blocks) -> Result<(), Errno> {
        let end = blocks.end().clamp(range.start(), range.end());
        if let Some(beyond) = PageRange::new(end, range.end()) {
            self.map(beyond, permissions, Backing::Beyond(None))?;
        }
        if let Some(part) = PageRange::new(range.start(), end) {
            self.map_all_blocks(part, permissions, blocks)?;
        }
        Ok(())
    }

    /// Maps blocks of a file in place of existing mappings.
    fn map_all_blocks(&mut self, range: PageRange, permissions: Permissions, blocks: Blocks) -> Result<(), Errno> {
        self.shows_blocks |= Backing::Blocks(blocks).is_shared();
        self.release(range, PageContent::Discarded)?;
        self.forget_advice(range);
        self.regions.remove(range);
        self.premapped.remove(range);
        // Most pages of a small mapping will be touched, and a fault costs more than all of its pages.
        memory::map_blocks(range, blocks.at(range.start()), permissions, range.bytes() <= EAGER_MAX)?;
        self.regions.put(range, Region { permissions, backing: Backing::Blocks(blocks) });
        Ok(())
    }

    /// Records that mapped pages of these permissions contain copies of private blocks of a file: with the blocks mapped, writing to each
    /// page would fault.
    pub fn note_copied(&mut self, range: PageRange, permissions: Permissions, blocks: Blocks) {
        self.regions.put(range, Region { permissions, backing: Backing::Blocks(blocks) });
    }

    /// Maps zero memory in place of existing mappings, without recording it.
    fn make(&mut self, range: PageRange, permissions: Permissions, backing: Backing) -> Result<(), Errno> {
        self.premapped.remove(range);
        plan(range, permissions, backing).try_for_each(|(part, flags)| memory::map(part, flags)).map_err(|refusal| {
            // The old mapping is gone, as it may be on Linux, and no partial mapping stays. An error here has no further effect.
            let _ = memory::unmap(range);
            refusal.into()
        })
    }

    /// Unmaps a range.
    ///
    /// # Errors
    /// `ENOMEM`: no memory for the kernel's tables.
    pub fn unmap(&mut self, range: PageRange) -> Result<(), Errno> {
        self.release(range, PageContent::Discarded)?;
        self.forget_advice(range);
        let mut unmapped = self.regions.remove(range);
        unmapped.retain(|(_, region)| !region.backing.is_nothing());
        // Without the region before it, no region will grow into the memory mapped ahead.
        let end = self.premapped.end_of(range.end()).map_or(range.end(), |(end, _)| end);
        unmapped.extend(self.premapped.remove(PageRange::new(range.start(), end).unwrap_or(range)));
        unmapped.sort_unstable_by_key(|(part, _)| part.start());
        self.unmap_pieces(&unmapped)
    }

    /// Unmaps pieces, which are in order; adjacent ones at once.
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

    /// Changes permissions; reserved memory that had none before is allocated now.
    ///
    /// # Errors
    /// `ENOMEM`: there are holes in the range, or no memory is left. `EACCES`: a file that was not opened for writing would become
    /// writable.
    pub fn protect(&mut self, range: PageRange, permissions: Permissions) -> Result<(), Errno> {
        if permissions != Permissions::READ_EXECUTE {
            self.release(range, PageContent::Kept)?;
        }
        // An earlier run's data lie there, with other permissions than the region has.
        let claimed: Vec<_> = self.premapped.pieces(range).into_iter().filter(|(part, _)| self.regions.covers(*part)).collect();
        for (part, _) in claimed {
            memory::protect(part, permissions)?;
            self.premapped.remove(part);
        }
        let mut end = range.start();
        for (part, region) in self.regions.pieces(range) {
            // Pages behind a hole stay unchanged.
            if part.start() > end {
                return Err(Errno::ENOMEM);
            }
            end = part.end();
            match region.backing {
                _ if region.permissions == permissions => {}
                backing if permissions.writable() && backing.is_read_only() => return Err(Errno::EACCES),
                Backing::Reserved => self.map(part, permissions, Backing::Anonymous)?,
                Backing::Beyond(_) => self.regions.put(part, Region { permissions, ..region }),
                backing => {
                    memory::protect(part, permissions)?;
                    self.regions.put(part, Region { permissions, backing });
                }
            }
        }
        if end == range.end() { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Records an existing mapping.
    pub fn note(&mut self, range: PageRange, region: Region) {
        self.shows_nodes |= region.backing.node().is_some();
        self.regions.put(range, region);
    }

    /// Removes a mapping from the records without unmapping it.
    pub fn forget(&mut self, range: PageRange) {
        self.map_counts.clear(range);
        self.regions.remove(range);
    }

    /// All mapped and reserved regions, in order.
    #[must_use]
    pub fn all(&self) -> Vec<(PageRange, Region)> {
        self.regions.all()
    }

    /// The mapped and reserved regions in a range, in order.
    #[must_use]
    pub fn pieces(&self, range: PageRange) -> Vec<(PageRange, Region)> {
        self.regions.pieces(range)
    }

    /// The file of the overlay whose writable shared mapping contains an address.
    #[must_use]
    pub fn shared_file_at(&self, address: u64) -> Option<NodePages> {
        let (_, region) = self.regions.end_of(address)?;
        if let Backing::Node(file) = region.backing { Some(file).filter(|file| file.sharing == Sharing::Writes) } else { None }
    }

    /// Whether a file of the overlay may be mapped.
    #[must_use]
    pub fn shows_nodes(&self) -> bool {
        self.shows_nodes
    }

    /// Bytes of all mapped and reserved regions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.all().iter().map(|(range, _)| range.bytes()).sum()
    }

    /// Bytes of the program's private writable memory, without its stack.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let is_own = |range: &PageRange, region: &Region| {
            region.permissions.writable()
                && !region.backing.is_shared()
                && region.backing != Backing::Downward
                && range.end() != self.stack.top()
        };
        self.all().iter().filter(|(range, region)| is_own(range, region)).map(|(range, _)| range.bytes()).sum()
    }

    /// The name of a mapping, if it has one.
    #[must_use]
    pub fn name_of(&self, range: PageRange) -> &'static str {
        if range.end() == self.stack.top() {
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

    /// Whether an address is in a mapping, regardless of permissions.
    #[must_use]
    pub fn is_mapped(&self, address: u64) -> bool {
        pages(address / PAGE_SIZE * PAGE_SIZE, PAGE_SIZE).is_ok_and(|page| self.regions.covers(page))
    }

    /// Whether an address is in a mapping of a file, behind the file's end, where the mapping's permissions allow the access.
    #[must_use]
    pub fn is_beyond(&self, address: u64, writes: bool) -> bool {
        let allowed = |region: Region| if writes { region.permissions.writable() } else { region.permissions.readable() };
        self.regions.end_of(address).is_some_and(|(_, region)| matches!(region.backing, Backing::Beyond(_)) && allowed(region))
    }

    /// Zeroes anonymous memory again, and restores private mappings of volumes' files to the files' content.
    ///
    /// # Errors
    /// `ENOMEM`: there are holes in the range, or no memory is left.
    pub fn discard(&mut self, range: PageRange) -> Result<(), Errno> {
        self.release(range, PageContent::Kept)?;
        for (part, region) in self.regions.pieces(range) {
            match region.backing {
                backing @ (Backing::Anonymous | Backing::Stack | Backing::Downward) if region.permissions != Permissions::NONE => {
                    plan(part, region.permissions, backing).try_for_each(|(part, flags)| memory::map(part, flags))?;
                }
                Backing::Blocks(blocks) => memory::map_blocks(part, blocks.at(part.start()), region.permissions, false)?,
                // Rereading a file's content is up to the caller, who has access to files.
                _ => {}
            }
        }
        if self.regions.covers(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Finds a free range for a mapping at a multiple of `alignment`, a power of two.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn find(&self, bytes: u64, alignment: u64) -> Result<PageRange, Errno> {
        let alignment = if bytes >= LARGE_PAGE_SIZE { LARGE_PAGE_SIZE.max(alignment) } else { PAGE_SIZE.max(alignment) };
        let Layout { low_end, high, .. } = &self.layout;
        let low = LOW_START..*low_end;
        let areas = if bytes <= SMALL { [low, high.clone()] } else { [high.clone(), low] };
        areas.into_iter().find_map(|area| self.regions.find(bytes, alignment, area, self.stack.room())).ok_or(Errno::ENOMEM)
    }

    /// The address for a program of `bytes` bytes that can be moved to any multiple of `alignment`, a power of two.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn find_image(&self, bytes: u64, alignment: u64) -> Result<u64, Errno> {
        let start = self.layout.image.next_multiple_of(alignment);
        if start.saturating_add(bytes) < self.layout.stack_top - RESERVED {
            return Ok(start);
        }
        let high = self.layout.high.clone();
        self.regions.find(bytes, alignment, high, &(0..0)).map(PageRange::start).ok_or(Errno::ENOMEM)
    }

    /// The end of the free memory that starts at `address`; `address` itself if it is not free.
    fn room_from(&self, address: u64) -> u64 {
        let stack = self.stack.room();
        let stack = if stack.contains(&address) {
            address
        } else if stack.start >= address {
            stack.start
        } else {
            user::END
        };
        stack.min(self.regions.free_until(address)).min(user::END)
    }

    /// The start of the break's area.
    #[must_use]
    pub fn break_start(&self) -> u64 {
        self.break_start
    }

    /// Moves the break if possible. Returns its new position.
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

    /// Ensures that the memory above the break is zero, like new memory.
    fn shrink_break(&mut self, given_up: PageRange) -> Result<(), Errno> {
        let cleared = given_up.bytes() <= CLEAR_MAX
            && self.regions.pieces(given_up).iter().all(|(_, region)| region.permissions == Permissions::READ_WRITE)
            && UserRange::new(given_up.start(), given_up.bytes()).and_then(user::zero).is_ok();
        if !cleared {
            return self.unmap(given_up);
        }
        self.forget_advice(given_up);
        for (part, region) in self.regions.remove(given_up) {
            self.premapped.put(part, region);
        }
        Ok(())
    }
}
