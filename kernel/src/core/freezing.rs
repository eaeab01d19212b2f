// SPDX-License-Identifier: MIT OR Apache-2.0
//! Freezing a running cell into a template at the operator's request: its libOS is asked, or the cell is frozen by force.

use super::cell_table::LiveCell;
use super::exits::{LeaveReason, NextStep};
use super::holdings::Parent;
use super::invoke::Subject;
use super::ipc::CellRights;
use super::state::State;
use super::{Kernel, OperatorError};
use crate::cell::CellId;
use crate::cell::freeze::FreezeMode;
use crate::cell::operation::Operation;
use crate::cell::run_state::RunState;
use pando_abi::EventSet;
use pando_machine::Nanos;
use std::time::{Duration, Instant};

impl Kernel {
    /// Asks a cell to become a template: its libOS freezes it as soon as none of its operations is half done. The cell may ignore
    /// the request: wait with a limit, and use [`Kernel::force_freeze`] if it must be frozen. The request stays pending
    /// until it is withdrawn ([`Kernel::withdraw_freeze`]).
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn request_freeze(&self, id: CellId) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::Freeze(FreezeMode::Cooperative)).map(drop)
    }

    /// Withdraws a request to freeze, also by force: the cell continues. Returns whether that was in time; `false`: the cell is
    /// frozen.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn withdraw_freeze(&self, id: CellId) -> Result<bool, OperatorError> {
        self.invoke(Subject::Cell(id), Operation::WithdrawFreeze).map(|is_in_time| is_in_time != 0)
    }

    /// Freezes a started cell by force, without asking it. Wait for the freeze with [`Kernel::wait_frozen`]; it takes no longer
    /// than the kernel's current operation for the cell. Unfinished work of the cell continues in each clone: their random numbers
    /// may be equal, and the template and its clones are marked for ever ([`Kernel::is_forced`]). A cell that has frozen by itself
    /// is not marked.
    ///
    /// # Errors
    /// There is no such living cell, or it was not started.
    pub fn force_freeze(&self, id: CellId) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(id), Operation::Freeze(FreezeMode::Forced)).map(drop)
    }

    /// Whether a cell, or one that it is a clone of, was frozen by force, or while programs ran that did not notice. Its clones'
    /// random numbers may then be equal.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn is_forced(&self, id: CellId) -> Result<bool, OperatorError> {
        self.query("inspect", id, |live, _| live.cell.freeze_history.is_unnoticed())
    }

    /// Waits until a cell has frozen, and marks it as a template.
    ///
    /// # Errors
    /// It ended instead.
    pub fn wait_frozen(&self, id: CellId) -> Result<(), OperatorError> {
        self.wait_frozen_until(id, None).map(|_| ())
    }

    /// Waits like [`Kernel::wait_frozen`], but no longer than `limit`. Returns whether the cell has frozen.
    ///
    /// # Errors
    /// It ended instead.
    pub fn wait_frozen_for(&self, id: CellId, limit: Duration) -> Result<bool, OperatorError> {
        self.wait_frozen_until(id, Instant::now().checked_add(limit))
    }

    fn wait_frozen_until(&self, id: CellId, limit: Option<Instant>) -> Result<bool, OperatorError> {
        let mut state = self.shared.lock();
        loop {
            match state.living(id) {
                Some((live, _)) if live.execution.run_state() == RunState::Frozen => {
                    live.cell.is_template = true;
                    return Ok(true);
                }
                Some(_) => {}
                None => {
                    let end = state.cells.outcome(id).map(|outcome| outcome.end.clone());
                    return Err(end.map_or(OperatorError::NoSuchCell(id), |end| OperatorError::Ended { cell: id, end }));
                }
            }
            let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
            state = match left {
                None => self.shared.changed.wait(state).expect("a kernel whose lock was poisoned must not go on"),
                Some(Duration::ZERO) => return Ok(false),
                Some(left) => self.shared.changed.wait_timeout(state, left).expect("a kernel whose lock was poisoned must not go on").0,
            };
        }
    }
}

impl State {
    /// Freezes a started cell by force: at once if it can be cloned as it is, otherwise when a vCPU has finished its work.
    pub(super) fn request_forced_freeze(&mut self, id: CellId) {
        let Some((live, _)) = self.living(id) else { return };
        match live.execution.run_state() {
            RunState::New | RunState::Halted | RunState::Frozen => {}
            RunState::AwaitingAdmission | RunState::Idle { .. } => self.force_freeze(id),
            RunState::Ready | RunState::Throttled { .. } | RunState::AwaitingMemory => {
                live.cell.stop_request.freeze(FreezeMode::Forced);
                self.recall_donation(id);
            }
            RunState::Asleep { .. } => {
                live.cell.stop_request.freeze(FreezeMode::Forced);
                self.request_wake(id);
            }
            RunState::Running { vcpu } => {
                live.cell.stop_request.freeze(FreezeMode::Forced);
                self.notifications.interrupts.push(vcpu);
            }
        }
    }

    /// Freezes a cell that is on no vCPU, at its own request; `is_noticed`: its programs will notice that they are cloned.
    pub(super) fn freeze(&mut self, id: CellId, is_noticed: bool) {
        if let Some((live, _)) = self.living(id) {
            live.cell.freeze_history = live.cell.freeze_history.after_own_freeze(is_noticed);
            self.finish_freeze(id);
        }
    }

    /// Freezes a cell that is on no vCPU, by force.
    pub(super) fn force_freeze(&mut self, id: CellId) {
        let now = self.frames.machine().now();
        if let Some((live, _)) = self.living(id) {
            let has_run = live.cell.counters.exits > 0;
            live.cell.freeze_history = live.cell.freeze_history.after_forced_freeze(now, has_run);
            self.finish_freeze(id);
        }
    }

    fn finish_freeze(&mut self, id: CellId) {
        self.end_start_phase(id);
        let Some((live, frames)) = self.living(id) else { return };
        // Requests to this cell do not apply to its clones.
        live.cell.withdraw(frames, EventSet::REQUESTS);
        live.cell.stop_request.withdraw_freeze();
        live.execution.transition(RunState::Frozen);
        // It never runs again, so it neither answers nor gets answers.
        let rights = CellRights::take(live);
        // It writes no more output.
        live.close();
        let parent = live.parent;
        self.released.push_all(rights);
        self.notifications.has_stopped_cell = true;
        if let Some(Parent { cell, is_holding: true, .. }) = parent {
            self.raise_child_event(cell);
        }
    }

    /// Completes the forced freeze of a cell whose work is done: brings it to a state that can be cloned.
    pub(super) fn complete_forced_freeze(&mut self, id: CellId, now: Nanos) -> NextStep {
        match self.quiesce(id, now) {
            Ok(()) => NextStep::Leave(LeaveReason::ForciblyFrozen),
            Err(next) => next,
        }
    }

    /// Completes the state of a cell that has finished its work: no vCPU reads a page that it has replaced, and all its output is read.
    ///
    /// # Errors
    /// A step that comes first.
    pub(super) fn quiesce(&mut self, id: CellId, now: Nanos) -> Result<(), NextStep> {
        let (LiveCell { cell, execution, .. }, frames) = self.expect_living(id);
        if let Some(write) = execution.unconfirmed {
            // The write is not retried here, and a clone must not see the old page.
            if let Err(shortage) = cell.memory.renew_path_beyond_quota(frames, write.address) {
                return Err(self.after_shortage(id, shortage));
            }
            execution.unconfirmed = None;
            write.confirm(frames);
        }
        self.serve_rings(id, now).map_err(|error| self.after_failed_copy(id, error))
    }
}
