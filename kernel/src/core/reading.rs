// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading blocks of disks: the only place where the kernel waits for I/O. It holds no lock meanwhile.
//!
//! The frames are taken under the lock, filled without it, and registered under it again. Two vCPUs may read the same block at the
//! same time; the second then finds it registered.

use super::Shared;
use super::state::State;
use crate::cell::CellId;
use crate::device::disk::{Disk, DiskError};
use crate::memory::{BlockRead, BlockRequest};
use pando_abi::BlockNumber;
use pando_machine::{Arena, FRAME_SIZE};
use std::iter;
use std::ops::Range;
use std::sync::MutexGuard;

impl Shared {
    /// Reads a requested block, and its neighbours as far as there is room. The caller must retry before it releases the lock, and
    /// then call [`crate::memory::Frames::forget_unreadable`]. `buffer` is scratch memory. The read counts in the start trace of `reader`,
    /// the cell that runs.
    pub(super) fn read_blocks<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        requested: BlockRequest,
        reader: Option<CellId>,
        buffer: &mut Vec<u8>,
    ) -> MutexGuard<'a, State> {
        // The cell that requests a block uses its disk, so the disk exists. Without room nothing is read, and the retry reports
        // that.
        let Some(disk) = state.disk(requested.block.disk) else { return state };
        let Some(reading) = state.frames.begin_reading(requested) else { return state };
        drop(state);
        let read = read(&*disk, self.machine.arena(), &reading, buffer);
        let mut state = self.lock();
        if let Some(id) = reader {
            state.expect_living(id).0.cell.memory.note_miss();
        }
        state.frames.finish_reading(reading, read);
        state
    }
}

/// Reads the run of blocks that contains the requested one, or that one alone. Returns the blocks that are in their frames now.
fn read(disk: &dyn Disk, arena: &Arena, reading: &BlockRead, buffer: &mut Vec<u8>) -> Range<u32> {
    let requested = reading.requested().number.0;
    let (mut start, last) = reading.ends();
    // The disk's answer is not trusted.
    let behind = |first: u32| u64::from(first).saturating_add(disk.contiguous_blocks(BlockNumber(first)).max(1));
    while behind(start) <= requested.into() {
        start = behind(start) as u32;
    }
    let end = behind(requested).min(u64::from(last) + 1) as u32;
    let (run, alone) = (start..end, requested..requested + 1);
    // A bad block elsewhere in the run must not fail the requested one.
    for run in iter::once(run.clone()).chain((run != alone).then_some(alone)) {
        if fill(arena, reading, &run, buffer, |first, buffer| disk.read(first, buffer)) {
            return run;
        }
    }
    0..0
}

/// Reads a run of blocks into their frames. `false`: they cannot be read.
pub(super) fn fill(
    arena: &Arena,
    reading: &BlockRead,
    run: &Range<u32>,
    buffer: &mut Vec<u8>,
    read: impl FnOnce(BlockNumber, &mut [u8]) -> Result<(), DiskError>,
) -> bool {
    buffer.resize(run.len() * FRAME_SIZE, 0);
    if read(BlockNumber(run.start), buffer).is_err() {
        return false;
    }
    let targets = reading.targets().filter(|(block, _)| run.contains(&block.number.0));
    for ((_, frame), bytes) in targets.zip(buffer.chunks_exact(FRAME_SIZE)) {
        arena.write(frame, 0, bytes);
    }
    true
}
