// SPDX-License-Identifier: MIT OR Apache-2.0
//! Housekeeping of a vCPU between cells: alarms, admissions, and the release of memory.

use super::Shared;
use super::sleepers::SwapOutRequest;
use super::state::State;
use super::swap_out::ReclaimAttempts;
use crate::cell::end::End;
use crate::cell::run_state::RunState;
use crate::limits::{DECOMMIT_STEP, FLUSH_INTERVAL, RELEASE_STEP, TABLES_HIGH};
use crate::memory::Shortage;
use crate::sched::ReadyReason;
use pando_machine::{FRAMES_PER_HUGE_FRAME, Nanos};
use std::iter;
use std::sync::MutexGuard;

impl Shared {
    /// Does due housekeeping, in bounded steps. Releases the lock while the machine flushes.
    pub(super) fn housekeeping<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let now = self.machine.now();
        state.expire_alarms(now);
        state.networks.advance(now);
        state.wake_receivers();
        state.end_orphans();
        state.release_rights();
        state.frames.reap(RELEASE_STEP);
        state.admit_all();
        if state.flush_is_due(now) {
            state = self.flush(state);
        }
        state.free_memory_for_others();
        self.notify(&mut state);
        state
    }

    /// Flushes the machine's tables, which frees retired tables, and wakes the cells that wait for that.
    pub(super) fn flush<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.flushes.is_under_way {
            return state;
        }
        state.flushes.is_under_way = true;
        let tables = state.frames.begin_flush();
        drop(state);
        let outcome = self.machine.flush_tables();
        let mut state = self.lock();
        state.frames.end_flush(tables, &outcome);
        state.flushes.is_under_way = false;
        self.changed.notify_all();
        state.flushes.last = self.machine.now();
        state.flushes.has_failed = outcome.is_err();
        for id in std::mem::take(&mut state.flushes.awaited_by) {
            if !state.living(id).is_some_and(|(live, _)| live.execution.run_state() == RunState::AwaitingMemory) {
                continue;
            }
            match &outcome {
                Ok(()) => {
                    state.make_ready(id, ReadyReason::Turn);
                    self.kick_vcpu(&state);
                }
                // The flush that the cell waits for will not come.
                Err(error) => state.end(id, End::Host(error.to_string())),
            }
        }
        // The tables that were freed may be all that a waiting cell lacked, and no later housekeeping would look.
        if state.admit_all() {
            self.kick_vcpu(&state);
        }
        state
    }

    /// Frees all memory that can be freed without ending a cell. Takes milliseconds, most of them without the lock.
    pub(super) fn make_room<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let mut state = self.reap_all(state);
        // The tables that another thread flushes are in no list meanwhile.
        while state.flushes.is_under_way {
            state = self.changed.wait(state).expect("a kernel whose lock was poisoned must not go on");
        }
        self.flush(state)
    }

    /// Releases all garbage, giving up the lock between steps.
    fn reap_all<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while !state.frames.reap(RELEASE_STEP) {
            drop(state);
            state = self.lock();
        }
        state
    }

    /// Frees memory for an operator's call, or for a cell that wakes up, without ending a cell: evicts blocks, flushes the machine, and
    /// puts an idle cell to sleep. `None`: nothing is left to free.
    pub(super) fn free_memory<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        shortage: Shortage,
        attempts: &mut ReclaimAttempts,
    ) -> Option<MutexGuard<'a, State>> {
        if shortage == Shortage::Machine && (state.frames.reclaim_deficit() || state.evict(None)) {
            return Some(self.reap_all(state));
        }
        if state.frames.has_garbage() {
            return Some(self.reap_all(state));
        }
        if state.has_quarantined_tables() && !std::mem::replace(&mut attempts.is_flushed, true) {
            return Some(self.make_room(state));
        }
        if shortage == Shortage::Quota {
            return None;
        }
        self.swap_out_one(state, attempts)
    }

    /// Gives some of the wholly free huge frames back to the host, without the lock, if there are more than `keep`; `true` if there were.
    pub(super) fn give_back(&self, mut state: MutexGuard<'_, State>, keep: usize) -> bool {
        let spare: Vec<_> = iter::from_fn(|| state.frames.begin_decommit(keep)).take(DECOMMIT_STEP).collect();
        drop(state);
        for huge_frame in &spare {
            self.machine.arena().give_back(huge_frame.first(), FRAMES_PER_HUGE_FRAME);
        }
        let found = !spare.is_empty();
        if found {
            let mut state = self.lock();
            spare.into_iter().for_each(|huge_frame| state.frames.end_decommit(huge_frame));
        }
        found
    }

    /// Delivers the notifications that are due.
    pub(super) fn notify(&self, state: &mut State) {
        let due = std::mem::take(&mut state.notifications);
        if due.has_stopped_cell {
            self.changed.notify_all();
        }
        if due.has_runnable_cell {
            self.kick_vcpu(state);
        }
        if due.has_sleep_work {
            self.sleeper.notify_one();
            match state.sleepers.wake_count() {
                0 => {}
                1 => self.wakers.notify_one(),
                _ => self.wakers.notify_all(),
            }
            if !state.sleepers.has_threads {
                self.kick_vcpu(state);
            }
        }
        due.interrupts.into_iter().for_each(|vcpu| self.interrupt(vcpu));
        // An idle vCPU takes one of them. A busy vCPU takes them when its cell waits, or its quantum ends.
        let has_work = due.has_woken_receiver || !state.orphans.is_empty() || !state.released.is_empty();
        if has_work && state.idle_workers > 0 {
            self.work.notify_one();
        }
    }
}

impl State {
    /// Frees memory for cells that wait for admission, or has an idle cell fall asleep if cells use more than they may while some idle.
    fn free_memory_for_others(&mut self) {
        self.sleepers.is_search_unfinished = false;
        if self.frames.has_garbage() {
            return;
        }
        let awaits_memory = self.gatekeeper.awaits_memory() && !self.has_quarantined_tables();
        if awaits_memory && self.evict(None) {
            self.sleepers.is_search_unfinished = true;
        } else if awaits_memory || self.exceeds_resident_limit() {
            self.sleepers.is_search_unfinished = self.request_swap_out(awaits_memory) == SwapOutRequest::Unfinished;
        }
    }

    /// Whether tables become free when a flush ends.
    pub(super) fn has_quarantined_tables(&self) -> bool {
        self.frames.quarantined() > 0 || self.flushes.is_under_way
    }

    /// When idle cells that cannot sleep now are tried again for cells that wait for admission.
    fn next_search(&self, now: Nanos) -> Nanos {
        // A flush and the end of a cell's way to sleep come first.
        if !self.gatekeeper.awaits_memory() || self.has_quarantined_tables() || self.sleepers.is_any_swapping_out() {
            return Nanos::NEVER;
        }
        let retry = Some(self.sleepers.swap_retry_at).filter(|at| *at > now);
        self.sleepers.idle.next_deferred().into_iter().chain(retry).max().unwrap_or(Nanos::NEVER)
    }

    /// Whether a flush is needed, by a cell that is out of memory or by one that is not admitted for want of it.
    fn flush_is_awaited(&self) -> bool {
        let gate = self.gatekeeper.awaits_memory() && (self.frames.quarantined() > 0 || self.frames.has_garbage());
        !self.flushes.is_under_way && (gate || !self.flushes.awaited_by.is_empty())
    }

    fn flush_is_due(&self, now: Nanos) -> bool {
        let most = self.frames.quarantined().max(self.frames.tables_since_flush());
        let many = !self.flushes.is_under_way && most >= TABLES_HIGH;
        let rested = now >= self.flushes.last + FLUSH_INTERVAL;
        rested && self.flush_is_awaited() || many && (rested || !self.flushes.has_failed)
    }

    /// When housekeeping is next due: the next alarm, requested flush or frame arrival, or at once if children of ended cells live.
    pub(super) fn next_housekeeping(&mut self) -> Nanos {
        if !self.orphans.is_empty() || !self.released.is_empty() || self.sleepers.is_search_unfinished {
            return Nanos(0);
        }
        let flush = if self.flush_is_awaited() { self.flushes.last + FLUSH_INTERVAL } else { Nanos::NEVER };
        let search = self.next_search(self.frames.machine().now());
        self.next_alarm().min(flush).min(search).min(self.networks.next_arrival())
    }
}
