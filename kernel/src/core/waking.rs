// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking up: a sleeping cell gets its memory back, as a clone of its base with the changed lines in pages of its own.
//!
//! The new memory has new tables and a new root (rules 2 and 6 of the page-table discipline). The record stays in swap space until the
//! memory is complete.

use super::error::OperatorError;
use super::records::{ChunkReader, StoredRecord};
use super::sleepers::{SleepStage, Sleepers};
use super::state::{State, end_for};
use super::swap_out::ReclaimAttempts;
use super::{Kernel, Shared};
use crate::cell::CellId;
use crate::cell::end::End;
use crate::cell::run_state::RunState;
use crate::device::swap::{Swap, SwapError};
use crate::limits::{WAKE_DIVISOR, WAKE_FRAMES};
use crate::memory::{CopyError, MemoryRestore, RestoreError, RestoreProgress, Shortage};
use crate::sched::ReadyReason;
use pando_abi::watch::HaltReason;
use pando_machine::PageCount;
use std::sync::MutexGuard;
use std::time::Duration;

/// How long a thread that needs memory waits for the end of a running cell before it looks again.
const VICTIM_WAIT: Duration = Duration::from_millis(1);

impl Kernel {
    /// Wakes a sleeping cell up, and waits until its memory is back. The cell goes on waiting, unless an event has come for it or its
    /// time has come. Admits a cell that is queued for its start. Does nothing to a cell that is awake.
    ///
    /// # Errors
    /// There is no such living cell, or it ended because its memory could not be restored.
    pub fn wake(&self, id: CellId) -> Result<(), OperatorError> {
        self.shared.wake(id)
    }
}

impl Shared {
    /// Wakes a sleeping cell up, and waits until its memory is back.
    ///
    /// # Errors
    /// There is no such living cell, or it ended because its memory could not be restored.
    pub(super) fn wake(&self, id: CellId) -> Result<(), OperatorError> {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = state.cells.outcome(id) {
                return Err(OperatorError::Ended { cell: id, end: outcome.end.clone() });
            }
            let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell(id))?;
            match live.execution.run_state() {
                RunState::Asleep { .. } => {}
                RunState::AwaitingAdmission => {
                    state.notifications.has_runnable_cell |= state.expedite(id);
                    self.notify(&mut state);
                    return Ok(());
                }
                _ => return Ok(()),
            }
            // If memory is short, the threads that wake cells do it in turn.
            let record = if state.sleepers.short_restore.is_none() { state.take_record(id) } else { None };
            match (record, &self.swap) {
                (Some(record), Some(swap)) => {
                    drop(state);
                    self.restore(id, record, &**swap);
                    state = self.lock();
                }
                // Another thread does it, or puts the cell to sleep.
                _ => {
                    state.request_wake(id);
                    self.notify(&mut state);
                    state = self.changed.wait(state).expect("a kernel whose lock was poisoned must not go on");
                }
            }
        }
    }

    /// Restores the memory of a cell from its record, which was claimed. If that is not possible, the cell ends. If memory is short and
    /// another restore needs it, the cell is queued again.
    pub(super) fn restore(&self, id: CellId, record: StoredRecord, swap: &dyn Swap) {
        let _permit = self.records.reads.take();
        let mut chunks = record.chunks(swap);
        let first = chunks.read();
        let mut state = self.lock();
        let restored = first.and_then(|chunk| state.begin_restore(id, chunk));
        let mut is_postponed = false;
        match restored {
            Ok(Some(restore)) => {
                (state, is_postponed) = self.finish_restore(state, id, restore, &mut chunks);
                if state.sleepers.short_restore == Some(id) {
                    state.sleepers.short_restore = None;
                    self.wakers.notify_all();
                }
            }
            // It has ended meanwhile.
            Ok(None) => {}
            Err(error) => state.end_lost_cell(id, &error.to_string()),
        }
        let is_done = if is_postponed { state.postpone_wake(id, record) } else { Some(record) };
        self.notify(&mut state);
        drop(state);
        // Not under the lock: the memory of each chunk may go back to the host.
        is_done.into_iter().for_each(|record| record.discard(swap));
        self.changed.notify_all();
    }

    /// Completes a restore with the further chunks of the record. `true`: it is postponed, and its memory is released.
    fn finish_restore<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: CellId,
        mut restore: MemoryRestore,
        chunks: &mut ChunkReader<'_>,
    ) -> (MutexGuard<'a, State>, bool) {
        let (mut buffer, mut attempts) = (Vec::new(), ReclaimAttempts::default());
        loop {
            let State { cells, frames, bases, .. } = &mut *state;
            let Some(live) = cells.get_mut(id) else {
                restore.finish().release(frames);
                return (state, false);
            };
            let base = live.base.and_then(|base| bases.memory(base)).map(|(base, _)| base);
            let outcome = restore.next_step(frames, base);
            frames.forget_unreadable();
            let cause = match outcome {
                Ok(RestoreProgress::Complete) if chunks.is_at_end() => break,
                Ok(RestoreProgress::Complete) => SwapError::Damaged.to_string(),
                Ok(RestoreProgress::Unfinished) => {
                    state = self.lock_again(state);
                    continue;
                }
                Ok(RestoreProgress::ChunkNeeded) => {
                    drop(state);
                    let chunk = chunks.read();
                    state = self.lock();
                    match chunk {
                        Ok(chunk) => {
                            restore.add_chunk(chunk);
                            continue;
                        }
                        Err(error) => error.to_string(),
                    }
                }
                Err(RestoreError::Copy(CopyError::Absent(_))) if state.frames.reclaim_deficit() => {
                    state = self.lock_again(state);
                    continue;
                }
                Err(RestoreError::Copy(CopyError::Absent(wanted))) => {
                    state = self.read_blocks(state, wanted, None, &mut buffer);
                    continue;
                }
                Err(RestoreError::Copy(CopyError::Shortage(shortage))) => {
                    if shortage == Shortage::Machine && *state.sleepers.short_restore.get_or_insert(id) != id {
                        restore.finish().release(&mut state.frames);
                        return (state, true);
                    }
                    match self.free_memory_or_end_victim(state, id, shortage, &mut attempts) {
                        (relieved, true) => {
                            state = relieved;
                            continue;
                        }
                        (unrelieved, false) => {
                            state = unrelieved;
                            shortage.to_string()
                        }
                    }
                }
                Err(RestoreError::Copy(error)) => error.to_string(),
                Err(RestoreError::Record(error)) => error.to_string(),
            };
            restore.finish().release(&mut state.frames);
            state.end_lost_cell(id, &cause);
            return (state, false);
        }
        state.end_restore(id, restore);
        (state, false)
    }

    /// Lets others have the lock between two steps.
    fn lock_again<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        drop(state);
        self.lock()
    }

    /// Frees memory for a cell that wakes up; if nothing else helps, by the end of the cell that the policy chooses. `false`: nothing
    /// helps, or that cell is the one that wakes up, which has ended.
    fn free_memory_or_end_victim<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        id: CellId,
        shortage: Shortage,
        attempts: &mut ReclaimAttempts,
    ) -> (MutexGuard<'a, State>, bool) {
        if let Some(state) = self.free_memory(state, shortage, attempts) {
            return (state, true);
        }
        let mut state = self.lock();
        let victim = state.victim().filter(|victim| shortage == Shortage::Machine && *victim != id);
        let Some(victim) = victim else {
            state.end_unrestorable(id, end_for(shortage));
            return (state, false);
        };
        state.request_end(victim, End::MachineFull);
        self.notify(&mut state);
        attempts.is_flushed = false;
        let waited = self.changed.wait_timeout(state, VICTIM_WAIT).expect("a kernel whose lock was poisoned must not go on");
        (waited.0, true)
    }
}

impl State {
    /// Lets a cell wake up soon.
    pub(super) fn request_wake(&mut self, id: CellId) {
        let State { cells, sleepers, notifications, .. } = self;
        if let Some(sleep) = cells.get_mut(id).and_then(|live| live.sleep.as_mut())
            && !std::mem::replace(&mut sleep.is_wake_requested, true)
        {
            sleepers.queue_wake(id);
            notifications.has_sleep_work = true;
        }
    }

    /// Takes the record of a sleeping cell, whose caller then restores it. `None`: the cell is not in swap space, or another thread
    /// restores it already.
    pub(super) fn take_record(&mut self, id: CellId) -> Option<StoredRecord> {
        let (live, _) = self.living(id)?;
        let sleep = live.sleep.as_mut()?;
        match std::mem::replace(&mut sleep.stage, SleepStage::SwappingIn) {
            SleepStage::Stored(record) => Some(record),
            other => {
                sleep.stage = other;
                None
            }
        }
    }

    /// Queues a cell again whose restore was given up, with its record. Returns the record if the cell has ended meanwhile.
    fn postpone_wake(&mut self, id: CellId, record: StoredRecord) -> Option<StoredRecord> {
        let State { cells, frames, sleepers, notifications, .. } = self;
        let Some(live) = cells.get_mut(id) else { return Some(record) };
        let Some(sleep) = live.sleep.as_mut() else { return Some(record) };
        (sleep.stage, sleep.is_wake_requested) = (SleepStage::Stored(record), true);
        if let Some(quota) = sleep.quota.take() {
            frames.set_quota(live.cell.memory.account(), quota);
        }
        sleepers.queue_wake(id);
        notifications.has_sleep_work = true;
        None
    }

    /// Begins to restore the memory of a cell from the first chunk of its record. `None`: the cell has ended.
    fn begin_restore(&mut self, id: CellId, chunk: Vec<u8>) -> Result<Option<MemoryRestore>, SwapError> {
        let Some((live, frames)) = self.living(id) else { return Ok(None) };
        let account = live.cell.memory.account();
        let usage = frames.usage(account);
        // Tables of its old memory may still wait for a flush, and some that it shared become its own.
        let Some(sleep) = &mut live.sleep else { return Ok(None) };
        let needed = usage.used.0.saturating_add(sleep.used.0).saturating_add(WAKE_FRAMES + sleep.used.0 / WAKE_DIVISOR);
        sleep.quota = Some(usage.quota);
        frames.set_quota(account, PageCount(usage.quota.0.max(needed)));
        let memory = live.cell.memory.new_empty_for_same_account();
        MemoryRestore::new(memory, frames, chunk).map(Some).map_err(|_| SwapError::Damaged)
    }

    /// Gives a cell its restored memory.
    fn end_restore(&mut self, id: CellId, restore: MemoryRestore) {
        let Sleepers { sleep_after, sleeps_when_idle, .. } = self.sleepers;
        let now = self.frames.machine().now();
        let Some((live, frames)) = self.living(id) else { return restore.finish().release(&mut self.frames) };
        live.cell.memory.reattach(restore.finish());
        if let Some(sleep) = &live.sleep {
            if let Some(quota) = sleep.quota {
                frames.set_quota(live.cell.memory.account(), quota);
            }
            if !sleeps_when_idle {
                live.idleness.note_wake(now, now.since(sleep.since), sleep_after);
            }
        }
        self.sleepers.counters.wakes += 1;
        self.end_sleep(id);
        self.notifications.has_runnable_cell |= self.exceeds_resident_limit();
    }

    /// Ends the sleep of a cell that has its memory: it goes on where it waited, or follows requests that came meanwhile.
    pub(super) fn end_sleep(&mut self, id: CellId) {
        let now = self.frames.machine().now();
        let State { cells, frames, networks, .. } = self;
        let Some(live) = cells.get_mut(id) else { return };
        let RunState::Asleep { until } = live.execution.run_state() else { return };
        live.sleep = None;
        live.cell.sleeping_registers = None;
        live.execution.transition(RunState::Idle { until });
        live.idleness.begin(now);
        if let Some(card) = &live.card {
            networks.set_asleep(card.port, false);
        }
        if live.cell.stop_request.is_forced_freeze() {
            self.force_freeze(id);
        } else if live.cell.watch.must_halt {
            self.halt(id, HaltReason::Requested);
        } else if until <= now || live.cell.has_unmasked_events(frames) {
            self.make_ready(id, ReadyReason::Woken);
            self.notifications.has_runnable_cell = true;
        } else if !self.sleepers.sleeps_when_idle {
            self.note_idle(id, now);
        }
    }

    /// Ends a cell whose memory cannot be restored.
    fn end_lost_cell(&mut self, id: CellId, cause: &str) {
        self.end_unrestorable(id, End::Host(format!("the memory of the sleeping cell could not be restored: {cause}")));
    }

    /// Ends a cell that does not wake up.
    fn end_unrestorable(&mut self, id: CellId, end: End) {
        self.sleepers.counters.restore_failures += u64::from(self.living(id).is_some());
        self.end(id, end);
    }
}
