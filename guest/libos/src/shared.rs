// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that processes share: one segment of the cell, mounted at the same address in every space.
//!
//! A shared mapping lies there once, at an address of its own, which is the same in all processes: those that inherit it from their
//! parent, and those that map the same file of the overlay. So all see one content at once. The pages are freed when the last
//! address space unmaps them. A process that reads addresses where it has mapped nothing may see what others share: the boundary is
//! the cell, not the process. Mappings at addresses that the program chose lie elsewhere, and are synchronised on use
//! ([`crate::mapped_files`]).
//!
//! The pages have one set of permissions at a time, and one process runs at a time. A process whose permissions differ from those
//! of others gets its own when it runs.

mod anonymous;

use alloc::vec::Vec;

use pando_abi::layout::{SHARED, SHARED_END};
use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::{self, PageRange};

use crate::errno::Errno;
use crate::files::sharing::Sharing;
use crate::files::tree::node::NodeId;
use crate::memory::layout::is_shared;
use crate::memory::regions::{Backing, NodePages, Region, SharedObject};
use crate::memory::remap::RemapTarget;
use crate::memory::{AddressSpace, pages};
use crate::system::System;

/// Room for a file to grow in place.
const FILE_ROOM: u64 = 64 << 20;

/// The whole shared segment.
fn everything() -> Option<PageRange> {
    PageRange::new(SHARED, SHARED_END)
}

/// The part of a range that lies in the shared segment.
pub fn shared_part(range: PageRange) -> Option<PageRange> {
    PageRange::new(range.start().max(SHARED), range.end().min(SHARED_END))
}

/// The union of two permissions.
pub(crate) fn union(one: Permissions, other: Permissions) -> Permissions {
    Permissions::from_bits(one.bits() | other.bits()).unwrap_or(one)
}

/// The gaps between pieces of a range, which are sorted.
pub(crate) fn gaps(range: PageRange, pieces: &[(PageRange, Region)]) -> Vec<PageRange> {
    let starts = [range.start()].into_iter().chain(pieces.iter().map(|(piece, _)| piece.end()));
    let ends = pieces.iter().map(|(piece, _)| piece.start()).chain([range.end()]);
    starts.zip(ends).filter_map(|(start, end)| PageRange::new(start, end)).collect()
}

impl System {
    /// The address spaces of other processes.
    pub(crate) fn other_memories(&self) -> impl Iterator<Item = &AddressSpace> {
        self.others.memories.values().map(|memory| &**memory)
    }

    /// Finds the address of a new shared mapping; for a file that is already shared, that of its pages.
    ///
    /// # Errors
    /// `ENOMEM`: there is none.
    pub fn find_shared(&self, bytes: u64, file: Option<(NodeId, u64)>) -> Result<PageRange, Errno> {
        let shared = everything().map(|all| self.others.shared.pieces(all)).unwrap_or_default();
        let Some((node, offset)) = file else { return self.free_shared(bytes) };
        let there =
            shared.iter().find_map(|(pages, region)| region.backing.node().filter(|file| file.node == node).map(|file| (pages, file)));
        let Some((pages, file)) = there else {
            let room = self.free_shared(offset.saturating_add(bytes).saturating_add(FILE_ROOM))?;
            return PageRange::new(room.start() + offset, room.start() + offset + bytes).ok_or(Errno::ENOMEM);
        };
        let start = pages.start().wrapping_add(offset).wrapping_sub(file.at(pages.start()));
        let range =
            PageRange::new(start, start.wrapping_add(bytes)).filter(|range| shared_part(*range) == Some(*range)).ok_or(Errno::ENOMEM)?;
        let is_its =
            |(_, region): &(PageRange, Region)| region.backing.node().is_some_and(|other| other.node == node && other.at(start) == offset);
        let fits = |regions: &[(PageRange, Region)]| regions.iter().all(is_its);
        if fits(&self.memory.pieces(range)) && fits(&self.others.shared.pieces(range)) { Ok(range) } else { Err(Errno::ENOMEM) }
    }

    /// Finds addresses that no process uses.
    pub(crate) fn free_shared(&self, bytes: u64) -> Result<PageRange, Errno> {
        let alignment = if bytes >= pando_abi::LARGE_PAGE_SIZE { pando_abi::LARGE_PAGE_SIZE } else { PAGE_SIZE };
        let bytes = bytes.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::ENOMEM)?;
        self.others.shared.find(bytes, alignment, SHARED..SHARED_END, &(0..0)).ok_or(Errno::ENOMEM)
    }

    /// Maps shared zero memory at addresses that were found for it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map_shared(&mut self, range: PageRange, permissions: Permissions) -> Result<(), Errno> {
        self.memory.map(range, permissions, Backing::Shared(SharedObject::new(range)))?;
        self.claim(range);
        Ok(())
    }

    /// Notes that the running process's mappings in a range lie in the shared segment.
    pub fn claim(&mut self, range: PageRange) {
        let Some(range) = shared_part(range) else { return };
        for (piece, region) in self.memory.pieces(range) {
            self.others.shared.put(piece, region);
        }
    }

    /// Whether other processes have, or may get, mappings in a range.
    fn is_of_others(&self, range: PageRange) -> bool {
        let is_segment = |(_, region): &(PageRange, Region)| matches!(region.backing, Backing::Segment(_));
        shared_part(range).is_some_and(|range| {
            self.other_memories().any(|memory| !memory.is_free(range)) || self.others.shared.pieces(range).iter().any(is_segment)
        })
    }

    /// Gives up the running process's mappings where it is about to map something else.
    ///
    /// # Errors
    /// `ENOMEM`: others share what lies there, so nothing else can be mapped.
    pub fn make_way(&mut self, range: PageRange) -> Result<(), Errno> {
        if self.is_of_others(range) {
            return Err(Errno::ENOMEM);
        }
        self.before_unmap(range);
        self.leave_shared(range);
        Ok(())
    }

    /// Changes permissions for the running process.
    ///
    /// # Errors
    /// Those of [`AddressSpace::protect`].
    pub fn protect(&mut self, range: PageRange, permissions: Permissions) -> Result<(), Errno> {
        if !permissions.readable() {
            // Changes in these pages cannot be read, and so not taken over, later.
            self.before_unmap(range);
        }
        let result = self.memory.protect(range, permissions);
        for (piece, region) in shared_part(range).map(|range| self.memory.pieces(range)).unwrap_or_default() {
            let differs = |(_, other): &(PageRange, Region)| other.permissions != region.permissions;
            let others = self.other_memories().flat_map(|memory| memory.pieces(piece)).filter(differs);
            let contested: Vec<(PageRange, Region)> = others.chain(self.others.contested.pieces(piece)).collect();
            for (part, _) in contested {
                self.others.contested.put(part, region);
            }
        }
        result
    }

    /// Gives pages with differing permissions those of the running process.
    pub(crate) fn apply_permissions(&mut self) {
        if let Some(all) = everything().filter(|_| self.others.contested.count() > 0) {
            self.apply_permissions_in(all);
        }
    }

    /// The same in a range. Pages that only other processes have mapped become inaccessible.
    pub(crate) fn apply_permissions_in(&mut self, range: PageRange) {
        for (piece, mapped) in self.others.contested.pieces(range) {
            let mut wanted = self.memory.pieces(piece);
            if self.is_hidden_from_others(mapped.backing) {
                let hidden = Region { permissions: Permissions::NONE, ..mapped };
                let gaps = gaps(piece, &wanted);
                wanted.extend(gaps.into_iter().map(|gap| (gap, hidden)));
            }
            for (part, region) in wanted {
                if region.permissions == mapped.permissions || region.backing.is_nothing() {
                    continue;
                }
                if !region.permissions.readable() {
                    self.before_unmap(part);
                }
                // Without memory for tables the permissions stay as they are, and the change is tried again.
                if memory::protect(part, region.permissions).is_ok() {
                    self.others.contested.put(part, region);
                }
            }
        }
    }

    /// Maps a part of a file at addresses that were found for it.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`.
    pub fn map_shared_node(&mut self, range: PageRange, permissions: Permissions, file: NodePages) -> Result<(), Errno> {
        if self.memory.is_full() {
            return Err(Errno::ENOMEM);
        }
        if file.sharing == Sharing::Writes {
            for (piece, region) in self.others.shared.pieces(range) {
                self.others.shared.put(piece, Region { backing: region.backing.of(file), ..region });
            }
        }
        let regions = self.memory.pieces(range);
        for missing in gaps(range, &regions) {
            self.map_others_node(missing, permissions, file)?;
        }
        // Two mappings of one part count as one: it goes when both are unmapped, and has the permissions of both.
        for (piece, _) in regions {
            self.memory.map_counts.add(piece);
            self.permit(piece, permissions, file)?;
        }
        Ok(())
    }

    /// Maps a part of a file that the running process has not mapped. The pages that other processes have of it are used.
    fn map_others_node(&mut self, range: PageRange, permissions: Permissions, file: NodePages) -> Result<(), Errno> {
        let shared_regions = self.others.shared.pieces(range);
        for missing in gaps(range, &shared_regions) {
            self.map_node(missing, permissions, file)?;
            self.claim(missing);
        }
        for (piece, region) in shared_regions {
            let both = union(region.permissions, permissions);
            if permissions.writable() && !region.backing.is_nothing() {
                memory::protect(piece, both)?;
            }
            self.others.shared.put(piece, Region { permissions: both, ..region });
            self.memory.note(piece, Region { permissions, backing: region.backing.of(file) });
        }
        self.apply_permissions();
        Ok(())
    }

    /// Adds the permissions of a second mapping of the same part of a file to the first.
    fn permit(&mut self, range: PageRange, permissions: Permissions, file: NodePages) -> Result<(), Errno> {
        for (piece, there) in self.memory.pieces(range) {
            let both = union(there.permissions, permissions);
            if both == there.permissions {
                continue;
            }
            let file = if permissions.writable() { Some(file) } else { there.backing.node() };
            let backing = file.map_or(there.backing, |file| there.backing.of(file));
            if !backing.is_nothing() {
                memory::protect(piece, both)?;
            }
            self.memory.note(piece, Region { permissions: both, backing });
        }
        self.apply_permissions();
        Ok(())
    }

    /// Resizes a shared mapping, at another address if it may move and there is no room. Parts that others share stay mapped for
    /// them. Returns the address. Memory without a file keeps the end that it was made with.
    ///
    /// # Errors
    /// `EFAULT`: it is not mapped as a whole. `ENOMEM`.
    pub fn remap_shared(&mut self, old: PageRange, bytes: u64, target: RemapTarget) -> Result<u64, Errno> {
        let (_, region) = self.memory.pieces(old).first().copied().filter(|_| self.memory.is_covered(old)).ok_or(Errno::EFAULT)?;
        if let RemapTarget::At(address) = target {
            return self.move_shared(old, region, pages(address, bytes)?);
        }
        let end = old.start().checked_add(bytes).ok_or(Errno::ENOMEM)?;
        if let Some(rest) = PageRange::new(end, old.end()) {
            self.unmap(rest)?;
        }
        if bytes <= old.bytes() {
            return Ok(old.start());
        }
        // A segment keeps the size that it was made with.
        if matches!(region.backing, Backing::Segment(_)) {
            return Err(Errno::EINVAL);
        }
        let file = region.backing.node();
        let grows_elsewhere = file.is_some() || matches!(region.backing, Backing::Shared(object) if self.is_object_of_others(object));
        let grown = PageRange::new(old.end(), end).filter(|grown| shared_part(*grown) == Some(*grown));
        if let Some(grown) = grown.filter(|grown| self.memory.is_free(*grown) && self.others.shared.is_free(*grown)) {
            match file {
                Some(file) => self.map_shared_node(grown, region.permissions, file)?,
                None => self.memory.map(grown, region.permissions, Backing::Beyond(None))?,
            }
            self.claim(grown);
            return Ok(old.start());
        }
        if target == RemapTarget::Stay {
            return Err(Errno::ENOMEM);
        }
        // A file has one range in the shared segment.
        let range = if grows_elsewhere { self.memory.find(bytes, PAGE_SIZE)? } else { self.free_shared(bytes)? };
        self.move_shared(old, region, range)
    }

    /// Maps `bytes` of a shared mapping a second time, from `address` on, perhaps at a chosen range. Returns the address.
    ///
    /// In the shared segment the second mapping lies where the first one lies, and counts as one more.
    ///
    /// # Errors
    /// `ENOMEM`: there is no room, or the range is chosen and the memory has no file.
    pub fn duplicate_shared(&mut self, address: u64, region: Region, bytes: u64, chosen: Option<PageRange>) -> Result<u64, Errno> {
        if let Some(file) = region.backing.node() {
            let offset = file.at(address);
            if chosen.is_none() && is_shared(address) {
                let range = self.find_shared(bytes, Some((file.node, offset)))?;
                let pages = NodePages::new(file.node, file.sharing, range.start(), offset);
                self.map_shared_node(range, region.permissions, pages)?;
                return Ok(range.start());
            }
            let to = chosen.map_or_else(|| self.memory.find(bytes, PAGE_SIZE), Ok)?;
            self.map_node(to, region.permissions, NodePages::new(file.node, file.sharing, to.start(), offset))?;
            self.claim(to);
            return Ok(to.start());
        }
        if let Backing::Blocks(_) = region.backing {
            let to = chosen.map_or_else(|| self.memory.find(bytes, PAGE_SIZE), Ok)?;
            self.memory.map(to, region.permissions, region.backing.moved(address, to.start()))?;
            self.claim(to);
            return Ok(to.start());
        }
        let range = pages(address, bytes)?;
        let regions = self.memory.pieces(range);
        let end = regions.iter().take_while(|(_, other)| other.backing == region.backing).last().map_or(address, |(piece, _)| piece.end());
        let behind = PageRange::new(end, range.end());
        let is_free = |behind| self.memory.is_free(behind) && self.others.shared.is_free(behind) && shared_part(behind) == Some(behind);
        if chosen.is_some() || self.memory.is_full() || !behind.is_none_or(is_free) {
            return Err(Errno::ENOMEM);
        }
        if let Some(behind) = behind {
            self.memory.map(behind, region.permissions, Backing::Beyond(None))?;
            self.claim(behind);
        }
        PageRange::new(address, end).into_iter().for_each(|again| self.memory.map_counts.add(again));
        Ok(address)
    }

    /// Moves a shared mapping to addresses with room for it. A file's mapping joins the pages that others have there. Anonymous
    /// memory that other processes share becomes a file. A System V segment cannot move while others have it attached.
    fn move_shared(&mut self, old: PageRange, region: Region, to: PageRange) -> Result<u64, Errno> {
        let file = match region.backing {
            Backing::Shared(object) if self.is_object_of_others(object) => {
                let is_its = |(_, part): &(PageRange, Region)| part.backing == region.backing || part.backing.is_nothing();
                if !self.memory.pieces(old).iter().all(is_its) {
                    return Err(Errno::EFAULT);
                }
                Some(self.make_file_of_shared(object)?)
            }
            backing => backing.node(),
        };
        if let Some(file) = file {
            let file = NodePages::new(file.node, file.sharing, to.start(), file.at(old.start()));
            self.map_node(to, region.permissions, file)?;
            self.claim(to);
            self.unmap(old)?;
            return Ok(to.start());
        }
        if self.is_of_others(old) {
            return Err(Errno::ENOMEM);
        }
        self.leave_shared(old);
        let moved = self.memory.remap(old, old.bytes().min(to.bytes()), RemapTarget::At(to.start()));
        self.claim(old);
        if let Some(rest) = PageRange::new(moved? + old.bytes(), to.end()) {
            self.memory.map(rest, region.permissions, Backing::Beyond(None))?;
        }
        self.claim(to);
        Ok(to.start())
    }

    /// Unmaps a range; pages that were mapped twice stay mapped once.
    ///
    /// # Errors
    /// `ENOMEM`: no memory for the kernel's tables.
    pub fn unmap(&mut self, range: PageRange) -> Result<(), Errno> {
        for part in self.memory.map_counts.take(range) {
            self.before_unmap(part);
            let had = shared_part(part).map(|shared| self.memory.pieces(shared)).unwrap_or_default();
            self.leave_shared(part);
            self.memory.unmap(part)?;
            self.conceal(&had);
        }
        Ok(())
    }

    /// Makes pages inaccessible that the running process had mapped and others still share.
    pub(crate) fn conceal(&mut self, had: &[(PageRange, Region)]) {
        for &(piece, region) in had.iter().filter(|(_, region)| self.is_hidden_from_others(region.backing)).collect::<Vec<_>>() {
            for (part, _) in self.others.shared.pieces(piece) {
                for uncontested in gaps(part, &self.others.contested.pieces(part)) {
                    self.others.contested.put(uncontested, region);
                }
                self.apply_permissions_in(part);
            }
        }
    }

    /// Gives up the running process's mappings in a range; pages that others share stay for them.
    pub fn leave_shared(&mut self, range: PageRange) {
        let Some(range) = shared_part(range).filter(|_| self.others.shared.count() > 0) else { return };
        self.leave_segments(range);
        self.memory.map_counts.clear(range);
        for (piece, _) in self.memory.pieces(range) {
            let other_pieces: Vec<PageRange> =
                self.other_memories().flat_map(|memory| memory.pieces(piece)).map(|(part, _)| part).collect();
            for part in &other_pieces {
                self.memory.forget(*part);
            }
            for (part, _) in self.memory.pieces(piece) {
                self.vacate(part);
            }
        }
    }

    /// Notes that no process has anything in a range any more.
    pub(crate) fn vacate(&mut self, range: PageRange) {
        self.others.shared.remove(range);
        self.others.contested.remove(range);
    }

    /// Gives up all shared mappings of the running process.
    pub(crate) fn leave_all_shared(&mut self) {
        let Some(all) = everything().filter(|_| self.others.shared.count() > 0) else { return };
        self.leave_shared(all);
        // Pages that only this process had are freed.
        let _ = self.memory.unmap(all);
    }
}
