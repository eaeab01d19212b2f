// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own reads and writes of a cell's memory.
//!
//! A write breaks sharing first (rule 5). Both see the memory as the program would: lazy memory reads zero, blocks of disks are brought in (by whoever asked: the copy says what must be
//! read and is tried again), permissions hold unless the operator asks, who may load a program into read-only pages.

use super::Rules;
use super::account::AccountId;
use super::block::Wanted;
use super::edit::PATH_TABLES;
use super::entry::View;
use super::frames::{Frames, Shortage};
use super::obstacle::Obstacle;
use super::present::Absence;
use super::spaces::SpaceSet;
use super::tree::{Found, TREE_PAGES, Tree};
use pando_abi::Refusal;
use pando_machine::{FRAME_SIZE, FrameId};

/// Why the kernel could not copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// Nothing is mapped there, or the program itself might not do this.
    #[error("the memory is not mapped, or not for this")]
    Refused,
    /// No memory for a page that would have to be made.
    #[error(transparent)]
    Shortage(#[from] Shortage),
    /// A block must be read first; then the copy can be tried again.
    #[error("the memory is a block of a disk that has not been read yet")]
    Absent(Wanted),
    /// It is a block that cannot be read.
    #[error("the memory is a block of a disk that cannot be read")]
    Unreadable,
}

impl From<CopyError> for Obstacle {
    fn from(error: CopyError) -> Obstacle {
        match error {
            CopyError::Refused | CopyError::Unreadable => Obstacle::Refused(Refusal::BadAddress),
            CopyError::Shortage(shortage) => Obstacle::Short(shortage),
            CopyError::Absent(wanted) => Obstacle::Absent(wanted),
        }
    }
}

impl From<Obstacle> for CopyError {
    fn from(obstacle: Obstacle) -> CopyError {
        match obstacle {
            Obstacle::Refused(_) => CopyError::Refused,
            Obstacle::Short(shortage) => CopyError::Shortage(shortage),
            Obstacle::Absent(wanted) => CopyError::Absent(wanted),
        }
    }
}

impl From<Absence> for CopyError {
    fn from(absence: Absence) -> CopyError {
        match absence {
            Absence::Wanted(wanted) => CopyError::Absent(wanted),
            Absence::Unreadable => CopyError::Unreadable,
            Absence::Short(shortage) => CopyError::Shortage(shortage),
        }
    }
}

/// On whose behalf the kernel copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behalf {
    /// The cell's: its permissions hold.
    Cell,
    /// The operator's or the kernel's own: whatever is mapped can be read and written.
    Operator,
}

/// Whose memory was in the way of a copy between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarryError {
    /// That of who gives.
    From(CopyError),
    /// That of who gets.
    To(CopyError),
}

const PAGE: u64 = FRAME_SIZE as u64;
/// What lazy memory reads.
static ZERO: [u8; FRAME_SIZE] = [0; FRAME_SIZE];

/// The parts of `length` bytes at `offset`, page by page: page number, offset in it, range of bytes.
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

/// Copies bytes of one cell's running space into another's, each with where they lie, on behalf of both: from frame to frame, in one copy.
///
/// # Errors
/// They are not all mapped, or one of the two may not do this, or there is no memory for pages of who gets them; what came before is written.
pub(crate) fn carry(
    frames: &mut Frames,
    (from, address): (&mut SpaceSet, u64),
    (to, target): (&mut SpaceSet, u64),
    length: usize,
) -> Result<(), CarryError> {
    let (source, _, start) = from.part(address, length).map_err(CarryError::From)?;
    let (tree, account, offset) = to.part(target, length).map_err(CarryError::To)?;
    // Two pages in a row have parts of one page on the other side, which is looked up once.
    let mut last = None;
    for (page, within, range) in parts(offset, length) {
        let own = tree.target(frames, account, page, Behalf::Cell).map_err(CarryError::To)?;
        let mut place = within;
        for (page, within, range) in parts(start + range.start as u64, range.len()) {
            let frame = match last {
                Some((at, frame)) if at == page => frame,
                _ => source.source(frames, page, Behalf::Cell).map_err(CarryError::From)?,
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
    /// Copies bytes at `offset` of the slot out.
    ///
    /// # Errors
    /// Something on the way may not be read; `bytes` then holds what came before.
    pub fn read(&self, frames: &Frames, offset: u64, bytes: &mut [u8], behalf: Behalf) -> Result<(), CopyError> {
        for (page, within, range) in parts(offset, bytes.len()) {
            match self.source(frames, page, behalf)? {
                Some(frame) => frames.arena().read(frame, within, &mut bytes[range]),
                None => bytes[range].fill(0),
            }
        }
        Ok(())
    }

    /// Copies bytes to `offset` of the slot.
    ///
    /// # Errors
    /// Something on the way may not be written, or there is no memory for it; what came before is written.
    pub fn write(&mut self, frames: &mut Frames, account: AccountId, offset: u64, bytes: &[u8], behalf: Behalf) -> Result<(), CopyError> {
        for (page, within, range) in parts(offset, bytes.len()) {
            let frame = self.target(frames, account, page, behalf)?;
            frames.arena().write(frame, within, &bytes[range]);
        }
        Ok(())
    }

    /// The frame from which bytes of a page are read; `None`: they read zero.
    fn source(&self, frames: &Frames, page: u64, behalf: Behalf) -> Result<Option<FrameId>, CopyError> {
        if page >= TREE_PAGES {
            return Err(CopyError::Refused);
        }
        let found = self.find(frames, page);
        let permissions = found.permissions().ok_or(CopyError::Refused)?;
        if behalf == Behalf::Cell && !permissions.readable() {
            return Err(CopyError::Refused);
        }
        Ok(match found.view {
            View::Block { block, .. } => Some(self.brought_in(frames, page, block)?),
            _ => found.frame(page),
        })
    }

    /// The frame into which bytes of a page are written, which is this tree's own from now on.
    fn target(&mut self, frames: &mut Frames, account: AccountId, page: u64, behalf: Behalf) -> Result<FrameId, CopyError> {
        if page >= TREE_PAGES {
            return Err(CopyError::Refused);
        }
        let found = self.find(frames, page);
        let permissions = found.permissions().ok_or(CopyError::Refused)?;
        if behalf == Behalf::Cell && !permissions.writable() {
            return Err(CopyError::Refused);
        }
        match found.frame(page) {
            Some(frame) if is_own(frames, &found) || frames.rules().leaves_out(Rules::WITHOUT_BREAKING) => return Ok(frame),
            _ => self.make_own(frames, account, page)?,
        }
        self.find(frames, page).frame(page).ok_or(CopyError::Refused)
    }

    /// Makes `page` present and this tree's own, whatever the program may do with it.
    pub(super) fn make_own(&mut self, frames: &mut Frames, account: AccountId, page: u64) -> Result<(), CopyError> {
        let found = self.find(frames, page);
        if found.permissions().is_none() {
            return Err(CopyError::Refused);
        }
        if let View::Block { block, .. } = found.view {
            // Before the look at the registry: making room may give up the very block.
            frames.ensure(account, PATH_TABLES + 1)?;
            self.brought_in(frames, page, block)?;
        }
        if is_own(frames, &found) {
            return Ok(());
        }
        Ok(self.own(frames, account, page)?)
    }
}

/// Whether a page is present and nobody else's.
fn is_own(frames: &Frames, found: &Found) -> bool {
    match found.view {
        View::Page { frame, .. } if found.level == 1 => found.owned && frames.is_exclusive(frame),
        View::Page { frame, .. } => found.owned && frames.is_exclusive_large(frame.stretch()),
        _ => false,
    }
}
