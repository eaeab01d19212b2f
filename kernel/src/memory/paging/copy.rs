// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own reads and writes of a cell's memory.
//!
//! A write breaks sharing first (rule 5). Reads and writes see the memory as the program does: lazy memory reads zero, and blocks of disks
//! are read first (the copy returns the block to read, and the caller tries again). The cell's permissions apply, unless the operator
//! copies: it may load a program into read-only pages.

use super::block_read::BlockRequest;
use super::error::MemoryError;
use super::residency::BlockAbsence;
use crate::memory::frames::{AccountId, Frames, Shortage};
use crate::memory::rules::OmittedRules;
use crate::memory::swapped_page::TakenPage;
use crate::memory::tree::{DecodedEntry, Lookup, PATH_TABLES, TREE_PAGES, Tree};
use pando_abi::{Refusal, SpaceIndex};
use pando_machine::{ExecutableBytes, FRAME_SIZE, FrameId};
use std::ops::Range;

/// Why a copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// Nothing is mapped there, or the program itself may not do this.
    #[error("the memory is not mapped, or its permissions forbid the access")]
    Refused,
    /// No memory for a page that must be made.
    #[error(transparent)]
    Shortage(#[from] Shortage),
    /// A block must be read first; then the copy can be tried again.
    #[error("the memory is a block of a disk that has not been read yet")]
    Absent(BlockRequest),
    /// It is a block that cannot be read.
    #[error("the memory is a block of a disk that cannot be read")]
    Unreadable,
    /// The parent of the cell has taken the page, and must give it back first. A tree knows the page's address in its slot only:
    /// [`CopyError::in_slot`] adds the rest.
    #[error("the parent of the cell has taken the memory")]
    Taken(TakenPage),
}

impl CopyError {
    /// The error of an access to this slot of a space.
    #[must_use]
    pub(in crate::memory) fn in_slot(self, space: SpaceIndex, slot: usize) -> CopyError {
        match self {
            CopyError::Taken(page) => CopyError::Taken(page.in_slot(space, slot)),
            other => other,
        }
    }
}

impl From<CopyError> for MemoryError {
    fn from(error: CopyError) -> MemoryError {
        match error {
            CopyError::Refused | CopyError::Unreadable => MemoryError::Refused(Refusal::BadAddress),
            CopyError::Shortage(shortage) => MemoryError::Shortage(shortage),
            CopyError::Absent(requested) => MemoryError::Absent(requested),
            CopyError::Taken(page) => MemoryError::Taken(page),
        }
    }
}

impl From<MemoryError> for CopyError {
    fn from(error: MemoryError) -> CopyError {
        match error {
            MemoryError::Refused(_) => CopyError::Refused,
            MemoryError::Shortage(shortage) => CopyError::Shortage(shortage),
            MemoryError::Absent(requested) => CopyError::Absent(requested),
            MemoryError::Taken(page) => CopyError::Taken(page),
        }
    }
}

impl From<BlockAbsence> for CopyError {
    fn from(absence: BlockAbsence) -> CopyError {
        match absence {
            BlockAbsence::MustRead(requested) => CopyError::Absent(requested),
            BlockAbsence::Unreadable => CopyError::Unreadable,
            BlockAbsence::Shortage(shortage) => CopyError::Shortage(shortage),
        }
    }
}

/// Authority for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyAuthority {
    /// The cell's: its permissions apply.
    Cell,
    /// The operator's or the kernel's own: all mapped memory can be read and written.
    Operator,
}

const PAGE: u64 = FRAME_SIZE as u64;

/// Splits `length` bytes at `offset` into pages: page number, offset in it, range of bytes.
pub(in crate::memory) fn pages_of(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = offset.checked_add(done as u64)?;
        let within = (position % PAGE) as usize;
        let count = (length - done).min(FRAME_SIZE - within);
        let range = done..done + count;
        done += count;
        (count > 0).then_some((position / PAGE, within, range))
    })
}

impl Tree {
    /// Copies bytes out, from `offset` of the slot on.
    ///
    /// # Errors
    /// A page may not be read; `bytes` then holds the bytes before it.
    pub fn read(&self, frames: &Frames, offset: u64, bytes: &mut [u8], authority: CopyAuthority) -> Result<(), CopyError> {
        for (page, within, range) in pages_of(offset, bytes.len()) {
            match self.readable_frame(frames, page, authority)? {
                Some(frame) => frames.arena().read(frame, within, &mut bytes[range]),
                None => bytes[range].fill(0),
            }
        }
        Ok(())
    }

    /// Copies bytes in, from `offset` of the slot on.
    ///
    /// # Errors
    /// A page may not be written, or there is no memory for it; the bytes before it are written.
    pub fn write(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        offset: u64,
        bytes: &[u8],
        authority: CopyAuthority,
    ) -> Result<(), CopyError> {
        for (page, within, range) in pages_of(offset, bytes.len()) {
            let frame = self.writable_frame(frames, account, page, authority)?;
            frames.arena().write(frame, within, &bytes[range]);
        }
        Ok(())
    }

    /// Fills whole pages with pages of the program's file, from `offset` of the slot on, regardless of their permissions.
    ///
    /// # Errors
    /// Nothing is mapped there, or there is no memory for it; the pages may be filled in part.
    pub(in crate::memory) fn load(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        offset: u64,
        bytes: &'static ExecutableBytes,
        pages: Range<u32>,
    ) -> Result<(), CopyError> {
        assert!(offset.is_multiple_of(PAGE), "only whole pages are loaded");
        for page in pages.clone() {
            let target = offset / PAGE + u64::from(page - pages.start);
            let frame = self.writable_frame(frames, account, target, CopyAuthority::Operator)?;
            frames.arena().write(frame, 0, bytes.page(page));
            frames.note_file_page(frame, bytes, page);
        }
        Ok(())
    }

    /// The frame of a page to read; `None`: the page reads zero.
    pub(in crate::memory) fn readable_frame(
        &self,
        frames: &Frames,
        page: u64,
        authority: CopyAuthority,
    ) -> Result<Option<FrameId>, CopyError> {
        if page >= TREE_PAGES {
            return Err(CopyError::Refused);
        }
        let found = self.find(frames, page);
        let permissions = found.permissions().ok_or(CopyError::Refused)?;
        if authority == CopyAuthority::Cell && !permissions.readable() {
            return Err(CopyError::Refused);
        }
        Ok(match found.decoded {
            DecodedEntry::Block { block, .. } => Some(self.resident_frame(frames, page, block)?),
            DecodedEntry::Taken { number, .. } => return Err(CopyError::Taken(TakenPage::of_tree(page, number))),
            _ => found.frame(page),
        })
    }

    /// The frame of a page to write, which is exclusive to this tree from now on.
    pub(in crate::memory) fn writable_frame(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        page: u64,
        authority: CopyAuthority,
    ) -> Result<FrameId, CopyError> {
        if page >= TREE_PAGES {
            return Err(CopyError::Refused);
        }
        let found = self.find(frames, page);
        let permissions = found.permissions().ok_or(CopyError::Refused)?;
        if authority == CopyAuthority::Cell && !permissions.writable() {
            return Err(CopyError::Refused);
        }
        match found.frame(page) {
            Some(frame) if is_exclusive(frames, &found) || frames.rules().omits(OmittedRules::WITHOUT_UNSHARE) => return Ok(frame),
            _ => self.make_exclusive(frames, account, page)?,
        }
        self.find(frames, page).frame(page).ok_or(CopyError::Refused)
    }

    /// Whether the cell may write `length` bytes from `offset` of the slot on, all in pages that are present and exclusive.
    ///
    /// # Errors
    /// A page may not be written.
    pub(in crate::memory) fn is_present_for_writing(&self, frames: &Frames, offset: u64, length: usize) -> Result<bool, CopyError> {
        for (page, ..) in pages_of(offset, length) {
            let found = if page < TREE_PAGES { self.find(frames, page) } else { return Err(CopyError::Refused) };
            if !found.permissions().is_some_and(|permissions| permissions.writable()) {
                return Err(CopyError::Refused);
            }
            if !is_exclusive(frames, &found) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes `page` present and exclusive to this tree, regardless of its permissions.
    pub(in crate::memory) fn make_exclusive(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), CopyError> {
        let found = self.find(frames, page);
        if found.permissions().is_none() {
            return Err(CopyError::Refused);
        }
        if let DecodedEntry::Block { block, .. } = found.decoded {
            // Before the lookup in the registry: making room may reclaim this very block.
            frames.ensure(account, PATH_TABLES + 1)?;
            self.resident_frame(frames, page, block)?;
        }
        if let DecodedEntry::Taken { number, .. } = found.decoded {
            return Err(CopyError::Taken(TakenPage::of_tree(page, number)));
        }
        if is_exclusive(frames, &found) {
            return Ok(());
        }
        Ok(self.unshare(frames, account, page)?)
    }
}

/// Whether a page is present and has no other holder.
fn is_exclusive(frames: &Frames, found: &Lookup) -> bool {
    match found.decoded {
        DecodedEntry::Page { frame, .. } if found.level == 1 => found.is_owned && frames.is_exclusive(frame),
        DecodedEntry::Page { frame, .. } => found.is_owned && frames.is_exclusive_large(frame.huge_frame()),
        _ => false,
    }
}
