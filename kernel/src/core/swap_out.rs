// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory pressure: before a cell ends for want of memory, idle cells fall asleep.
//!
//! The cells that have idled longest are taken first, and those that have just woken up last. A vCPU does not wait for swap space: its cell
//! waits as for a flush, until a cell has fallen asleep. Threads of the operator and those that wake cells put the idle cell to sleep
//! themselves. If no cell idles, but others run, they are waited for: one may idle soon. So a working set that is larger than memory makes
//! cells slow, and ends none of them.

use super::idle_queue::IdleClass;
use super::sleepers::{SleepOutcome, SwapOutRequest};
use super::sleeping::sleep_refusal;
use super::state::State;
use super::{Kernel, Shared};
use crate::cell::CellId;
use crate::cell::run_state::RunState;
use crate::limits::{MAKE_AVAILABLE_MAX, MEMORY_WAIT_INTERVAL, MEMORY_WAIT_MAX, SWAP_OUT_SCAN};
use crate::sched::ReadyReason;
use pando_machine::{Nanos, PageCount};
use std::sync::MutexGuard;
use std::time::Instant;

/// The attempts of an operation to free memory.
#[derive(Debug, Default)]
pub(super) struct ReclaimAttempts {
    /// A flush would free nothing more.
    pub(super) is_flushed: bool,
    /// Cells that run, or have just woken up, are waited for and put to sleep until this time. So are cells after one that did not sleep.
    deadline: Option<Instant>,
    /// The last cell did not fall asleep.
    has_failed: bool,
}

/// The result of a search for a cell that can sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleSearch {
    Found(CellId),
    /// None can.
    None,
    /// Not all were looked at: the next search continues.
    Unfinished,
}

impl ReclaimAttempts {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether cells do not fall asleep, and the time for attempts is over.
    fn must_stop(&self) -> bool {
        self.has_failed && self.is_over()
    }

    fn begin(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + MEMORY_WAIT_MAX);
    }

    /// Records whether a cell has fallen asleep.
    fn note(&mut self, has_slept: bool) {
        self.has_failed = !has_slept;
        self.is_flushed = false;
        if has_slept {
            self.deadline = None;
        } else {
            self.begin();
        }
    }
}

impl Kernel {
    /// Makes memory available: releases what ended cells had, then puts idle cells to sleep, the longest idle first. `false`: no other
    /// cell can sleep, or those that could are interrupted for some time, and less than `pages` is available.
    pub fn make_available(&self, pages: PageCount) -> bool {
        let shared = &*self.shared;
        let (mut attempts, begun) = (ReclaimAttempts::default(), Instant::now());
        let mut state = shared.make_room(shared.lock());
        while state.frames.available() < pages {
            let found = state.take_longest_idle(shared.machine.now(), false);
            match found {
                IdleSearch::None if state.sleepers.does_another_thread_free_memory() => drop(shared.await_change(state)),
                IdleSearch::None => return false,
                IdleSearch::Found(id) => {
                    drop(state);
                    attempts.note(shared.swap_out(id));
                }
                IdleSearch::Unfinished if attempts.is_over() => return false,
                IdleSearch::Unfinished => {
                    drop(state);
                    attempts.begin();
                }
            }
            // Cells that wake up meanwhile may need as much again.
            if attempts.must_stop() || begun.elapsed() >= MAKE_AVAILABLE_MAX {
                return false;
            }
            state = shared.make_room(shared.lock());
        }
        true
    }
}

impl Kernel {
    /// Pages that are in use: by cells, templates, tables and cached blocks.
    #[must_use]
    pub fn used(&self) -> PageCount {
        self.shared.lock().frames.used()
    }

    /// Pages that are in use, without cached blocks that no cell maps.
    #[must_use]
    pub fn used_by_cells(&self) -> PageCount {
        self.shared.lock().frames.used_by_cells()
    }

    /// Withholds this many pages from all cells, in place of an earlier number. They do not count as free. If fewer are free, cached blocks
    /// are dropped that no cell maps, and nothing is allocated until enough pages have become free: [`Kernel::make_available`] helps.
    pub fn withhold(&self, pages: PageCount) {
        let mut state = self.shared.lock();
        state.frames.withhold(pages);
        // There may be more than before.
        state.wake_swap_out_waiters();
        self.shared.notify(&mut state);
        drop(state);
        while self.shared.lock().frames.reclaim_deficit() {}
    }

    /// Has idle cells fall asleep while cells use more than this many pages together. Cells that do not idle keep what they have, and may
    /// get more.
    pub fn limit_resident(&self, pages: PageCount) {
        let mut state = self.shared.lock();
        state.sleepers.resident_limit = Some(pages);
        state.notifications.has_runnable_cell |= state.exceeds_resident_limit();
        self.shared.notify(&mut state);
    }

    /// Gives the host the memory behind all free frames, also those of partly used huge frames, whose rest has small pages then.
    pub fn give_back_unused(&self) {
        while self.shared.give_back(self.shared.lock(), 0) {}
        let mut from = 0;
        while self.shared.lock().frames.trim_next(&mut from) {}
    }
}

impl Shared {
    /// Tries to put a cell to sleep that idles, or waits a little for one that runs. `None`: there is none.
    pub(super) fn swap_out_one<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        attempts: &mut ReclaimAttempts,
    ) -> Option<MutexGuard<'a, State>> {
        let now = self.machine.now();
        let is_over = attempts.is_over();
        if attempts.must_stop() {
            return None;
        }
        match state.take_longest_idle(now, !is_over) {
            IdleSearch::Found(id) => {
                if state.living(id).is_some_and(|(live, _)| live.idleness.spared_until(now).is_some()) {
                    attempts.begin();
                }
                drop(state);
                attempts.note(self.swap_out(id));
                return Some(self.lock());
            }
            IdleSearch::Unfinished if is_over => return None,
            IdleSearch::Unfinished => {
                attempts.begin();
                // Others may have the lock between two steps.
                drop(state);
                return Some(self.lock());
            }
            IdleSearch::None => {}
        }
        // One that falls asleep frees memory, however long that takes.
        let may_idle = state.has_busy_cells(0) || state.has_deferred(now);
        let may_sleep = state.sleepers.has_threads && state.can_swap_out(now) && may_idle && !is_over;
        if !may_sleep && !state.sleepers.does_another_thread_free_memory() {
            return None;
        }
        attempts.begin();
        attempts.is_flushed = false;
        Some(self.await_change(state))
    }

    /// Waits a little until the state of a cell has changed.
    fn await_change<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, MEMORY_WAIT_INTERVAL).expect("a kernel whose lock was poisoned must not go on").0
    }

    /// Tries to put an idle cell to sleep because memory is short. `false`: it stays awake, and another one may be chosen.
    fn swap_out(&self, id: CellId) -> bool {
        let has_slept = self.sleep(id) == Ok(SleepOutcome::Asleep);
        if has_slept {
            let mut state = self.lock();
            state.sleepers.counters.pressure_sleeps += 1;
            state.sleepers.last_swap_out = Some(self.machine.now());
        }
        has_slept
    }

    /// Puts the next idle cell to sleep that was chosen because memory is short. `false`: there is none.
    pub(super) fn step_swap_out(&self) -> bool {
        let Some(id) = self.lock().sleepers.pop_swap_out() else { return false };
        self.swap_out(id);
        let mut state = self.lock();
        state.sleepers.swap_outs -= 1;
        state.wake_swap_out_waiters();
        self.notify(&mut state);
        true
    }
}

impl State {
    /// Requests that an idle cell falls asleep to free memory, unless one is falling asleep. A cell that has just woken up is chosen only
    /// if there is no other, and with `includes_woken`.
    pub(super) fn request_swap_out(&mut self, includes_woken: bool) -> SwapOutRequest {
        if self.sleepers.is_any_swapping_out() {
            return SwapOutRequest::UnderWay;
        }
        match self.take_longest_idle(self.frames.machine().now(), includes_woken) {
            IdleSearch::Found(id) => {
                self.sleepers.queue_swap_out(id);
                self.notifications.has_sleep_work = true;
                SwapOutRequest::UnderWay
            }
            IdleSearch::Unfinished => SwapOutRequest::Unfinished,
            IdleSearch::None => SwapOutRequest::Refused,
        }
    }

    /// Whether cells use more than they may while some idle. Memory that is still being released counts as used, but for tables that wait
    /// for a flush.
    pub(super) fn exceeds_resident_limit(&self) -> bool {
        let used = self.frames.used_by_cells().0.saturating_sub(self.frames.quarantined() as u64);
        self.sleepers.resident_limit.is_some_and(|limit| used > limit.0)
    }

    /// Lets a cell on a vCPU wait for memory until another one has fallen asleep, or idles and can. `false`: none can, or the cell has
    /// waited long enough.
    pub(super) fn try_wait_for_swap_out(&mut self, id: CellId) -> bool {
        let now = self.frames.machine().now();
        match self.request_swap_out(true) {
            SwapOutRequest::UnderWay => return true,
            SwapOutRequest::Unfinished => {}
            // Others run, or could not sleep a moment ago.
            SwapOutRequest::Refused if self.can_swap_out(now) && (self.has_busy_cells(1) || self.has_deferred(now)) => {}
            SwapOutRequest::Refused => return false,
        }
        let has_slept = self.sleepers.last_swap_out.is_some_and(|last| now < last + MEMORY_WAIT_MAX);
        let deadline = &mut self.expect_living(id).0.execution.memory_deadline;
        match *deadline {
            // The other cells do not idle, or the search does not end.
            Some(last) if last <= now && now < last + MEMORY_WAIT_MAX && !has_slept => false,
            Some(last) if now < last => true,
            _ => {
                *deadline = Some(now + MEMORY_WAIT_MAX);
                true
            }
        }
    }

    /// Takes a cell off its vCPU until another one has fallen asleep.
    pub(super) fn block_until_swap_out(&mut self, id: CellId) {
        let execution = &mut self.expect_living(id).0.execution;
        execution.transition(RunState::AwaitingMemory);
        let deadline = execution.memory_deadline;
        let is_none_falling_asleep = !self.sleepers.is_any_swapping_out();
        let now = self.frames.machine().now();
        let may_idle = self.has_busy_cells(1) || self.has_deferred(now);
        let can_search = deadline.is_none() || self.sleepers.idle.has_candidates() || !may_idle;
        if is_none_falling_asleep && can_search {
            // The cell that it would wait for has fallen asleep by now, or waits for memory itself; or the search was not finished.
            return self.make_ready(id, ReadyReason::Turn);
        }
        // Nothing but the alarm, which may be over, ends the wait if no cell falls asleep.
        if let Some(deadline) = deadline.filter(|deadline| is_none_falling_asleep || *deadline > now) {
            self.set_alarm(id, deadline);
        }
        self.sleepers.swap_out_waiters.push(id);
    }

    /// Whether swap space takes cells.
    fn can_swap_out(&self, now: Nanos) -> bool {
        self.swap.is_some() && self.sleepers.swap_retry_at <= now
    }

    /// Whether cells that could not sleep are tried again within the time for which memory is waited for.
    fn has_deferred(&self, now: Nanos) -> bool {
        self.sleepers.idle.next_deferred().is_some_and(|at| at <= now + MEMORY_WAIT_MAX)
    }

    /// Whether cells run or are runnable, besides `own` of those that run.
    fn has_busy_cells(&self, own: usize) -> bool {
        !self.scheduler.is_empty() || self.vcpus.iter().flatten().count() > own
    }

    /// Takes the cell from the queue that has idled longest, of those that can sleep; one that has just woken up only if there is no other.
    /// Cells that cannot sleep are deferred. O([`SWAP_OUT_SCAN`] log cells).
    fn take_longest_idle(&mut self, now: Nanos, includes_woken: bool) -> IdleSearch {
        if !self.can_swap_out(now) {
            return IdleSearch::None;
        }
        let State { cells, frames, networks, sleepers, .. } = self;
        for _ in 0..SWAP_OUT_SCAN {
            let Some((id, place)) = sleepers.idle.pop_first(now, includes_woken) else { return IdleSearch::None };
            let Some(live) = cells.get_mut(id).filter(|live| live.idleness.is_at(place)) else { continue };
            live.idleness.place = None;
            if !matches!(live.execution.run_state(), RunState::Idle { .. }) {
                continue;
            }
            let (spared_until, retry_at) = (live.idleness.spared_until(now), live.idleness.retry_at);
            let is_waiting = place.class == IdleClass::Waiting;
            let comes_later = is_waiting && live.idleness.due(sleepers.sleep_after) > place.at;
            if comes_later || (!is_waiting && place.at <= now) {
                // It has run since, or its time in another part of the queue is over.
                sleepers.queue_idle(id, &mut live.idleness);
            } else if retry_at > now {
                sleepers.place_idle(id, &mut live.idleness, IdleClass::Deferred, retry_at);
            } else if sleep_refusal(live, frames, networks).is_some() {
                let again = live.idleness.note_refusal(now);
                sleepers.place_idle(id, &mut live.idleness, IdleClass::Deferred, again);
            } else if let (true, Some(until)) = (is_waiting, spared_until) {
                sleepers.place_idle(id, &mut live.idleness, IdleClass::JustWoken, until);
            } else {
                return IdleSearch::Found(id);
            }
        }
        IdleSearch::Unfinished
    }

    /// Has the cells run again that wait until an idle one has fallen asleep.
    pub(super) fn wake_swap_out_waiters(&mut self) {
        for id in std::mem::take(&mut self.sleepers.swap_out_waiters) {
            if self.living(id).is_some_and(|(live, _)| live.execution.run_state() == RunState::AwaitingMemory) {
                self.make_ready(id, ReadyReason::Turn);
                self.notifications.has_runnable_cell = true;
            }
        }
        // A vCPU releases the memory for cells that wait for admission, or has the next one fall asleep.
        self.notifications.has_runnable_cell |= self.gatekeeper.awaits_memory() || self.exceeds_resident_limit();
    }
}
