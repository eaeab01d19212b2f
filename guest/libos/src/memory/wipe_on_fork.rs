// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges that children get as zeros (`MADV_WIPEONFORK`), so that they do not repeat random state, and ranges that they do not get
//! (`MADV_DONTFORK`).

use pando_rt::memory::{self, PageRange};

use super::AddressSpace;
use super::layout::is_shared;
use super::population_plan::plan;
use super::regions::Regions;
use crate::errno::Errno;

impl AddressSpace {
    /// Makes children get a range as zeros.
    ///
    /// # Errors
    /// `EINVAL`: the range contains a mapping of a file.
    pub fn wipe_in_children(&mut self, range: PageRange) -> Result<(), Errno> {
        let pieces = self.regions.pieces(range);
        if pieces.iter().any(|(_, region)| region.backing.is_file()) {
            return Err(Errno::EINVAL);
        }
        pieces.into_iter().for_each(|(piece, region)| self.wipe_on_fork.put(piece, region));
        Ok(())
    }

    /// Makes children get a range unchanged (`MADV_KEEPONFORK`).
    pub fn keep_in_children(&mut self, range: PageRange) {
        self.wipe_on_fork.remove(range);
    }

    /// Excludes a range from children (`MADV_DONTFORK`).
    pub fn withhold_from_children(&mut self, range: PageRange) {
        self.regions.pieces(range).into_iter().for_each(|(piece, region)| self.dont_fork.put(piece, region));
    }

    /// Includes a range in children again (`MADV_DOFORK`).
    pub fn give_to_children(&mut self, range: PageRange) {
        self.dont_fork.remove(range);
    }

    /// Removes withheld ranges from a child, in its own space. Memory shared with others stays mapped.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn withhold(&mut self) -> Result<(), Errno> {
        // Locks are not inherited either.
        self.locked = Regions::default();
        for (part, _) in core::mem::take(&mut self.dont_fork).all() {
            for (piece, region) in self.regions.remove(part) {
                if !region.backing.is_nothing() && !is_shared(piece.start()) {
                    memory::unmap_in(self.space.0.into(), piece)?;
                }
            }
        }
        Ok(())
    }

    /// Drops the advice for pages that are unmapped or replaced.
    pub(super) fn forget_advice(&mut self, range: PageRange) {
        for advised in [&mut self.wipe_on_fork, &mut self.dont_fork, &mut self.locked] {
            if advised.count() > 0 {
                advised.remove(range);
            }
        }
    }

    /// Locked bytes.
    #[must_use]
    pub fn locked_bytes(&self) -> u64 {
        self.locked.all().iter().map(|(range, _)| range.bytes()).sum()
    }

    /// Locked bytes of a range.
    #[must_use]
    pub fn locked_in(&self, range: PageRange) -> u64 {
        self.locked.pieces(range).iter().map(|(part, _)| part.bytes()).sum()
    }

    /// Records that pages are locked or unlocked. All pages stay in memory anyway.
    pub fn set_locked(&mut self, range: PageRange, is_locked: bool) {
        if is_locked {
            self.regions.pieces(range).into_iter().for_each(|(piece, region)| self.locked.put(piece, region));
        } else {
            self.locked.remove(range);
        }
    }

    /// Takes note that nothing is asked to stay in memory any more.
    pub fn unlock_all(&mut self) {
        self.locked = Regions::default();
    }

    /// Zeroes the `MADV_WIPEONFORK` ranges in the child's address space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn wipe(&self) -> Result<(), Errno> {
        let wiped = self.wipe_on_fork.all().into_iter().flat_map(|(part, _)| self.regions.pieces(part));
        for (piece, region) in wiped.filter(|(_, region)| !region.backing.is_nothing()) {
            plan(piece, region.permissions, region.backing)
                .try_for_each(|(part, flags)| memory::map_in(self.space.0.into(), part, flags))?;
        }
        Ok(())
    }
}
