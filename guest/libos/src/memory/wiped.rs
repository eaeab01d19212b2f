// SPDX-License-Identifier: MIT OR Apache-2.0
//! What children get as zeros (`MADV_WIPEONFORK`), so that what is random in a process does not come again in its children; and what they do not get at all (`MADV_DONTFORK`).

use pando_rt::memory::{self, PageRange};

use super::AddressSpace;
use super::backing::plan;
use super::regions::Regions;
use crate::errno::Errno;
use crate::shared::is_shared;

impl AddressSpace {
    /// Lets children get a range as zeros.
    ///
    /// # Errors
    /// `EINVAL`: something else is mapped there than private memory.
    pub fn wipe_in_children(&mut self, range: PageRange) -> Result<(), Errno> {
        let pieces = self.regions.pieces(range);
        if pieces.iter().any(|(_, region)| region.backing.is_file()) {
            return Err(Errno::EINVAL);
        }
        pieces.into_iter().for_each(|(piece, region)| self.wiped.put(piece, region));
        Ok(())
    }

    /// Lets children get a range as it is.
    pub fn keep_in_children(&mut self, range: PageRange) {
        self.wiped.remove(range);
    }

    /// Keeps a range from children.
    pub fn withhold_from_children(&mut self, range: PageRange) {
        self.regions.pieces(range).into_iter().for_each(|(piece, region)| self.withheld.put(piece, region));
    }

    /// Lets children get a range again.
    pub fn give_to_children(&mut self, range: PageRange) {
        self.withheld.remove(range);
    }

    /// Takes from a child, in its own space, what it does not get. What others share stays where it is.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn withhold(&mut self) -> Result<(), Errno> {
        // Nor is anything locked for it.
        self.locked = Regions::default();
        for (part, _) in core::mem::take(&mut self.withheld).all() {
            for (piece, region) in self.regions.remove(part) {
                if !region.backing.is_nothing() && !is_shared(piece.start()) {
                    memory::unmap_in(self.space.0.into(), piece)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets what was asked for pages that are gone, or are something else now.
    pub(super) fn forget_advice(&mut self, range: PageRange) {
        for advised in [&mut self.wiped, &mut self.withheld, &mut self.locked] {
            if advised.count() > 0 {
                advised.remove(range);
            }
        }
    }

    /// Bytes that were asked to stay in memory.
    #[must_use]
    pub fn locked_bytes(&self) -> u64 {
        self.locked.all().iter().map(|(range, _)| range.bytes()).sum()
    }

    /// Bytes of a range that were asked to stay in memory.
    #[must_use]
    pub fn locked_in(&self, range: PageRange) -> u64 {
        self.locked.pieces(range).iter().map(|(part, _)| part.bytes()).sum()
    }

    /// Takes note that pages are to stay in memory, or need not any more. They do anyway.
    pub fn set_locked(&mut self, range: PageRange, is_locked: bool) {
        if is_locked {
            self.regions.pieces(range).into_iter().for_each(|(piece, region)| self.locked.put(piece, region));
        } else {
            self.locked.remove(range);
        }
    }

    /// Makes zeros of what a child gets as such, in its own space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn wipe(&self) -> Result<(), Errno> {
        let wiped = self.wiped.all().into_iter().flat_map(|(part, _)| self.regions.pieces(part));
        for (piece, region) in wiped.filter(|(_, region)| !region.backing.is_nothing()) {
            plan(piece, region.permissions, region.backing)
                .try_for_each(|(part, flags)| memory::map_in(self.space.0.into(), part, flags))?;
        }
        Ok(())
    }
}
