// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page faults that the kernel resolves itself: lazy memory, blocks of disks and copy-on-write.

use super::block_read::BlockRequest;
use super::residency::{BlockAbsence, table_span};
use crate::limits::FAULT_AROUND;
use crate::memory::frames::{AccountId, Frames, Shortage};
use crate::memory::swapped_page::SwapNumber;
use crate::memory::tree::{DecodedEntry, PATH_TABLES, Tree, span};
use pando_abi::Permissions;
use pando_machine::FrameId;
use std::ops::Range;

/// The kind of access that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A read.
    Read,
    /// A write.
    Write,
    /// An instruction fetch.
    Execute,
}

impl Access {
    fn is_allowed(self, permissions: Permissions) -> bool {
        match self {
            Access::Read => permissions.readable(),
            Access::Write => permissions.writable(),
            Access::Execute => permissions.executable(),
        }
    }
}

/// The outcome of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum FaultOutcome {
    /// Lazy memory is present now: continue.
    Allocated,
    /// A block of a disk is present now: continue.
    Mapped,
    /// A private copy has replaced a shared page. A CPU sees it once the write is retried. Until then no other code may run on
    /// these tables: a *read* that comes first would still see the shared page (see [`Tree::renew_path`]).
    Copied {
        /// The shared page, if there was one: the caller holds it until the write is confirmed, so that its content stays while it
        /// may still be read.
        replaced: Option<FrameId>,
    },
    /// A private copy has replaced a shared page and others around it, on a fresh path: continue.
    CopiedCluster,
    /// The tables already allow the access; the vCPU used an old translation: retry (rule 6).
    Spurious,
    /// A block must be read first; nothing has changed.
    Absent(BlockRequest),
    /// The cell's parent has taken the page, whose swap number this is; nothing has changed.
    Taken(SwapNumber),
    /// It is a block that cannot be read.
    Unreadable,
    /// Nothing is mapped there, or the permissions forbid the access: the cell must handle it.
    Refused,
}

impl Tree {
    /// Resolves a fault on `page`.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn resolve(&mut self, frames: &mut Frames, account: AccountId, page: u64, access: Access) -> Result<FaultOutcome, Shortage> {
        self.resolve_with(frames, account, (page, access), table_span(page))
    }

    /// The same, and makes no other block present than that of the page: each block that is accessed shows by a fault of its own.
    ///
    /// # Errors
    /// Not enough memory; nothing has changed.
    pub fn resolve_without_fault_around(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        page: u64,
        access: Access,
    ) -> Result<FaultOutcome, Shortage> {
        self.resolve_with(frames, account, (page, access), page..page + 1)
    }

    /// Resolves a fault; `blocks` are the pages that a fault on a block makes present as far as they are in memory.
    fn resolve_with(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        (page, access): (u64, Access),
        blocks: Range<u64>,
    ) -> Result<FaultOutcome, Shortage> {
        let found = self.find(frames, page);
        if !found.permissions().is_some_and(|permissions| access.is_allowed(permissions)) {
            return Ok(FaultOutcome::Refused);
        }
        let write = access == Access::Write;
        match found.decoded {
            DecodedEntry::Page { writable, .. } if !write || (writable && found.is_owned) => Ok(FaultOutcome::Spurious),
            DecodedEntry::Page { .. } => {
                self.populate(frames, account, page..page + 1, true).map(|replaced| FaultOutcome::Copied { replaced })
            }
            DecodedEntry::Lazy { .. } => {
                let around = self.around(frames, page);
                // An account that is nearly full still gets the page itself.
                self.populate(frames, account, around, write)
                    .or_else(|_| self.populate(frames, account, page..page + 1, write))
                    .map(|_| FaultOutcome::Allocated)
            }
            DecodedEntry::Block { block, .. } => {
                // Before the lookup in the registry: making room may reclaim this very block.
                frames.ensure(account, PATH_TABLES + u64::from(write))?;
                match self.resident_frame(frames, page, block) {
                    Ok(_) if write => self.populate(frames, account, page..page + 1, true).map(|_| FaultOutcome::Mapped),
                    Ok(_) => self.map_resident(frames, account, blocks).map(|()| FaultOutcome::Mapped),
                    Err(BlockAbsence::MustRead(requested)) => Ok(FaultOutcome::Absent(requested)),
                    Err(BlockAbsence::Unreadable) => Ok(FaultOutcome::Unreadable),
                    Err(BlockAbsence::Shortage(shortage)) => Err(shortage),
                }
            }
            DecodedEntry::Taken { number, .. } => Ok(FaultOutcome::Taken(number)),
            DecodedEntry::Empty | DecodedEntry::Table { .. } => Ok(FaultOutcome::Refused),
        }
    }

    /// The pages to make present along with a lazy one: an aligned group, as far as it is lazy with the same permissions.
    fn around(&self, frames: &Frames, page: u64) -> Range<u64> {
        let found = self.find(frames, page);
        let start = page - page % FAULT_AROUND;
        if found.level > 1 {
            return start..start + FAULT_AROUND.min(span(found.level));
        }
        let same = |other: &u64| self.find(frames, *other).decoded == found.decoded;
        let first = (start..page).rev().take_while(same).last().unwrap_or(page);
        let last = (page + 1..start + FAULT_AROUND).take_while(same).last().unwrap_or(page);
        first..last + 1
    }
}
