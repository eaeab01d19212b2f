// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own reads and writes of a cell's memory.
//!
//! A write breaks sharing first (rule 5). Both see the memory as the program does: lazy memory reads zero, and blocks of disks are
//! read first (the copy returns the block to read, and the caller tries again). Permissions apply unless the operator copies, who
//! may load a program into read-only pages.

use super::error::MemoryError;
use super::residency::BlockAbsence;
use crate::memory::block::BlockRequest;
use crate::memory::frames::account::AccountId;
use crate::memory::frames::frame_table::{Frames, Shortage};
use crate::memory::rules::Rules;
use crate::memory::spaces::set::SpaceSet;
use crate::memory::tree::edit::PATH_TABLES;
use crate::memory::tree::entry::View;
use crate::memory::tree::handle::{Lookup, TREE_PAGES, Tree};
use pando_abi::Refusal;
use pando_machine::{FRAME_SIZE, FrameId};

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
}

impl From<CopyError> for MemoryError {
    fn from(error: CopyError) -> MemoryError {
        match error {
            CopyError::Refused | CopyError::Unreadable => MemoryError::Refused(Refusal::BadAddress),
            CopyError::Shortage(shortage) => MemoryError::Short(shortage),
            CopyError::Absent(wanted) => MemoryError::Absent(wanted),
        }
    }
}

impl From<MemoryError> for CopyError {
    fn from(error: MemoryError) -> CopyError {
        match error {
            MemoryError::Refused(_) => CopyError::Refused,
            MemoryError::Short(shortage) => CopyError::Shortage(shortage),
            MemoryError::Absent(wanted) => CopyError::Absent(wanted),
        }
    }
}

impl From<BlockAbsence> for CopyError {
    fn from(absence: BlockAbsence) -> CopyError {
        match absence {
            BlockAbsence::Wanted(wanted) => CopyError::Absent(wanted),
            BlockAbsence::Unreadable => CopyError::Unreadable,
            BlockAbsence::Short(shortage) => CopyError::Shortage(shortage),
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

/// The side on which a copy between two cells failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyBetweenError {
    /// The source.
    From(CopyError),
    /// The destination.
    To(CopyError),
}

const PAGE: u64 = FRAME_SIZE as u64;
/// The content of lazy memory.
static ZERO: [u8; FRAME_SIZE] = [0; FRAME_SIZE];

/// Splits `length` bytes at `offset` into pages: page number, offset in it, range of bytes.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
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

/// Copies bytes from one cell's running space into another's, each given with its address, under both cells' permissions: from
/// frame to frame, in one copy.
///
/// # Errors
/// They are not all mapped, a cell's permissions forbid it, or there is no memory for pages of the destination; the bytes before
/// are written.
pub(crate) fn carry(
    frames: &mut Frames,
    (from, address): (&mut SpaceSet, u64),
    (to, target): (&mut SpaceSet, u64),
    length: usize,
) -> Result<(), CopyBetweenError> {
    let (source, _, start) = from.part(address, length).map_err(CopyBetweenError::From)?;
    let (tree, account, offset) = to.part(target, length).map_err(CopyBetweenError::To)?;
    // Consecutive pages of one side have parts of the same page on the other side, which is looked up once.
    let mut last = None;
    for (page, within, range) in parts(offset, length) {
        let own = tree.target(frames, account, page, CopyAuthority::Cell).map_err(CopyBetweenError::To)?;
        let mut place = within;
        for (page, within, range) in parts(start + range.start as u64, range.len()) {
            let frame = match last {
                Some((at, frame)) if at == page => frame,
                _ => source.source(frames, page, CopyAuthority::Cell).map_err(CopyBetweenError::From)?,
            };
            last = Some((page, frame));
            match frame {
                Some(frame) => frames.arena().copy_part((frame, within), (own, place), range.len()),
                None => frames.arena().write(own, place, &ZERO[..range.len()]),
            }
            place += range.len();
        }
    }
    Ok(())
}

impl Tree {
    /// Copies bytes out, from `offset` of the slot on.
    ///
    /// # Errors
    /// A page may not be read; `bytes` then holds the bytes before it.
    pub fn read(&self, frames: &Frames, offset: u64, bytes: &mut [u8], authority: CopyAuthority) -> Result<(), CopyError> {
        for (page, within, range) in parts(offset, bytes.len()) {
            match self.source(frames, page, authority)? {
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
        for (page, within, range) in parts(offset, bytes.len()) {
            let frame = self.target(frames, account, page, authority)?;
            frames.arena().write(frame, within, &bytes[range]);
        }
        Ok(())
    }

    /// The frame of a page to read; `None`: the page reads zero.
    fn source(&self, frames: &Frames, page: u64, authority: CopyAuthority) -> Result<Option<FrameId>, CopyError> {
        if page >= TREE_PAGES {
            return Err(CopyError::Refused);
        }
        let found = self.find(frames, page);
        let permissions = found.permissions().ok_or(CopyError::Refused)?;
        if authority == CopyAuthority::Cell && !permissions.readable() {
            return Err(CopyError::Refused);
        }
        Ok(match found.view {
            View::Block { block, .. } => Some(self.resident_frame(frames, page, block)?),
            _ => found.frame(page),
        })
    }

    /// The frame of a page to write, which is this tree's own from now on.
    fn target(&mut self, frames: &mut Frames, account: AccountId, page: u64, authority: CopyAuthority) -> Result<FrameId, CopyError> {
        if page >= TREE_PAGES {
            return Err(CopyError::Refused);
        }
        let found = self.find(frames, page);
        let permissions = found.permissions().ok_or(CopyError::Refused)?;
        if authority == CopyAuthority::Cell && !permissions.writable() {
            return Err(CopyError::Refused);
        }
        match found.frame(page) {
            Some(frame) if is_own(frames, &found) || frames.rules().contains_rule(Rules::WITHOUT_BREAKING) => return Ok(frame),
            _ => self.make_own(frames, account, page)?,
        }
        self.find(frames, page).frame(page).ok_or(CopyError::Refused)
    }

    /// Makes `page` present and this tree's own, regardless of its permissions.
    pub(in crate::memory) fn make_own(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), CopyError> {
        let found = self.find(frames, page);
        if found.permissions().is_none() {
            return Err(CopyError::Refused);
        }
        if let View::Block { block, .. } = found.view {
            // Before the lookup in the registry: making room may give up this very block.
            frames.ensure(account, PATH_TABLES + 1)?;
            self.resident_frame(frames, page, block)?;
        }
        if is_own(frames, &found) {
            return Ok(());
        }
        Ok(self.own(frames, account, page)?)
    }
}

/// Whether a page is present and has no other holder.
fn is_own(frames: &Frames, found: &Lookup) -> bool {
    match found.view {
        View::Page { frame, .. } if found.level == 1 => found.owned && frames.is_exclusive(frame),
        View::Page { frame, .. } => found.owned && frames.is_exclusive_large(frame.huge_frame()),
        _ => false,
    }
}
