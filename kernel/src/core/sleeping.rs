// SPDX-License-Identifier: MIT OR Apache-2.0
//! Falling asleep: the memory of an idle cell leaves for swap space, as the difference to its base.
//!
//! The memory is detached from the cell first. So nobody else reads or changes it while it is compared without the lock, and an event
//! that comes meanwhile has it attached again, with its tables and its root as they were. When the record is in swap space, the memory is
//! released like that of a cell that ends: frames at once, tables and root by the quarantine (rule 3 of the page-table discipline).

use super::cell_table::LiveCell;
use super::error::OperatorError;
use super::idle_queue::IdleClass;
use super::records::{StoredRecord, UnfinishedRecord};
use super::sleepers::{Sleep, SleepOutcome, SleepStage, SwapOutRequest};
use super::state::State;
use super::{Kernel, Shared};
use crate::cell::CellId;
use crate::cell::run_state::RunState;
use crate::device::swap::{Swap, SwapUsage};
use crate::limits::{ALARM_CLEANUP_MIN, RECLAIM_DELAY, RESERVED_HUGE_FRAMES, SHORTEST_SLEEP, SLEEP_RETRY};
use crate::memory::{DifferenceTooLarge, Frames, MemoryDifference};
use crate::network::Networks;
use pando_machine::Nanos;
use std::sync::MutexGuard;
use std::time::Duration;

pub use super::sleepers::SleepCounters;

/// The reason for which a cell cannot sleep that differs too much from its base.
const TOO_LARGE: &str = "it has changed too much memory";

impl Kernel {
    /// Puts an idle cell to sleep: its memory leaves for swap space, and an event, its alarm or an operation that needs its memory wakes
    /// it up. Does nothing to a cell that is asleep. Waits until the memory is in swap space, or until an event comes to the cell.
    ///
    /// # Errors
    /// There is no such living cell, its state does not allow it to sleep, or swap space is full or fails: it stays awake.
    pub fn sleep(&self, id: CellId) -> Result<SleepOutcome, OperatorError> {
        self.shared.sleep(id)
    }

    /// Limits the memory of this process for records of cells that fall asleep and wake up: half for each, for one record at least. Cells
    /// beyond that wait for their turn.
    pub fn limit_records(&self, bytes: u64) {
        self.shared.records.set(bytes);
    }

    /// The use of swap space; `None`: there is none.
    #[must_use]
    pub fn swap_usage(&self) -> Option<SwapUsage> {
        self.shared.swap.as_ref().map(|swap| swap.usage())
    }

    /// Numbers of sleeps so far.
    #[must_use]
    pub fn sleep_counters(&self) -> SleepCounters {
        self.shared.lock().sleepers.counters
    }
}

impl Shared {
    /// Puts an idle cell to sleep. If it cannot sleep, it is tried again later.
    ///
    /// # Errors
    /// It stays awake, for a reason other than an event.
    pub(super) fn sleep(&self, id: CellId) -> Result<SleepOutcome, OperatorError> {
        let slept = self.try_sleep(id);
        if let Err(error) = &slept {
            self.lock().note_failed_sleep(id, error);
        }
        slept
    }

    fn try_sleep(&self, id: CellId) -> Result<SleepOutcome, OperatorError> {
        let refuse = |reason| OperatorError::CannotSleep { cell: id, reason };
        let Some(swap) = &self.swap else { return Err(refuse("there is no swap space")) };
        // Until it is its turn, the cell stays awake.
        let permit = self.records.writes.take();
        let begun = self.lock().begin_sleep(id)?;
        let Some(mut difference) = begun else {
            drop(permit);
            return self.await_sleep(id);
        };
        let (record, failure) = match self.write_record(id, &mut difference, &**swap) {
            Ok(record) => (record, None),
            Err(error) => (None, Some(error)),
        };
        let mut state = self.lock();
        let slept = state.end_falling_asleep(id, difference, record, &**swap);
        state.sleepers.leaving -= 1;
        state.wake_swap_out_waiters();
        if slept == Ok(SleepOutcome::Asleep) && state.sleepers.reclaim_due.is_none() {
            state.sleepers.reclaim_due = Some(self.machine.now() + RECLAIM_DELAY);
            self.sleeper.notify_one();
        }
        self.notify(&mut state);
        self.changed.notify_all();
        match failure {
            Some(error) => Err(error),
            None => slept,
        }
    }

    /// Writes the record of a cell that falls asleep to swap space, chunk by chunk. `None`: an event has come for the cell.
    fn write_record(&self, id: CellId, difference: &mut MemoryDifference, swap: &dyn Swap) -> Result<Option<StoredRecord>, OperatorError> {
        let failed = |error| OperatorError::Swap { cell: id, error };
        let mut record = UnfinishedRecord::new(swap);
        loop {
            let mut state = self.lock();
            if !state.is_falling_asleep(id) {
                return Ok(None);
            }
            let Some(mut piece) = difference.next_step(&mut state.frames) else { break };
            drop(state);
            loop {
                match difference.write(self.machine.arena(), &mut piece) {
                    Ok(true) => break,
                    Ok(false) => record.put(&difference.take_chunk()).map_err(failed)?,
                    Err(DifferenceTooLarge) => return Err(OperatorError::CannotSleep { cell: id, reason: TOO_LARGE }),
                }
            }
        }
        record.finish(&difference.take_chunk()).map(Some).map_err(failed)
    }

    /// Waits until a cell has fallen asleep that another thread puts to sleep.
    fn await_sleep(&self, id: CellId) -> Result<SleepOutcome, OperatorError> {
        let mut state = self.lock();
        loop {
            let Some((live, _)) = state.living(id) else { return Ok(SleepOutcome::Interrupted) };
            match live.sleep.as_deref() {
                Some(Sleep { stage: SleepStage::SwappingOut, .. }) => {}
                Some(Sleep { stage: SleepStage::Stored(_), is_wake_requested: false, .. }) => return Ok(SleepOutcome::Asleep),
                _ => return Ok(SleepOutcome::Interrupted),
            }
            state = self.changed.wait(state).expect("a kernel whose lock was poisoned must not go on");
        }
    }

    /// Wakes the next cell that should wake up. `false`: there is none.
    pub(super) fn step_wake(&self) -> bool {
        let Some(swap) = &self.swap else { return false };
        let mut state = self.lock();
        let Some(id) = state.sleepers.pop_wake() else { return false };
        if let Some(record) = state.take_record(id) {
            drop(state);
            self.restore(id, record, &**swap);
        }
        true
    }

    /// Puts the next cell to sleep. `false`: none is due, and memory is not short.
    fn step_sleep(&self) -> bool {
        if self.step_swap_out() {
            return true;
        }
        let next = self.lock().next_sleeper(self.machine.now());
        if let Some(id) = next {
            // If it cannot sleep, it stays awake, and is tried again later.
            let _ = self.sleep(id);
        }
        next.is_some()
    }

    /// Puts cells to sleep until the kernel stops, and gives their memory back to the host.
    pub(super) fn run_sleeper(&self) {
        loop {
            if self.step_sleep() {
                continue;
            }
            let mut state = self.lock();
            if state.is_stopping {
                return;
            }
            let now = self.machine.now();
            if state.sleepers.reclaim_due.is_some_and(|due| due <= now) {
                state.sleepers.reclaim_due = None;
                drop(self.make_room(state));
                while self.give_back(self.lock(), RESERVED_HUGE_FRAMES) {}
            } else if !state.sleepers.has_swap_outs() {
                let due = state.sleepers.next_due().min(state.sleepers.reclaim_due.unwrap_or(Nanos::NEVER)).since(now);
                // A cell that is queued meanwhile is due no earlier than that.
                let longest = state.sleepers.sleep_after.unwrap_or(Duration::from_secs(3600));
                let _ = self.sleeper.wait_timeout(state, due.min(longest)).expect("a kernel whose lock was poisoned must not go on");
            }
        }
    }

    /// Wakes cells until the kernel stops. Several threads do so: a slow read of one record holds up no other cell.
    pub(super) fn run_waker(&self) {
        loop {
            if self.step_wake() {
                continue;
            }
            let state = self.lock();
            if state.is_stopping {
                return;
            }
            if state.sleepers.wake_count() == 0 || state.sleepers.short_restore.is_some() {
                drop(self.wakers.wait(state).expect("a kernel whose lock was poisoned must not go on"));
            }
        }
    }

    /// Does the work on sleeping cells on a vCPU, if no thread does it.
    pub(super) fn serve_sleepers<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if self.swap.is_some() && !state.sleepers.has_threads {
            loop {
                drop(state);
                let has_worked = self.step_wake() || self.step_sleep();
                state = self.lock();
                if !has_worked {
                    break;
                }
            }
        }
        state
    }
}

impl State {
    /// Records that a cell has become idle, and queues it.
    pub(super) fn note_idle(&mut self, id: CellId, now: Nanos) {
        let State { cells, sleepers, notifications, .. } = self;
        let Some(live) = cells.get_mut(id) else { return };
        live.idleness.begin(now);
        if self.swap.is_none() || live.idleness.place.is_some_and(|place| place.class != IdleClass::Deferred) {
            return;
        }
        // The state of a cell that was deferred has changed.
        sleepers.queue_idle(id, &mut live.idleness);
        notifications.has_sleep_work |= sleepers.sleeps_when_idle;
        if sleepers.idle.len() > 2 * cells.slots() + ALARM_CLEANUP_MIN {
            // Ended cells, and those that have another place, leave entries.
            sleepers.idle.retain(|id, place| cells.get_mut(id).is_some_and(|live| live.idleness.is_at(place)));
        }
        if !self.sleepers.swap_out_waiters.is_empty() && self.request_swap_out(true) == SwapOutRequest::Unfinished {
            // They continue the search.
            self.wake_swap_out_waiters();
        }
    }

    /// Takes the next cell that falls asleep without a request.
    fn next_sleeper(&mut self, now: Nanos) -> Option<CellId> {
        loop {
            let (id, place) = self.sleepers.pop_due_idle(now)?;
            let State { cells, sleepers, .. } = self;
            let Some(live) = cells.get_mut(id).filter(|live| live.idleness.is_at(place)) else { continue };
            live.idleness.place = None;
            let RunState::Idle { until } = live.execution.run_state() else { continue };
            if live.idleness.due(sleepers.sleep_after) > now {
                sleepers.queue_idle(id, &mut live.idleness);
            } else if sleepers.sleeps_when_idle || until.since(now) >= SHORTEST_SLEEP {
                return Some(id);
            }
        }
    }

    /// Records that a cell could not sleep, and queues it for a later attempt.
    fn note_failed_sleep(&mut self, id: CellId, error: &OperatorError) {
        let now = self.frames.machine().now();
        let State { cells, sleepers, .. } = self;
        sleepers.counters.refused += 1;
        if let OperatorError::Swap { .. } = error {
            sleepers.swap_retry_at = now + SLEEP_RETRY;
        }
        let Some(live) = cells.get_mut(id).filter(|live| matches!(live.execution.run_state(), RunState::Idle { .. })) else { return };
        match error {
            OperatorError::CannotSleep { reason, .. } if *reason != TOO_LARGE => _ = live.idleness.note_refusal(now),
            _ => live.idleness.note_failure(now),
        }
        if self.swap.is_some() && live.idleness.place.is_none() {
            sleepers.queue_idle(id, &mut live.idleness);
        }
    }

    /// Detaches the memory of a cell that falls asleep. `None`: it is asleep already.
    fn begin_sleep(&mut self, id: CellId) -> Result<Option<MemoryDifference>, OperatorError> {
        let refuse = |reason| OperatorError::CannotSleep { cell: id, reason };
        let now = self.frames.machine().now();
        if let Some(outcome) = self.cells.outcome(id) {
            return Err(OperatorError::Ended { cell: id, end: outcome.end.clone() });
        }
        let State { cells, frames, networks, bases, .. } = self;
        let live = cells.get_mut(id).ok_or(OperatorError::NoSuchCell(id))?;
        let until = match live.execution.run_state() {
            RunState::Idle { until } => until,
            RunState::Asleep { .. } => return Ok(None),
            RunState::AwaitingAdmission => return Err(refuse("it is queued for its start")),
            _ => return Err(refuse("it does not wait for an event")),
        };
        if let Some(reason) = sleep_refusal(live, frames, networks) {
            return Err(refuse(reason));
        }
        live.cell.memory.end_start(frames);
        live.cell.keep_registers(frames);
        live.shrink_buffers();
        let used = frames.usage(live.cell.memory.account()).used;
        live.sleep = Some(Box::new(Sleep { stage: SleepStage::SwappingOut, is_wake_requested: false, since: now, used, quota: None }));
        live.execution.transition(RunState::Asleep { until });
        if let Some(card) = &live.card {
            networks.set_asleep(card.port, true);
        }
        let memory = live.cell.memory.detach();
        let base = live.base.and_then(|base| bases.memory(base)).map(|(base, account)| base.clone_set(frames, account));
        self.sleepers.leaving += 1;
        Ok(Some(MemoryDifference::new(memory, base)))
    }

    /// Whether a cell still falls asleep: it lives, and no event has come.
    fn is_falling_asleep(&mut self, id: CellId) -> bool {
        let sleep = self.living(id).and_then(|(live, _)| live.sleep.as_ref());
        sleep.is_some_and(|sleep| matches!(sleep.stage, SleepStage::SwappingOut) && !sleep.is_wake_requested)
    }

    /// Ends the process of falling asleep: releases the memory if its record is in swap space, or else attaches it again.
    fn end_falling_asleep(
        &mut self,
        id: CellId,
        difference: MemoryDifference,
        record: Option<StoredRecord>,
        swap: &dyn Swap,
    ) -> Result<SleepOutcome, OperatorError> {
        let pages = difference.pages();
        let is_falling_asleep = self.is_falling_asleep(id);
        let State { cells, frames, sleepers, .. } = self;
        let memory = difference.finish(frames);
        let Some(live) = cells.get_mut(id) else {
            // It has ended meanwhile.
            memory.release(frames);
            record.into_iter().for_each(|record| record.discard(swap));
            return Ok(SleepOutcome::Interrupted);
        };
        let fits = live.sleep.as_ref().is_some_and(|sleep| pages <= sleep.used.0);
        match (record, &mut live.sleep) {
            (Some(record), Some(sleep)) if is_falling_asleep && fits => {
                sleep.stage = SleepStage::Stored(record);
                memory.release(frames);
                sleepers.counters.sleeps += 1;
                if !self.keeps_bases
                    && let Some(base) = live.base
                {
                    self.bases.release(base, &mut self.frames);
                }
                Ok(SleepOutcome::Asleep)
            }
            (record, _) => {
                let is_refused = record.is_some() && !fits;
                record.into_iter().for_each(|record| record.discard(swap));
                live.cell.memory.reattach(memory);
                if !is_falling_asleep {
                    sleepers.counters.interrupted += 1;
                    live.idleness.note_interruption(frames.machine().now());
                }
                self.end_sleep(id);
                if is_refused { Err(OperatorError::CannotSleep { cell: id, reason: TOO_LARGE }) } else { Ok(SleepOutcome::Interrupted) }
            }
        }
    }
}

/// The reason for which an idle cell cannot sleep at present.
pub(super) fn sleep_refusal(live: &mut LiveCell, frames: &Frames, networks: &Networks) -> Option<&'static str> {
    let is_unfinished = live.execution.work.is_some() || live.execution.unconfirmed.is_some() || live.donation.is_some();
    let is_stopping = live.cell.stop_request.wants_freeze() || live.cell.watch.must_halt;
    if live.parent.is_some() {
        Some("it is a nested cell: only cells of the operator sleep")
    } else if live.holdings.children().next().is_some() {
        Some("it has nested cells")
    } else if live.ipc.wait.is_some() || live.ipc.prefault_request.is_some() || live.holdings.has_ports_or_calls() {
        Some("it has a port or a posted call, or waits in a call")
    } else if live.cell.memory.is_training() {
        Some("a template is trained with it")
    } else if is_unfinished || is_stopping {
        Some("an operation on it is not finished")
    } else if live.cell.has_unmasked_events(frames) {
        Some("an event is pending for it")
    } else if live.has_posted_output(frames) {
        Some("its output was not read yet")
    } else if live.card.as_ref().is_some_and(|card| networks.peek(card.port).is_some()) {
        Some("frames wait at its network card")
    } else {
        None
    }
}
