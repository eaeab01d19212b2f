// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults in the running space, and the kernel's own reads and writes of it.

use super::page_span::PageSpan;
use super::set::SpaceSet;
use super::space::MountSource;
use crate::limits::FAULT_AROUND;
use crate::memory::frames::{AccountId, Frames, Shortage};
use crate::memory::paging::{Access, CopyAuthority, CopyError, FaultOutcome};
use crate::memory::prefetch::VirtualPage;
use crate::memory::rules::OmittedRules;
use crate::memory::tree::Tree;
use pando_abi::PAGE_SIZE;
use pando_abi::layout::{SLOT_SIZE, USER_END};
use pando_machine::{ExecutableBytes, FRAME_SIZE};
use std::ops::Range;

impl SpaceSet {
    /// Resolves a fault in the running space.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn resolve(&mut self, frames: &mut Frames, address: u64, access: Access) -> Result<FaultOutcome, Shortage> {
        let account = self.account;
        let Ok(range) = self.check(self.current, address & !(PAGE_SIZE - 1), 1) else { return Ok(FaultOutcome::Refused) };
        let Some(tree) = self.tree(range.space, range.slot) else { return Ok(FaultOutcome::Refused) };
        if access == Access::Write && tree.is_copied_on_write(frames, range.pages.start) && self.copy_cluster(frames, &range) {
            self.note_written(range.first().at);
            return Ok(FaultOutcome::CopiedCluster);
        }
        let is_traced = self.training_trace.is_some();
        let Some(tree) = self.tree(range.space, range.slot) else { return Ok(FaultOutcome::Refused) };
        let resolve = if is_traced { Tree::resolve_without_fault_around } else { Tree::resolve };
        let fault = resolve(tree, frames, account, range.pages.start, access)?;
        if matches!(fault, FaultOutcome::Copied { .. }) {
            if self.is_mounted_twice(range.slot) {
                // The retried write makes the vCPU see the copy at only one of its addresses.
                self.restamp(frames);
            }
            self.note_written(range.first().at);
        }
        if fault == FaultOutcome::Allocated && access == Access::Write {
            // The whole group, which became present with the page. The next clone skips those of its pages that are not lazy there.
            let VirtualPage { slot, number } = range.first().at;
            let start = number - number % FAULT_AROUND;
            self.note_written_as_clone(VirtualPage { slot, number: start }..VirtualPage { slot, number: start + FAULT_AROUND });
        }
        if fault == FaultOutcome::Mapped {
            self.note_miss();
        }
        if matches!(fault, FaultOutcome::Copied { .. } | FaultOutcome::Allocated | FaultOutcome::Mapped) {
            self.note_access(frames, &range, access);
        }
        Ok(fault)
    }

    /// Whether the running space mounts the segment in a slot in another slot, too.
    fn is_mounted_twice(&mut self, slot: usize) -> bool {
        let Ok(space) = self.space(self.current) else { return false };
        let Some(MountSource::Segment(index)) = space.at(slot) else { return false };
        let index = *index;
        space.mounts.iter().any(|mount| mount.slot != slot && matches!(mount.source, MountSource::Segment(other) if other == index))
    }

    /// Moves the path to an address of the running space into fresh tables.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn renew_path(&mut self, frames: &mut Frames, address: u64) -> Result<(), Shortage> {
        if frames.rules().omits(OmittedRules::WITHOUT_CONFIRMATION) {
            return Ok(());
        }
        let account = self.account;
        let Ok(range) = self.check(self.current, address & !(PAGE_SIZE - 1), 1) else { return Ok(()) };
        match self.tree(range.space, range.slot) {
            Some(tree) => tree.renew_path(frames, account, range.pages.start),
            None => Ok(()),
        }
    }

    /// The same for a cell whose account may be full ([`Tree::renew_path_beyond_quota`]).
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub(crate) fn renew_path_beyond_quota(&mut self, frames: &mut Frames, address: u64) -> Result<(), Shortage> {
        if frames.rules().omits(OmittedRules::WITHOUT_CONFIRMATION) {
            return Ok(());
        }
        let account = self.account;
        let Ok(range) = self.check(self.current, address & !(PAGE_SIZE - 1), 1) else { return Ok(()) };
        match self.tree(range.space, range.slot) {
            Some(tree) => tree.renew_path_beyond_quota(frames, account, range.pages.start),
            None => Ok(()),
        }
    }

    /// Copies bytes out of the running space.
    ///
    /// # Errors
    /// They are not all mapped, or may not be read.
    pub fn read(&mut self, frames: &Frames, address: u64, bytes: &mut [u8], authority: CopyAuthority) -> Result<(), CopyError> {
        let (tree, _, offset) = self.locate(address, bytes.len())?;
        tree.read(frames, offset, bytes, authority).map_err(|error| self.in_current(error, address))
    }

    /// Copies bytes into the running space.
    ///
    /// # Errors
    /// They are not all mapped, or may not be written, or there is no memory for them.
    pub fn write(&mut self, frames: &mut Frames, address: u64, bytes: &[u8], authority: CopyAuthority) -> Result<(), CopyError> {
        let (tree, account, offset) = self.locate(address, bytes.len())?;
        tree.write(frames, account, offset, bytes, authority).map_err(|error| self.in_current(error, address))
    }

    /// Fills whole pages of the running space with pages of the program's file, regardless of their permissions.
    ///
    /// # Errors
    /// They are not all mapped, or there is no memory for them.
    pub fn load(&mut self, frames: &mut Frames, address: u64, bytes: &'static ExecutableBytes, pages: Range<u32>) -> Result<(), CopyError> {
        let length = (pages.end - pages.start) as usize * FRAME_SIZE;
        let (tree, account, offset) = self.locate(address, length)?;
        tree.load(frames, account, offset, bytes, pages).map_err(|error| self.in_current(error, address))
    }

    /// Finds the tree that contains `length` bytes of the running space, the account that pays for it, and the bytes' offset in it.
    pub(super) fn locate(&mut self, address: u64, length: usize) -> Result<(&mut Tree, AccountId, u64), CopyError> {
        let account = self.account;
        let (slot, offset) = slot_and_offset(address, length)?;
        let tree = self.tree(self.current, slot).ok_or(CopyError::Refused)?;
        Ok((tree, account, offset))
    }

    /// Copies bytes out of mapped pages, from `within` bytes into the first of them on, regardless of their permissions.
    ///
    /// # Errors
    /// They are not all mapped, or a block must be read first.
    pub fn read_from(&mut self, frames: &Frames, range: &PageSpan, within: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let tree = self.tree(range.space, range.slot).ok_or(CopyError::Refused)?;
        tree.read(frames, range.pages.start * PAGE_SIZE + within, bytes, CopyAuthority::Operator)
            .map_err(|error| error.in_slot(range.space, range.slot))
    }

    /// Copies bytes into mapped pages, from `within` bytes into the first of them on, regardless of their permissions.
    ///
    /// # Errors
    /// They are not all mapped, or there is no memory for copies of them; nothing has been written.
    pub fn write_into(&mut self, frames: &mut Frames, range: &PageSpan, within: u64, bytes: &[u8]) -> Result<(), CopyError> {
        let account = self.account;
        let tree = self.tree(range.space, range.slot).ok_or(CopyError::Refused)?;
        for page in range.pages.clone() {
            tree.make_exclusive(frames, account, page).map_err(|error| error.in_slot(range.space, range.slot))?;
        }
        tree.write(frames, account, range.pages.start * PAGE_SIZE + within, bytes, CopyAuthority::Operator)
            .map_err(|error| error.in_slot(range.space, range.slot))
    }

    /// Whether the cell may write `length` bytes at an address of the running space, and no entry of a table has to change for it.
    ///
    /// # Errors
    /// They are not all mapped, or may not be written.
    pub fn is_present_for_writing(&mut self, frames: &Frames, address: u64, length: usize) -> Result<bool, CopyError> {
        let (tree, _, offset) = self.locate(address, length)?;
        tree.is_present_for_writing(frames, offset, length)
    }

    /// Makes `length` bytes at an address of the running space present and exclusive to the cell, which may write them.
    ///
    /// # Errors
    /// They are not all mapped, or may not be written, or there is no memory for them.
    pub fn prefault_for_writing(&mut self, frames: &mut Frames, address: u64, length: usize) -> Result<(), CopyError> {
        if self.is_present_for_writing(frames, address, length)? {
            return Ok(());
        }
        let last = address.saturating_add(length as u64).div_ceil(PAGE_SIZE);
        (address / PAGE_SIZE..last).try_for_each(|page| self.make_exclusive(frames, page * PAGE_SIZE))
    }

    /// Makes the page at an address of the running space present and exclusive to the cell: no write to it fails until the next clone.
    ///
    /// # Errors
    /// Nothing is mapped there, or there is no memory for it.
    pub fn make_exclusive(&mut self, frames: &mut Frames, address: u64) -> Result<(), CopyError> {
        let (tree, account, offset) = self.locate(address, 1)?;
        tree.make_exclusive(frames, account, offset / PAGE_SIZE).map_err(|error| self.in_current(error, address))
    }

    /// The error of an access to the slot of an address in the running space.
    pub(super) fn in_current(&self, error: CopyError, address: u64) -> CopyError {
        error.in_slot(self.current, (address / SLOT_SIZE) as usize)
    }
}

/// The slot that contains `length` bytes at an address, and their offset in it.
fn slot_and_offset(address: u64, length: usize) -> Result<(usize, u64), CopyError> {
    let end = address.checked_add(length as u64).ok_or(CopyError::Refused)?;
    let slot = address / SLOT_SIZE;
    if end > USER_END || (length > 0 && (end - 1) / SLOT_SIZE != slot) {
        return Err(CopyError::Refused);
    }
    Ok((slot as usize, address % SLOT_SIZE))
}
