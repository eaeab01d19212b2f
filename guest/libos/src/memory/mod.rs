// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's memory: bookkeeping of regions, and the calls that make it so.
//!
//! The kernel holds pages, this holds intentions: what was reserved, where the break is, how far the stack may grow.
//!
//! Where things lie is the [layout's](layout).

pub mod backing;
pub mod growth;
pub mod layers;
pub mod layout;
pub mod patching;
pub mod regions;
pub mod remap;
pub mod resident;
pub mod shown;
pub mod stack;
#[cfg(test)]
mod tests;
pub mod wiped;
pub mod zygote;

use alloc::vec::Vec;

use pando_abi::{BlockAddress, LARGE_PAGE_SIZE, PAGE_SIZE, Permissions, SpaceIndex};
use pando_rt::memory::{self, PageRange};
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::patch::Patches;
use backing::plan;
use layers::Layers;
use layout::{LOW_START, Layout, SMALL};
use patching::Content;
use regions::{Backing, Blocks, Region, Regions};
use shown::ShownFiles;
use stack::{RESERVED, Stack, Strings};

/// Nothing is mapped below this address, so that null pointers fault.
pub const LOWEST: u64 = pando_abi::layout::USER_START;
/// Mappings of files up to this size become present at once.
const EAGER_MAX: u64 = 4 << 20;
/// Private mappings of files up to this size that may be written are copied.
pub const COPIED_MAX: u64 = 4 << 20;
/// Regions that a program may have, as Linux counts mappings.
const REGIONS_MAX: usize = 65_530;
/// Up to this size a shrinking break clears memory rather than giving it back.
const CLEAR_MAX: u64 = 1 << 20;

/// The application's memory.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    /// The space that it describes.
    pub space: SpaceIndex,
    regions: Regions,
    /// Where things are put.
    pub layout: Layout,
    /// What is mapped before it is asked for: behind regions that grew, for them to grow into; where an earlier run of the program had its code. To everyone else it is free.
    ahead: Regions,
    /// Start of the break's area.
    break_start: u64,
    /// The break itself.
    break_end: u64,
    /// The first thread's stack.
    pub stack: Stack,
    /// Where arguments and environment of the program lie.
    pub strings: Strings,
    /// The files that are mapped.
    shown: ShownFiles,
    /// A file of the overlay was mapped once.
    shows_nodes: bool,
    /// Blocks of a volume's file were mapped shared once.
    pub(crate) shows_blocks: bool,
    /// The [changes](crate::files::tree::content::changes) of files that its own mappings show.
    pub(crate) known: u64,
    /// How many files of volumes had [become nodes](crate::files::tree::Tree::owned) when its mappings of blocks were last looked through.
    pub(crate) known_owned: u64,
    /// A mapping that grows down was made once.
    grows_down: bool,
    /// Shared mappings that were made once more where they are.
    pub again: Layers,
    /// What children get as zeros.
    wiped: Regions,
    /// What children do not get.
    withheld: Regions,
    /// What was asked to stay in memory.
    locked: Regions,
    /// What was patched in it.
    pub patches: Patches,
    /// The program that was loaded into it, by its first block.
    pub program: Option<BlockAddress>,
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
    /// That of a space in which programs have no memory yet.
    #[must_use]
    pub fn new(space: SpaceIndex, patches: Patches) -> AddressSpace {
        AddressSpace { space, patches, ..AddressSpace::default() }
    }

    /// Maps memory over whatever is there: blocks of a file, or zeros, into which the caller may copy.
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
        self.release(range, Content::Goes)?;
        self.forget_advice(range);
        self.regions.remove(range);
        self.make(range, permissions, backing)?;
        self.regions.put(range, Region { permissions, backing });
        Ok(())
    }

    /// Whether there is no room to take note of another mapping.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.regions.count() + self.again.ranges() >= REGIONS_MAX
    }

    /// Maps blocks of a file over whatever is there, and nothing behind its last one.
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

    /// Maps blocks of a file over whatever is there.
    fn map_all_blocks(&mut self, range: PageRange, permissions: Permissions, blocks: Blocks) -> Result<(), Errno> {
        self.shows_blocks |= Backing::Blocks(blocks).is_shared();
        self.release(range, Content::Goes)?;
        self.forget_advice(range);
        self.regions.remove(range);
        self.ahead.remove(range);
        // Most of a small one will be touched, and a touch costs more than all its pages.
        memory::map_blocks(range, blocks.at(range.start()), permissions, range.bytes() <= EAGER_MAX)?;
        self.regions.put(range, Region { permissions, backing: Backing::Blocks(blocks) });
        Ok(())
    }

    /// Takes note that mapped pages of these permissions hold copies of what private blocks of a file hold: writing to each page of these would fault.
    pub fn note_copied(&mut self, range: PageRange, permissions: Permissions, blocks: Blocks) {
        self.regions.put(range, Region { permissions, backing: Backing::Blocks(blocks) });
    }

    /// Maps zero memory over whatever is there, without taking note of it.
    fn make(&mut self, range: PageRange, permissions: Permissions, backing: Backing) -> Result<(), Errno> {
        self.ahead.remove(range);
        plan(range, permissions, backing).try_for_each(|(part, flags)| memory::map(part, flags)).map_err(|refusal| {
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
        self.forget_advice(range);
        let mut gone = self.regions.remove(range);
        gone.retain(|(_, region)| !region.backing.is_nothing());
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
    /// `ENOMEM`: there are holes in the range, or no memory is left. `EACCES`: a file that was not opened to be written would become writable.
    pub fn protect(&mut self, range: PageRange, permissions: Permissions) -> Result<(), Errno> {
        if permissions != Permissions::READ_EXECUTE {
            self.release(range, Content::Stays)?;
        }
        let mut end = range.start();
        for (part, region) in self.regions.pieces(range) {
            // What is behind a hole stays as it is.
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

    /// Takes note of a mapping that is there already.
    pub fn note(&mut self, range: PageRange, region: Region) {
        self.shows_nodes |= region.backing.node().is_some();
        self.regions.put(range, region);
    }

    /// Forgets a mapping that stays there.
    pub fn forget(&mut self, range: PageRange) {
        self.again.clear(range);
        self.regions.remove(range);
    }

    /// Everything that is mapped or reserved, in order.
    #[must_use]
    pub fn all(&self) -> Vec<(PageRange, Region)> {
        self.regions.all()
    }

    /// What is mapped or reserved in a range, in order.
    #[must_use]
    pub fn pieces(&self, range: PageRange) -> Vec<(PageRange, Region)> {
        self.regions.pieces(range)
    }

    /// Whether a file of the overlay may be mapped.
    #[must_use]
    pub fn shows_nodes(&self) -> bool {
        self.shows_nodes
    }

    /// Bytes of all that is mapped or reserved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.all().iter().map(|(range, _)| range.bytes()).sum()
    }

    /// Bytes of all that is the program's own to write, but for its stack.
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

    /// What a mapping is called, if anything.
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

    /// Whether an address is in a mapping, whatever it permits.
    #[must_use]
    pub fn is_mapped(&self, address: u64) -> bool {
        pages(address / PAGE_SIZE * PAGE_SIZE, PAGE_SIZE).is_ok_and(|page| self.regions.covers(page))
    }

    /// Whether an address is in a mapping of a file, behind the file's end, where reading or writing would be allowed.
    #[must_use]
    pub fn is_beyond(&self, address: u64, writes: bool) -> bool {
        let allowed = |region: Region| if writes { region.permissions.writable() } else { region.permissions.readable() };
        self.regions.end_of(address).is_some_and(|(_, region)| matches!(region.backing, Backing::Beyond(_)) && allowed(region))
    }

    /// Makes anonymous memory zero again, and private mappings of volumes' files show them again.
    ///
    /// # Errors
    /// `ENOMEM`: there are holes in the range, or no memory is left.
    pub fn discard(&mut self, range: PageRange) -> Result<(), Errno> {
        self.release(range, Content::Stays)?;
        for (part, region) in self.regions.pieces(range) {
            match region.backing {
                backing @ (Backing::Anonymous | Backing::Stack | Backing::Downward) if region.permissions != Permissions::NONE => {
                    plan(part, region.permissions, backing).try_for_each(|(part, flags)| memory::map(part, flags))?;
                }
                Backing::Blocks(blocks) => memory::map_blocks(part, blocks.at(part.start()), region.permissions, false)?,
                // What reading its file again would give is for the caller to say, who knows files.
                _ => {}
            }
        }
        if self.regions.covers(range) { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Finds room for a mapping at a multiple of `alignment`, a power of two.
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

    /// Where to put a program of `bytes` bytes that can be moved to any multiple of `alignment`, a power of two.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn place(&self, bytes: u64, alignment: u64) -> Result<u64, Errno> {
        let start = self.layout.image.next_multiple_of(alignment);
        if start.saturating_add(bytes) < self.layout.stack_top - RESERVED {
            return Ok(start);
        }
        let high = self.layout.high.clone();
        self.regions.find(bytes, alignment, high, &(0..0)).map(PageRange::start).ok_or(Errno::ENOMEM)
    }

    /// Where free memory that starts at `address` ends; `address` itself if it is not free.
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
        self.forget_advice(given_up);
        for (part, region) in self.regions.remove(given_up) {
            self.ahead.put(part, region);
        }
        Ok(())
    }
}
