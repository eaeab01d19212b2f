// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that processes share: one segment of the cell, mounted at the same place in every space.
//!
//! What is mapped shared lies there once, at an address of its own, and whoever shares it has it at that address: a child what its parent mapped, and everybody a
//! file of the overlay. So all see one content at once. The pages go when the last address space gives them up. A process that reads where it has mapped nothing may find
//! what others share; the cell is the wall, not the process. Mappings whose address the program has chosen lie elsewhere, and are joined when somebody looks ([`crate::mapped`]).
//!
//! The pages permit one thing at a time, and one process runs at a time: what a process has protected otherwise than others gets its permissions when it is its turn.

use alloc::vec::Vec;

use pando_abi::layout::{SHARED, SHARED_END};
use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::{self, PageRange};

use crate::errno::Errno;
use crate::files::tree::node::NodeId;
use crate::memory::regions::{Backing, NodePages, Region, Sharing};
use crate::memory::remap::Target;
use crate::memory::{AddressSpace, pages};
use crate::system::System;

/// Room for a file to grow in place.
const FILE_ROOM: u64 = 64 << 20;

/// Whether an address lies where processes share memory.
#[must_use]
pub fn is_shared(address: u64) -> bool {
    (SHARED..SHARED_END).contains(&address)
}

/// All that is shared.
fn everything() -> Option<PageRange> {
    PageRange::new(SHARED, SHARED_END)
}

/// The part of a range that is shared.
pub fn shared_part(range: PageRange) -> Option<PageRange> {
    PageRange::new(range.start().max(SHARED), range.end().min(SHARED_END))
}

/// What either of two permits.
pub(crate) fn union(one: Permissions, other: Permissions) -> Permissions {
    Permissions::from_bits(one.bits() | other.bits()).unwrap_or(one)
}

/// What lies between pieces of a range, which are in order.
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

    /// Finds the place for a shared mapping: of a file that somebody shares already, where its pages are.
    ///
    /// # Errors
    /// `ENOMEM`: there is none.
    pub fn place_shared(&self, bytes: u64, file: Option<(NodeId, u64)>) -> Result<PageRange, Errno> {
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

    /// Finds room that nobody has.
    pub(crate) fn free_shared(&self, bytes: u64) -> Result<PageRange, Errno> {
        let alignment = if bytes >= pando_abi::LARGE_PAGE_SIZE { pando_abi::LARGE_PAGE_SIZE } else { PAGE_SIZE };
        let bytes = bytes.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::ENOMEM)?;
        self.others.shared.find(bytes, alignment, SHARED..SHARED_END, &(0..0)).ok_or(Errno::ENOMEM)
    }

    /// Maps shared zero memory at a place that was found for it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map_shared(&mut self, range: PageRange, permissions: Permissions) -> Result<(), Errno> {
        self.memory.map(range, permissions, Backing::Shared)?;
        self.claim(range);
        Ok(())
    }

    /// Takes note that what the running process has in a range is where processes share memory.
    pub fn claim(&mut self, range: PageRange) {
        let Some(range) = shared_part(range) else { return };
        for (piece, region) in self.memory.pieces(range) {
            self.others.shared.put(piece, region);
        }
    }

    /// Whether others have, or may get, what lies in a range.
    fn is_of_others(&self, range: PageRange) -> bool {
        let is_segment = |(_, region): &(PageRange, Region)| matches!(region.backing, Backing::Segment(_));
        shared_part(range).is_some_and(|range| {
            self.other_memories().any(|memory| !memory.is_free(range)) || self.others.shared.pieces(range).iter().any(is_segment)
        })
    }

    /// Gives up what the running process has where it is about to map something else.
    ///
    /// # Errors
    /// `ENOMEM`: others share what lies there, so nothing else can.
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
            // What was written could not be taken over later.
            self.before_unmap(range);
        }
        let result = self.memory.protect(range, permissions);
        for (piece, own) in shared_part(range).map(|range| self.memory.pieces(range)).unwrap_or_default() {
            let differs = |(_, other): &(PageRange, Region)| other.permissions != own.permissions;
            let others = self.other_memories().flat_map(|memory| memory.pieces(piece)).filter(differs);
            let contested: Vec<(PageRange, Region)> = others.chain(self.others.contested.pieces(piece)).collect();
            for (part, _) in contested {
                self.others.contested.put(part, own);
            }
        }
        result
    }

    /// Gives shared memory that is contested the running process's permissions.
    pub(crate) fn settle_shared(&mut self) {
        if let Some(all) = everything().filter(|_| self.others.contested.count() > 0) {
            self.settle_shared_in(all);
        }
    }

    /// The same in a range. What the process does not have, and others do, is out of its reach.
    pub(crate) fn settle_shared_in(&mut self, range: PageRange) {
        for (piece, mapped) in self.others.contested.pieces(range) {
            let mut wanted = self.memory.pieces(piece);
            if mapped.backing.node().is_none() {
                let hidden = Region { permissions: Permissions::NONE, ..mapped };
                let gaps = gaps(piece, &wanted);
                wanted.extend(gaps.into_iter().map(|gap| (gap, hidden)));
            }
            for (part, own) in wanted {
                if own.permissions == mapped.permissions || own.backing.is_nothing() {
                    continue;
                }
                if !own.permissions.readable() {
                    self.before_unmap(part);
                }
                // Without memory for tables it stays as it is, and is tried again.
                if memory::protect(part, own.permissions).is_ok() {
                    self.others.contested.put(part, own);
                }
            }
        }
    }

    /// Maps a part of a file at a place that was found for it.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`.
    pub fn map_shared_node(&mut self, range: PageRange, permissions: Permissions, file: NodePages) -> Result<(), Errno> {
        if self.memory.is_full() {
            return Err(Errno::ENOMEM);
        }
        if file.sharing == Sharing::Writes {
            for (piece, known) in self.others.shared.pieces(range) {
                self.others.shared.put(piece, Region { backing: known.backing.of(file), ..known });
            }
        }
        let own = self.memory.pieces(range);
        for missing in gaps(range, &own) {
            self.map_others_node(missing, permissions, file)?;
        }
        // Two mappings of one part are one, which is given up when both are, and permits what either does.
        for (piece, _) in own {
            self.memory.again.add(piece);
            self.permit(piece, permissions, file)?;
        }
        Ok(())
    }

    /// Maps a part of a file that the running process has not mapped: what others have of it is there already.
    fn map_others_node(&mut self, range: PageRange, permissions: Permissions, file: NodePages) -> Result<(), Errno> {
        let there = self.others.shared.pieces(range);
        for missing in gaps(range, &there) {
            self.map_node(missing, permissions, file)?;
            self.claim(missing);
        }
        for (piece, known) in there {
            let both = union(known.permissions, permissions);
            if permissions.writable() && !known.backing.is_nothing() {
                memory::protect(piece, both)?;
            }
            self.others.shared.put(piece, Region { permissions: both, ..known });
            self.memory.note(piece, Region { permissions, backing: known.backing.of(file) });
        }
        self.settle_shared();
        Ok(())
    }

    /// Lets a mapping permit what another of the same part of its file does.
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
        self.settle_shared();
        Ok(())
    }

    /// Makes a shared mapping longer or shorter, elsewhere if it may move and there is no room; what others share of it stays. Returns where it is.
    /// Memory without a file ends where it did when it was made.
    ///
    /// # Errors
    /// `EFAULT`: it is not there whole. `ENOMEM`.
    pub fn remap_shared(&mut self, old: PageRange, bytes: u64, target: Target) -> Result<u64, Errno> {
        let (_, region) = self.memory.pieces(old).first().copied().filter(|_| self.memory.is_covered(old)).ok_or(Errno::EFAULT)?;
        if let Target::At(address) = target {
            return self.move_shared(old, region, pages(address, bytes)?);
        }
        let end = old.start().checked_add(bytes).ok_or(Errno::ENOMEM)?;
        if let Some(rest) = PageRange::new(end, old.end()) {
            self.unmap(rest)?;
        }
        if bytes <= old.bytes() {
            return Ok(old.start());
        }
        // A segment is as large as it was made.
        if matches!(region.backing, Backing::Segment(_)) {
            return Err(Errno::EINVAL);
        }
        let file = region.backing.node();
        let grown = PageRange::new(old.end(), end).filter(|grown| shared_part(*grown) == Some(*grown));
        if let Some(grown) = grown.filter(|grown| self.memory.is_free(*grown) && self.others.shared.is_free(*grown)) {
            match file {
                Some(file) => self.map_shared_node(grown, region.permissions, file)?,
                None => self.memory.map(grown, region.permissions, Backing::Beyond(None))?,
            }
            self.claim(grown);
            return Ok(old.start());
        }
        if target == Target::Stay || file.is_some() {
            return Err(Errno::ENOMEM);
        }
        let place = self.free_shared(bytes)?;
        self.move_shared(old, region, place)
    }

    /// Moves a shared mapping to where there is room for it. A file is joined there with what others have of it; memory without a file can move only if it is nobody else's.
    fn move_shared(&mut self, old: PageRange, region: Region, to: PageRange) -> Result<u64, Errno> {
        if let Some(file) = region.backing.node() {
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
        let moved = self.memory.remap(old, old.bytes().min(to.bytes()), Target::At(to.start()));
        self.claim(old);
        if let Some(rest) = PageRange::new(moved? + old.bytes(), to.end()) {
            self.memory.map(rest, region.permissions, Backing::Beyond(None))?;
        }
        self.claim(to);
        Ok(to.start())
    }

    /// Unmaps a range; what was mapped twice stays once.
    ///
    /// # Errors
    /// `ENOMEM`: no memory for the kernel's tables.
    pub fn unmap(&mut self, range: PageRange) -> Result<(), Errno> {
        for part in self.memory.again.take(range) {
            self.before_unmap(part);
            let had = shared_part(part).map(|shared| self.memory.pieces(shared)).unwrap_or_default();
            self.leave_shared(part);
            self.memory.unmap(part)?;
            self.conceal(&had);
        }
        Ok(())
    }

    /// Takes what the running process had, and others still share, out of its reach.
    pub(crate) fn conceal(&mut self, had: &[(PageRange, Region)]) {
        for &(piece, region) in had.iter().filter(|(_, region)| region.backing.node().is_none() && !region.backing.is_nothing()) {
            for (part, _) in self.others.shared.pieces(piece) {
                for uncontested in gaps(part, &self.others.contested.pieces(part)) {
                    self.others.contested.put(uncontested, region);
                }
                self.settle_shared_in(part);
            }
        }
    }

    /// Gives up what the running process has in a range; what others share stays where it is.
    pub fn leave_shared(&mut self, range: PageRange) {
        let Some(range) = shared_part(range).filter(|_| self.others.shared.count() > 0) else { return };
        self.leave_segments(range);
        self.memory.again.clear(range);
        for (piece, _) in self.memory.pieces(range) {
            let kept: Vec<PageRange> = self.other_memories().flat_map(|memory| memory.pieces(piece)).map(|(part, _)| part).collect();
            for part in &kept {
                self.memory.forget(*part);
            }
            for (part, _) in self.memory.pieces(piece) {
                self.vacate(part);
            }
        }
    }

    /// Takes note that nobody has anything in a range any more.
    pub(crate) fn vacate(&mut self, range: PageRange) {
        self.others.shared.remove(range);
        self.others.contested.remove(range);
    }

    /// Gives up all that the running process shares.
    pub(crate) fn leave_all_shared(&mut self) {
        let Some(all) = everything().filter(|_| self.others.shared.count() > 0) else { return };
        self.leave_shared(all);
        // What only it had goes.
        let _ = self.memory.unmap(all);
    }
}
