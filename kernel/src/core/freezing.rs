// SPDX-License-Identifier: MIT OR Apache-2.0
//! Freezing a running cell into a template at the operator's request: its libOS is asked, or the cell is frozen by force.

use super::exits::{LeaveReason, NextStep};
use super::state::State;
use super::{Kernel, OperatorError};
use crate::cell::{CellId, State as CellState};
use pando_abi::{Event, EventSet};
use pando_machine::Nanos;
use std::time::{Duration, Instant};

impl Kernel {
    /// Asks a cell to become a template: its libOS freezes it as soon as none of its operations is half done. The cell may ignore
    /// the request: wait with a limit, and use [`Kernel::freeze_as_it_stands`] if it must be frozen. The request stays pending
    /// until it is withdrawn ([`Kernel::withdraw_freeze`]).
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn ask_to_freeze(&self, id: CellId) -> Result<(), OperatorError> {
        self.call(id, Event::Freeze, |cell| cell.is_asked = true)
    }

    /// Withdraws a request to freeze, also by force: the cell continues. Returns whether that was in time; `false`: the cell is
    /// frozen.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn withdraw_freeze(&self, id: CellId) -> Result<bool, OperatorError> {
        let mut state = self.shared.lock();
        let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        let cell = &mut live.cell;
        // If the event was already shown, it has no effect in the libOS.
        (cell.is_asked, cell.halts, cell.events) = (false, false, cell.events.without(EventSet::NONE.with(Event::Freeze)));
        Ok(cell.state != CellState::Frozen)
    }

    /// Freezes a started cell by force, without asking it. Wait for the freeze with [`Kernel::wait_frozen`]; it takes no longer
    /// than the kernel's current operation for the cell. Unfinished work of the cell continues in each clone: their random numbers
    /// may be equal, and the template and its clones are marked for ever ([`Kernel::is_forced`]). A cell that has frozen by itself
    /// is not marked.
    ///
    /// # Errors
    /// There is no such living cell, or it was not started.
    pub fn freeze_as_it_stands(&self, id: CellId) -> Result<(), OperatorError> {
        let mut state = self.shared.lock();
        let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        match live.cell.state {
            CellState::New => return Err(OperatorError::Busy(CellState::New)),
            CellState::Frozen => {}
            CellState::Waiting | CellState::Idle { .. } => state.stop(id),
            CellState::Ready | CellState::Spent { .. } | CellState::AwaitingFlush => live.cell.halts = true,
            CellState::Running { vcpu } => {
                live.cell.halts = true;
                state.vcpus_to_interrupt.push(vcpu);
            }
        }
        self.shared.notify_operator(&mut state);
        Ok(())
    }

    /// Whether a cell, or one that it is a clone of, was frozen by force, or while programs ran that did not notice. Its clones'
    /// random numbers may then be equal.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn is_forced(&self, id: CellId) -> Result<bool, OperatorError> {
        let mut state = self.shared.lock();
        let (live, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        Ok(live.cell.forced)
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
                Some((live, _)) if live.cell.state == CellState::Frozen => {
                    live.cell.is_template = true;
                    return Ok(true);
                }
                Some(_) => {}
                None => {
                    let end = state.outcome(id).map(|outcome| outcome.end.clone());
                    return Err(end.map_or(OperatorError::NoSuchCell, OperatorError::Ended));
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
    /// Freezes a cell that is on no vCPU, at its own request.
    pub(super) fn freeze(&mut self, id: CellId) {
        self.become_template(id, None);
    }

    /// Freezes a cell that is on no vCPU, by force.
    pub(super) fn stop(&mut self, id: CellId) {
        let now = self.frames.machine().now();
        self.become_template(id, Some(now));
    }

    fn become_template(&mut self, id: CellId, stopped: Option<Nanos>) {
        let Some((live, frames)) = self.living(id) else { return };
        let cell = &mut live.cell;
        // Requests to this cell do not apply to its clones.
        cell.withdraw(frames, EventSet::REQUESTS);
        cell.forced |= stopped.is_some();
        // If the cell has not run, its clones continue where its source was frozen.
        if cell.counters.exits > 0 {
            cell.stopped = stopped;
        }
        cell.state = CellState::Frozen;
        // It writes no more output.
        live.close();
        self.news = true;
    }

    /// Completes the forced freeze of a cell whose unfinished operation is done: brings it to a state that can be cloned.
    pub(super) fn halt(&mut self, id: CellId, now: Nanos) -> NextStep {
        let (live, frames) = self.running(id);
        let cell = &mut live.cell;
        if let Some(write) = cell.unconfirmed.take() {
            // The write is not retried here, and a clone must not see the old page.
            if let Err(shortage) = cell.memory.renew(frames, write.address) {
                cell.unconfirmed = Some(write);
                return self.short(id, shortage);
            }
            cell.confirm(frames, write);
        }
        match self.serve_rings(id, now) {
            Ok(()) => NextStep::Leave(LeaveReason::Stopped),
            Err(error) => self.delayed(id, error),
        }
    }
}
