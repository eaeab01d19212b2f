// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of sleeping cells, which are written and read in chunks, and the budget for those that are under way.
//!
//! The process holds one chunk of each record at a time, besides its compressed form. The budget bounds the number of these records,
//! however many cells fall asleep and wake up. Records that are written and those that are read have separate halves of it: a cell that
//! wakes up may wait until another one has fallen asleep, and never the other way round.

use crate::device::swap::{Swap, SwapError, SwapSlot};
use crate::limits::{RECORD_BUDGET, RECORD_BUFFERS};
use std::sync::{Condvar, Mutex, MutexGuard};

/// A record in swap space: the slots of its chunks, in order.
#[derive(Debug)]
pub(super) struct StoredRecord {
    first: SwapSlot,
    /// Most records have one chunk, and need no memory here.
    rest: Box<[SwapSlot]>,
}

impl StoredRecord {
    /// Begins to read it.
    pub(super) fn chunks<'a>(&'a self, swap: &'a dyn Swap) -> ChunkReader<'a> {
        ChunkReader { swap, first: Some(&self.first), rest: self.rest.iter() }
    }

    /// Frees its slots.
    pub(super) fn discard(self, swap: &dyn Swap) {
        swap.discard(self.first);
        self.rest.into_iter().for_each(|slot| swap.discard(slot));
    }
}

/// A record that is read chunk by chunk.
pub(super) struct ChunkReader<'a> {
    swap: &'a dyn Swap,
    first: Option<&'a SwapSlot>,
    rest: std::slice::Iter<'a, SwapSlot>,
}

impl ChunkReader<'_> {
    /// Reads the next chunk. The caller holds no lock.
    ///
    /// # Errors
    /// It cannot be read, or the record has no more.
    pub(super) fn read(&mut self) -> Result<Vec<u8>, SwapError> {
        let slot = self.first.take().or_else(|| self.rest.next()).ok_or(SwapError::Damaged)?;
        self.swap.read(slot)
    }

    /// Whether all chunks were read.
    pub(super) fn is_at_end(&self) -> bool {
        self.first.is_none() && self.rest.len() == 0
    }
}

/// A record that is written to swap space chunk by chunk. Dropping it frees its slots.
pub(super) struct UnfinishedRecord<'a> {
    swap: &'a dyn Swap,
    slots: Vec<SwapSlot>,
}

impl<'a> UnfinishedRecord<'a> {
    /// A record without chunks.
    pub(super) fn new(swap: &'a dyn Swap) -> UnfinishedRecord<'a> {
        UnfinishedRecord { swap, slots: Vec::new() }
    }

    /// Writes the next chunk.
    ///
    /// # Errors
    /// It is not kept: there is no room, or the host failed.
    pub(super) fn put(&mut self, chunk: &[u8]) -> Result<(), SwapError> {
        let slot = self.swap.put(chunk)?;
        self.slots.push(slot);
        Ok(())
    }

    /// Writes the last chunk.
    ///
    /// # Errors
    /// It is not kept: there is no room, or the host failed.
    pub(super) fn finish(mut self, chunk: &[u8]) -> Result<StoredRecord, SwapError> {
        let last = self.swap.put(chunk)?;
        let mut slots = std::mem::take(&mut self.slots).into_iter();
        Ok(match slots.next() {
            None => StoredRecord { first: last, rest: Box::default() },
            Some(first) => StoredRecord { first, rest: slots.chain([last]).collect() },
        })
    }
}

impl Drop for UnfinishedRecord<'_> {
    fn drop(&mut self) {
        self.slots.drain(..).for_each(|slot| self.swap.discard(slot));
    }
}

/// The budget for records that are written, and for those that are read.
#[derive(Debug)]
pub(super) struct RecordBudget {
    pub(super) writes: RecordShare,
    pub(super) reads: RecordShare,
}

/// One half of the budget.
#[derive(Debug)]
pub(super) struct RecordShare {
    counts: Mutex<RecordCounts>,
    changed: Condvar,
}

/// Records under way, and their maximum.
#[derive(Debug)]
struct RecordCounts {
    now: u64,
    max: u64,
}

/// The permission to have a record under way. Dropping it lets another one begin.
#[derive(Debug)]
pub(super) struct RecordPermit<'a>(&'a RecordShare);

impl RecordBudget {
    /// The budget for `bytes` bytes of the process's memory, at least for one record that is written and one that is read.
    pub(super) fn new(bytes: u64) -> RecordBudget {
        let share = || RecordShare { counts: Mutex::new(RecordCounts { now: 0, max: records(bytes) }), changed: Condvar::new() };
        RecordBudget { writes: share(), reads: share() }
    }

    /// Changes the budget. Records under way are finished.
    pub(super) fn set(&self, bytes: u64) {
        for share in [&self.writes, &self.reads] {
            share.lock().max = records(bytes);
            share.changed.notify_all();
        }
    }
}

impl Default for RecordBudget {
    fn default() -> RecordBudget {
        RecordBudget::new(RECORD_BUDGET)
    }
}

/// The number of records that one half of the budget allows.
fn records(bytes: u64) -> u64 {
    (bytes.min(RECORD_BUDGET) / 2 / RECORD_BUFFERS).max(1)
}

impl RecordShare {
    fn lock(&self) -> MutexGuard<'_, RecordCounts> {
        self.counts.lock().expect("no holder of this lock panics")
    }

    /// Waits until another record may begin. The caller holds no lock.
    pub(super) fn take(&self) -> RecordPermit<'_> {
        let mut counts = self.changed.wait_while(self.lock(), |counts| counts.now >= counts.max).expect("no holder of this lock panics");
        counts.now += 1;
        RecordPermit(self)
    }
}

impl Drop for RecordPermit<'_> {
    fn drop(&mut self) {
        self.0.lock().now -= 1;
        self.0.changed.notify_one();
    }
}
