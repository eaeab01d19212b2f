// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts of programs: traces of the blocks that they access, and reads of the same before the next start.

use super::invoke::Subject;
use super::reading::fill;
use super::{Kernel, OperatorError};
use crate::cell::CellId;
use crate::cell::operation::Operation;
use crate::limits::{PREFETCH_BLOCKS, START_TABLES};
use crate::memory::{Block, BlockRequest, DiskId, StartMode};
use pando_abi::BlockNumber;
use std::ops::Range;

impl Kernel {
    /// Records which blocks are accessed, by any cell, until the first start that is learned is over. To be called before the blocks are
    /// mapped.
    pub fn begin_access_tracking(&self) {
        self.shared.lock().frames.begin_access_tracking();
    }

    /// Traces which blocks of its disks this cell, which must not have started, accesses until it waits for others, has used some CPU time,
    /// or ends. [`Outcome::start`](crate::Outcome::start) then has the trace. A start that is learned needs
    /// [`Kernel::begin_access_tracking`].
    ///
    /// # Errors
    /// The cell was started before, or does not live.
    pub fn trace_start(&self, id: CellId, mode: StartMode) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::TraceStart(mode)).map(drop)
    }

    /// Reads blocks of a disk into memory, as far as there is room. Blocks that do not exist or cannot be read are left out: this is a
    /// hint, and the cell that needs them learns the error.
    pub fn prefetch_blocks(&self, disk: DiskId, blocks: Range<BlockNumber>) {
        let shared = &*self.shared;
        let Some(source) = shared.lock().disk(disk) else { return };
        let end = source.blocks().min(blocks.end.0.into()) as u32;
        let (mut next, mut buffer) = (blocks.start.0, Vec::new());
        while next < end {
            let count = source.contiguous_blocks(BlockNumber(next)).clamp(1, PREFETCH_BLOCKS.min(u64::from(end - next))) as u32;
            let mut state = shared.lock();
            if !state.frames.has_room_for_blocks(count.into()) {
                return;
            }
            let block = Block { disk, number: BlockNumber(next) };
            let Some(reading) = state.frames.begin_reading(BlockRequest { block, after: count - 1, before: 0 }) else { return };
            drop(state);
            let (first, last) = reading.ends();
            let run = first..last + 1;
            let read = if fill(shared.machine.arena(), &reading, &run, &mut buffer, |first, buffer| source.prefetch(first, buffer)) {
                run
            } else {
                first..first
            };
            next = last + 1;
            let mut state = shared.lock();
            state.frames.finish_reading(reading, read);
            state.frames.forget_unreadable();
        }
    }

    /// Makes the blocks present that are in memory, in spans of 2 MiB of a cell's running space, each given by an address in it. Spans in
    /// which nothing is mapped are left out, and those for which there is no memory.
    ///
    /// # Errors
    /// The cell is running, or does not live.
    pub fn map_resident(&self, id: CellId, spans: impl IntoIterator<Item = u64>) -> Result<(), OperatorError> {
        for span in spans.into_iter().take(START_TABLES) {
            self.change("prefetch pages of", id, |cell, frames| {
                cell.memory.map_resident_span(frames, span);
                Ok(())
            })?;
        }
        Ok(())
    }
}
