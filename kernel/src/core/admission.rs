// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission: started cells wait until the gatekeeper admits them. Admitted cells of the operator are then in their start phase.
//!
//! The start phase of a cell ends when it idles for the first time, has ended, frozen or halted, has used the CPU time of its limit, or has
//! used the CPU time of a start phase. Because others may keep it from a vCPU, the phase also ends after some time. So a queue always moves
//! on, whatever cells do. Nested cells, and those that run by donations only, have none: their parents decide when they run.

use super::Kernel;
use super::error::OperatorError;
use super::invoke::Subject;
use super::start_phase::{AdmissionCallback, StartPhase};
use super::state::State;
use crate::cell::CellId;
use crate::cell::operation::Operation;
use crate::cell::run_state::{Requirement, RunState};
use crate::limits::START_PHASE_MAX;
use crate::sched::ReadyReason;
use pando_machine::Nanos;
use std::time::Duration;

impl Kernel {
    /// Starts a cell that was built or cloned: the gatekeeper decides when it is admitted. O(1), and for a clone that is admitted at once
    /// the copies of its first prefetch batch ([`Kernel::train`]).
    ///
    /// # Errors
    /// It was started before, or is a template.
    pub fn start(&self, id: CellId) -> Result<(), OperatorError> {
        self.start_with(id, None)
    }

    /// Starts a cell as [`Kernel::start`] does. The callback is called when the cell is admitted.
    ///
    /// # Errors
    /// It was started before, or is a template.
    pub fn start_with(&self, id: CellId, on_admission: Option<AdmissionCallback>) -> Result<(), OperatorError> {
        // The copies of a queued cell would take memory while it waits.
        if self.shared.lock().gatekeeper.has_room() {
            self.copy_first_batch(id)?;
        }
        if on_admission.is_some() {
            let mut phase = Some(Box::new(StartPhase::new(on_admission)));
            self.attempt("start", |state| {
                state.require(id, Requirement::NotStarted)?.0.start = phase.take();
                Ok(())
            })?;
        }
        self.invoke(Subject::Cell(id), Operation::Start)?;
        // Admits it, and frees memory if the gatekeeper waits for that.
        let state = self.shared.housekeeping(self.shared.lock());
        self.shared.kick_vcpu(&state);
        Ok(())
    }
}

impl State {
    /// Queues a started cell for admission. A frame for it that arrived earlier counts as a request, like one that arrives while it waits.
    pub(super) fn queue_for_admission(&mut self, id: CellId) {
        let State { cells, networks, gatekeeper, .. } = self;
        let Some(live) = cells.get_mut(id) else { return };
        if live.parent.is_some() {
            gatekeeper.enqueue_nested(id);
        } else {
            gatekeeper.enqueue(id);
        }
        if live.card.as_ref().is_some_and(|card| networks.peek(card.port).is_some()) {
            gatekeeper.expedite(id);
        }
    }

    /// Makes all cells runnable that the gatekeeper admits; `true` if there was any.
    pub(super) fn admit_all(&mut self) -> bool {
        let now = self.frames.machine().now();
        while let Some((_, id)) = self.start_deadlines.pop_front_if(|(deadline, _)| *deadline <= now) {
            self.end_start_phase(id);
        }
        let mut is_any = false;
        while let Some(id) = self.gatekeeper.admit(self.frames.available()) {
            is_any |= self.admit(id, now);
        }
        is_any
    }

    /// Makes a cell runnable that the gatekeeper has chosen; `false`: it has ended or frozen meanwhile.
    fn admit(&mut self, id: CellId, now: Nanos) -> bool {
        let has_weight = self.scheduler.weight(id).get() > 0;
        let State { cells, networks, gatekeeper, start_deadlines, .. } = self;
        let Some(live) = cells.get_mut(id).filter(|live| live.execution.run_state() == RunState::AwaitingAdmission) else {
            gatekeeper.end_start_phase(id);
            return false;
        };
        if let Some(card) = &live.card {
            networks.set_asleep(card.port, false);
        }
        let callback = live.start.take().and_then(|start| start.on_admission);
        if live.parent.is_none() && has_weight {
            live.start = Some(Box::new(StartPhase::new(None)));
            start_deadlines.push_back((now + START_PHASE_MAX, id));
        } else {
            gatekeeper.end_start_phase(id);
        }
        self.make_ready(id, ReadyReason::Turn);
        if let Some(callback) = callback {
            callback();
        }
        true
    }

    /// Admits a queued cell that a request needs now, if there is memory for it. `true`: a vCPU has work, a cell that is runnable or memory
    /// to free.
    pub(super) fn expedite(&mut self, id: CellId) -> bool {
        self.gatekeeper.expedite(id);
        // Otherwise a vCPU frees memory for it.
        self.admit_all() || self.gatekeeper.awaits_memory()
    }

    /// Ends the start of a cell, or its wait for admission; others may be admitted in its place.
    pub(super) fn end_start_phase(&mut self, id: CellId) {
        let is_queued = self.is_queued(id);
        let Some((live, _)) = self.living(id) else { return };
        if live.start.take().is_some() || is_queued {
            self.gatekeeper.end_start_phase(id);
            // A vCPU looks for the next one to admit.
            self.notifications.has_runnable_cell = true;
        }
    }

    /// Whether a cell waits for admission.
    pub(super) fn is_queued(&mut self, id: CellId) -> bool {
        self.living(id).is_some_and(|(live, _)| live.execution.run_state() == RunState::AwaitingAdmission)
    }

    /// Charges a cell for its time on a vCPU in its start phase. The phase ends if that time is used up, or if the cell waits.
    pub(super) fn charge_start(&mut self, id: CellId, time: Duration) {
        let Some((live, _)) = self.living(id) else { return };
        let Some(start) = &mut live.start else { return };
        start.quantum_left = start.quantum_left.saturating_sub(time);
        let is_over = start.quantum_left.is_zero();
        if is_over || !matches!(live.execution.run_state(), RunState::Ready | RunState::AwaitingMemory) {
            self.end_start_phase(id);
        }
    }
}
