// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that parents take from halted children and give back, and children that halt for want of memory.
//!
//! The kernel keeps no list of taken pages: their entries have the numbers that the parent has chosen.

use super::cell_table::LiveCell;
use super::error::OperationError;
use super::exits::{LeaveReason, NextStep, ended};
use super::state::State;
use crate::cell::CellId;
use crate::cell::child_operation::{CallerBytes, PageTransfer, SwapListing};
use crate::cell::end::End;
use crate::cell::memory_operation::OperationProgress;
use crate::cell::run_state::Requirement;
use crate::cell::watch::WatchMask;
use crate::cell::work::Work;
use crate::limits::{FLUSH_WAITS, RETIRED_DIVISOR};
use crate::memory::{CopyAuthority, PageSpan, Shortage, TakenPage, Usage};
use pando_abi::memory::TakenPages;
use pando_abi::watch::HaltReason;
use pando_abi::{HoldingName, Refusal};

impl State {
    /// Takes pages out of a halted child. Returns where they were, and how many.
    pub(super) fn take_pages(&mut self, caller: CellId, transfer: PageTransfer) -> Result<u64, OperationError> {
        let PageTransfer { child, space, address, pages, buffer, first } = transfer;
        let child = self.child(caller, child)?;
        let (live, frames) = self.require(child, Requirement::Halted)?;
        let memory = &mut live.cell.memory;
        let start = memory.check_page_out(space.unwrap_or(memory.current()), address, 1)?;
        let found = memory.find_page_out_candidates(frames, &start, pages);
        let skipped = (found.start - start.pages.start) as u32;
        let taken = PageSpan { pages: found.clone(), ..start };
        if found.is_empty() {
            return Ok(TakenPages { skipped, count: 0 }.bits());
        }
        let sources = memory.present_frames(frames, &taken).ok_or(Refusal::BadAddress)?;
        // Before anything changes: afterwards the content is nowhere else.
        let (live, frames) = self.require(caller, Requirement::Living)?;
        live.cell.memory.fill_pages(frames, buffer, &sources)?;
        let (live, frames) = self.require(child, Requirement::Halted)?;
        if live.cell.memory.take(frames, &taken, &sources, first)? {
            return Ok(TakenPages { skipped, count: sources.len() as u32 }.bits());
        }
        // Too few pages for their tables.
        Ok(TakenPages { skipped: skipped + sources.len() as u32, count: 0 }.bits())
    }

    /// Gives pages back to a child that is halted or was not started. Returns how many.
    pub(super) fn give_pages(&mut self, caller: CellId, transfer: PageTransfer) -> Result<u64, OperationError> {
        let PageTransfer { child, space, address, pages, buffer, first } = transfer;
        let child = self.child(caller, child)?;
        let (live, frames) = self.require(child, Requirement::NewOrHalted)?;
        let memory = &mut live.cell.memory;
        let range = memory.check_page_out(space.unwrap_or(memory.current()), address, pages)?;
        // Before the lookup of the content: making room may reclaim a block that it lies in.
        let given = memory.find_returnable(frames, &range, first)?;
        let count = given.end - given.start;
        if count == 0 {
            return Ok(0);
        }
        let (live, frames) = self.require(caller, Requirement::Living)?;
        let memory = &mut live.cell.memory;
        let source = memory.check(memory.current(), buffer, count)?;
        let sources = memory.readable_pages(frames, &source, CopyAuthority::Cell)?;
        let (live, frames) = self.require(child, Requirement::NewOrHalted)?;
        live.cell.memory.give(frames, &PageSpan { pages: given, ..range }, &sources)?;
        Ok(count)
    }

    /// Copies the mounts of a halted child, after the `first`, into its parent. Returns the number of bytes.
    pub(super) fn read_mounts(&mut self, caller: CellId, child: CellId, first: u32, buffer: CallerBytes) -> Result<u64, OperationError> {
        let (live, _) = self.require(child, Requirement::Halted)?;
        let mounts = live.cell.memory.mounts().skip(first as usize).take(buffer.count / 16);
        let bytes: Vec<u8> = mounts.flat_map(|(space, address)| [u64::from(space.0), address]).flat_map(u64::to_le_bytes).collect();
        self.write_caller(caller, buffer.address, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Executes the next step of a list of the swap numbers in a halted child.
    pub(super) fn list_swap_numbers(
        &mut self,
        caller: CellId,
        child: HoldingName,
        listing: &mut SwapListing,
    ) -> Result<OperationProgress, OperationError> {
        let child = self.child(caller, child)?;
        let (LiveCell { cell, .. }, frames) = self.require(child, Requirement::Halted)?;
        let SwapListing { first, buffer, bitmap, cursor } = listing;
        bitmap.resize(buffer.count, 0);
        let is_whole = cell.memory.list_taken(frames, cursor, &mut |number| {
            let bit = number.0.wrapping_sub(*first) as usize;
            if number.0 >= *first
                && let Some(byte) = bitmap.get_mut(bit / 8)
            {
                *byte |= 1 << (bit % 8);
            }
        });
        if !is_whole {
            return Ok(OperationProgress::More);
        }
        self.write_caller(caller, buffer.address, bitmap)?;
        Ok(OperationProgress::Done(bitmap.len() as u64))
    }

    /// Whether a parent watches a cell for needs of memory beyond a quota, and neither a
    /// release nor a flush comes first: retired tables have not become many.
    pub(super) fn is_watched_for_shortage(&mut self, id: CellId) -> bool {
        if self.frames.has_garbage() {
            return false;
        }
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        let Usage { quota, retired, .. } = frames.usage(cell.memory.account());
        let has_many_retired = retired.0 > quota.0 / RETIRED_DIVISOR && execution.flush_waits < FLUSH_WAITS;
        cell.watch.mask.contains(WatchMask::SHORTAGE) && !has_many_retired
    }

    /// The same for a step of this work. A shortage of another cell's memory is not the caller's.
    pub(super) fn halts_for_shortage(&mut self, id: CellId, work: &Work) -> bool {
        let is_own = match work {
            // A shortage of another cell that takes part in a message is a refusal already.
            Work::Operation(_) | Work::Message(_) => true,
            Work::Batch(batch) => batch.is_about_caller(),
            _ => false,
        };
        is_own && self.is_watched_for_shortage(id)
    }

    /// Halts a cell that needs a page which its parent has taken.
    pub(super) fn halt_for_page(&mut self, id: CellId, page: TakenPage) -> NextStep {
        let TakenPage { space, address, number } = page;
        self.halt_unfinished(id, HaltReason::Taken { space: space.0, address, number: number.0 })
    }

    /// Halts a cell whose instruction or call is not done: it is made again afterwards. Its parent may change its tables meanwhile, so a
    /// copied page must be visible to all CPUs first. The account may be full.
    pub(super) fn halt_unfinished(&mut self, id: CellId, reason: HaltReason) -> NextStep {
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        if let Some(write) = execution.unconfirmed {
            match cell.memory.renew_path_beyond_quota(frames, write.address) {
                Ok(()) => {}
                Err(Shortage::Quota) => return ended(End::Quota),
                // The reason for the halt is found again after the remedy.
                Err(Shortage::Machine) => return self.after_shortage(id, Shortage::Machine),
            }
            execution.unconfirmed = None;
            write.confirm(frames);
        }
        NextStep::Leave(LeaveReason::Halted(reason))
    }
}
