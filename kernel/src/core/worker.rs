// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workers: the only code that switches vCPUs from cell to cell.

use super::Shared;
use super::exits::{LeaveReason, NextStep};
use super::state::{RunningCell, State};
use super::time_slice::{DirectSwitch, TimeSlice};
use crate::cell::CellId;
use crate::cell::end::End;
use crate::cell::execution::SavedVector;
use crate::cell::run_state::RunState;
use crate::limits::{LONE_QUANTUM, QUANTUM, RESERVED_HUGE_FRAMES};
use crate::sched::ReadyReason;
use pando_abi::watch::HaltReason;
use pando_machine::{HostError, Nanos, Vcpu};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// A vCPU with the thread that drives it.
pub struct Worker {
    index: usize,
    vcpu: Box<dyn Vcpu>,
    /// The cell whose vector state is on the vCPU.
    vector_owner: Option<CellId>,
    /// Scratch buffer for blocks of disks.
    buffer: Vec<u8>,
    /// Number of trims before the buffer was last freed.
    trims: u64,
    /// The cell that its last cell has sent a message to.
    switch: Option<DirectSwitch>,
    shared: Arc<Shared>,
}

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// A cell ran.
    Ran,
    /// No cell was runnable; there will be work at this time, or when an event comes.
    Nothing {
        /// The time.
        until: Nanos,
    },
    /// The kernel stops.
    Stopped,
}

impl Worker {
    pub(super) fn new(index: usize, shared: Arc<Shared>) -> Result<Worker, HostError> {
        let vcpu = shared.machine.take_vcpu(index)?;
        let _ = shared.interrupters[index].set(vcpu.interrupter());
        Ok(Worker { index, vcpu, vector_owner: None, buffer: Vec::new(), trims: 0, switch: None, shared })
    }

    /// Takes turns until the kernel stops; sleeps when there is nothing to do.
    pub(super) fn run(&mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            match self.turn() {
                TurnOutcome::Ran => {}
                TurnOutcome::Stopped => return,
                TurnOutcome::Nothing { until } => {
                    if shared.give_back(shared.lock(), RESERVED_HUGE_FRAMES) || shared.trim() {
                        continue;
                    }
                    let mut state = shared.lock();
                    if std::mem::replace(&mut self.trims, state.trims.count()) != state.trims.count() {
                        self.buffer = Vec::new();
                    }
                    if state.is_stopping || !state.scheduler.is_empty() || state.next_housekeeping() < until || state.frames.has_garbage() {
                        continue;
                    }
                    state.idle_workers += 1;
                    let until = until.min(state.next_trim());
                    let wait = until.since(shared.machine.now()).min(Duration::from_secs(3600));
                    let (mut state, _) = shared.work.wait_timeout(state, wait).expect("a kernel whose lock was poisoned must not go on");
                    state.idle_workers -= 1;
                }
            }
        }
    }

    /// Does due housekeeping, then runs the next cell until it leaves the vCPU.
    pub fn turn(&mut self) -> TurnOutcome {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.housekeeping(shared.serve_sleepers(shared.lock()));
        if state.sleepers.wake_count() > 0 {
            // An alarm or a frame has just woken a cell.
            state = shared.serve_sleepers(state);
        }
        if state.is_stopping {
            // Cells that still had a vCPU when the kernel stopped.
            state.end_all();
            shared.notify(&mut state);
            return TurnOutcome::Stopped;
        }
        let started = shared.machine.now();
        let switched = self.switch.take().and_then(|switch| state.pick_after_message(switch, started));
        let Some(slice) = switched.or_else(|| state.pick(started, self.index)) else {
            // Without threads for it, the next turn puts the cells to sleep that were chosen because memory is short.
            let has_work = !state.sleepers.has_threads && state.sleepers.has_swap_outs();
            return TurnOutcome::Nothing { until: if has_work { Nanos(0) } else { state.next_housekeeping() } };
        };
        let is_alone = state.scheduler.is_empty();
        if !is_alone && state.idle_workers > 0 {
            shared.work.notify_one();
        }
        state.vcpus[self.index] = Some(RunningCell { is_alone, must_yield: false });
        let mut state = self.run_cell(&shared, state, &slice, is_alone);
        let now = shared.machine.now();
        state.resume_donors(&slice, now.since(started));
        state.charge_start(slice.cell, now.since(started));
        state.trims.note_run(now);
        state.vcpus[self.index] = None;
        shared.notify(&mut state);
        TurnOutcome::Ran
    }

    fn run_cell<'a>(
        &mut self,
        shared: &'a Shared,
        mut state: MutexGuard<'a, State>,
        slice: &TimeSlice,
        is_alone: bool,
    ) -> MutexGuard<'a, State> {
        let id = slice.cell;
        let started = shared.machine.now();
        add_steal_time(&mut state, id, started);
        let quantum = take_quantum(&mut state, id, is_alone).min(slice.max);
        let mut quantum_end = started + quantum;
        if let Err(error) = self.load(&mut state, id) {
            state.end(id, End::Host(error.to_string()));
            return state;
        }
        loop {
            let now = shared.machine.now();
            let prepared = state.prepare(id, now);
            state.frames.forget_unreadable();
            if state.notifications.are_due() {
                shared.notify(&mut state);
            }
            if is_alone && !state.scheduler.is_empty() {
                // Another cell is runnable now.
                quantum_end = quantum_end.min(started + QUANTUM.min(slice.max));
            }
            let next = match prepared {
                Err(next) => next,
                Ok(entry) => {
                    let deadline = quantum_end.min(entry.timer).min(state.next_housekeeping());
                    let mut context = state.expect_living(id).0.execution.context;
                    drop(state);
                    let exit = self.vcpu.run(entry.root, &mut context, deadline);
                    let left = shared.machine.now();
                    state = shared.lock();
                    let (live, _) = state.expect_living(id);
                    live.execution.context = context;
                    live.cell.counters.cpu += left.since(now);
                    state.handle(id, exit, left, quantum_end)
                }
            };
            let must_yield = state.scheduler.is_urgent() || state.vcpus[self.index].is_some_and(|running| running.must_yield);
            let next = if next == NextStep::Resume && must_yield { NextStep::Leave(LeaveReason::Preempted) } else { next };
            match next {
                NextStep::Resume => {}
                NextStep::Read(wanted) => state = shared.read_blocks(state, wanted, Some(id), &mut self.buffer),
                NextStep::Again => {
                    drop(state);
                    state = shared.housekeeping(shared.lock());
                    if shared.machine.now() >= quantum_end {
                        self.leave(&mut state, slice, (started, quantum), LeaveReason::Preempted);
                        return state;
                    }
                }
                NextStep::Leave(leave) => {
                    let quantum = quantum.min(QUANTUM);
                    if let LeaveReason::Blocked { next: Some(cell), .. } = leave {
                        self.switch = Some(DirectSwitch { cell, until: slice.chain_end.unwrap_or(started + quantum) });
                    }
                    if matches!(leave, LeaveReason::Preempted | LeaveReason::Donating(_)) {
                        let ran = shared.machine.now().since(started);
                        state.expect_living(id).0.execution.quantum_left = quantum.saturating_sub(ran);
                    }
                    self.leave(&mut state, slice, (started, quantum), leave);
                    return state;
                }
            }
        }
    }

    /// Loads a cell onto the vCPU: its vector state, and a new stamp if it last ran on another vCPU.
    fn load(&mut self, state: &mut State, id: CellId) -> Result<(), HostError> {
        let (live, frames) = state.expect_living(id);
        let execution = &mut live.execution;
        execution.transition(RunState::Running { vcpu: self.index });
        if execution.last_vcpu != Some(self.index) {
            live.cell.memory.restamp(frames);
            execution.last_vcpu = Some(self.index);
        }
        if !self.shared.vector_owners {
            return Ok(());
        }
        let own = self.vector_owner.replace(id) == Some(id);
        match std::mem::replace(&mut execution.vector, SavedVector::Dead) {
            // The registers hold the cell's own state from its last run here: nothing is lost, and nothing leaks.
            SavedVector::Dead if own => Ok(()),
            SavedVector::Dead => self.vcpu.load_vector(None),
            SavedVector::Saved(saved) => self.vcpu.load_vector(Some(&saved)),
        }
    }

    /// Takes a cell off the vCPU that got it at `started` for a quantum.
    fn leave(&mut self, state: &mut State, slice: &TimeSlice, (started, quantum): (Nanos, Duration), leave: LeaveReason) {
        let id = slice.cell;
        if leave.must_save_vector() && self.shared.vector_owners {
            match self.vcpu.save_vector() {
                Ok(saved) => state.expect_living(id).0.execution.vector = SavedVector::Saved(saved),
                Err(error) => return state.end(id, End::Host(error.to_string())),
            }
        }
        // Charged before the scheduler chooses its next place.
        let ran = self.shared.machine.now().since(started);
        state.charge(slice, ran);
        if leave == LeaveReason::Relinquished {
            // It gives up the rest of its quantum, so it pays for that. The quantum may have been short.
            state.charge_given_up(slice, quantum.saturating_sub(ran));
        }
        if matches!(leave, LeaveReason::Preempted | LeaveReason::Relinquished) {
            state.expect_living(id).0.execution.preempted_at = Some(self.shared.machine.now());
        }
        match leave {
            LeaveReason::Preempted => {
                state.expect_living(id).0.cell.counters.preemptions += 1;
                state.make_ready_after_quantum(id);
            }
            LeaveReason::Donating(donation) => {
                state.expect_living(id).0.donation = Some(Box::new(donation));
                state.make_ready_after_quantum(id);
            }
            LeaveReason::Relinquished => state.make_ready(id, ReadyReason::Turn),
            LeaveReason::Idle { until } => state.make_idle(id, until),
            LeaveReason::Blocked { until, .. } => state.make_blocked(id, until),
            LeaveReason::AwaitingFlush => {
                state.expect_living(id).0.execution.transition(RunState::AwaitingMemory);
                state.flushes.awaited_by.push(id);
            }
            LeaveReason::AwaitingSwapOut => state.block_until_swap_out(id),
            LeaveReason::Frozen { is_noticed } => state.freeze(id, is_noticed),
            LeaveReason::ForciblyFrozen => state.force_freeze(id),
            LeaveReason::Halted(reason) => state.halt(id, reason),
            LeaveReason::Ended(end) => state.end(id, end),
        }
        // Requests that came while the cell was leaving.
        let Some((live, _)) = state.living(id) else { return };
        if let Some(end) = live.cell.stop_request.take_end() {
            state.end(id, end);
        } else if live.cell.stop_request.is_forced_freeze() && matches!(live.execution.run_state(), RunState::Idle { .. }) {
            state.force_freeze(id);
        } else if live.cell.watch.must_halt && matches!(live.execution.run_state(), RunState::Idle { .. }) {
            state.halt(id, HaltReason::Requested);
        }
    }
}

/// The quantum of a cell: what it has left of the last one, or a new one.
fn take_quantum(state: &mut State, id: CellId, is_alone: bool) -> Duration {
    match (is_alone, std::mem::take(&mut state.expect_living(id).0.execution.quantum_left)) {
        (true, _) => LONE_QUANTUM,
        (false, Duration::ZERO) => QUANTUM,
        (false, rest) => rest,
    }
}

/// Counts the time for which a cell waited for this vCPU.
fn add_steal_time(state: &mut State, id: CellId, now: Nanos) {
    let (live, frames) = state.expect_living(id);
    if let Some(since) = live.execution.preempted_at.take() {
        // The page is mapped for the cell's whole life. Without it, only the cell's own accounting would differ.
        let _ = live.cell.add_steal_time(frames, now.since(since));
    }
}
