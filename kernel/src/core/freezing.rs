// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a running cell becomes a template when the operator wants it: its libOS is asked to freeze, or the cell is stopped as it stands.

use super::exits::{Leave, Next};
use super::state::State;
use super::{Kernel, OperatorError};
use crate::cell::{CellId, State as CellState};
use pando_abi::{Event, EventSet};
use pando_machine::Nanos;
use std::time::{Duration, Instant};

impl Kernel {
    /// Asks a cell to become a template, at once: its libOS freezes it as soon as nothing in it is half done. Whether it does is the cell's affair: wait with a limit, and stop it with
    /// [`Kernel::freeze_as_it_stands`] if it must be. A wish that was not granted in time stays one until it is withdrawn ([`Kernel::withdraw_freeze`]).
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn ask_to_freeze(&self, id: CellId) -> Result<(), OperatorError> {
        self.call(id, Event::Freeze, |cell| cell.is_asked = true)
    }

    /// Takes the wish for a template back, whether the cell was asked or was to be stopped as it stands: it goes on. Says whether that was in time; `false`: the cell is frozen.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn withdraw_freeze(&self, id: CellId) -> Result<bool, OperatorError> {
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        let cell = &mut occupant.cell;
        // Where the event was shown already, the libOS comes in vain.
        (cell.is_asked, cell.halts, cell.events) = (false, false, cell.events.without(EventSet::NONE.with(Event::Freeze)));
        Ok(cell.state != CellState::Frozen)
    }

    /// Freezes a started cell as it stands, without asking it; wait for that with [`Kernel::wait_frozen`], which takes no longer than what the kernel does for the cell already. What it had in hand is in each clone's hand: nothing promises
    /// that their random numbers are distinct, and the template says so for ever ([`Kernel::is_forced`]). One that has frozen by itself stays what it is.
    ///
    /// # Errors
    /// There is no such living cell, or it was not started.
    pub fn freeze_as_it_stands(&self, id: CellId) -> Result<(), OperatorError> {
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        match occupant.cell.state {
            CellState::New => return Err(OperatorError::Busy(CellState::New)),
            CellState::Frozen => {}
            CellState::Waiting | CellState::Idle { .. } => state.stop(id),
            CellState::Ready | CellState::Spent { .. } | CellState::AwaitingFlush => occupant.cell.halts = true,
            CellState::Running { vcpu } => {
                occupant.cell.halts = true;
                state.condemned.push(vcpu);
            }
        }
        self.shared.tell(&mut state);
        Ok(())
    }

    /// Whether a cell, or one that it is a clone of, was frozen as it stood, or while programs ran that did not notice: nothing promises that its clones' random numbers are distinct.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn is_forced(&self, id: CellId) -> Result<bool, OperatorError> {
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        Ok(occupant.cell.forced)
    }

    /// Waits until a cell has become a template, and keeps it as one.
    ///
    /// # Errors
    /// It ended instead.
    pub fn wait_frozen(&self, id: CellId) -> Result<(), OperatorError> {
        self.wait_frozen_until(id, None).map(|_| ())
    }

    /// The same, but no longer than `limit`. Says whether it has become one.
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
                Some((occupant, _)) if occupant.cell.state == CellState::Frozen => {
                    occupant.cell.is_template = true;
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
    /// Makes a cell that is on no vCPU a template, as it wants.
    pub(super) fn freeze(&mut self, id: CellId) {
        self.become_template(id, None);
    }

    /// The same as it stands.
    pub(super) fn stop(&mut self, id: CellId) {
        let now = self.frames.machine().now();
        self.become_template(id, Some(now));
    }

    fn become_template(&mut self, id: CellId, stopped: Option<Nanos>) {
        let Some((occupant, frames)) = self.living(id) else { return };
        let cell = &mut occupant.cell;
        // That was said to none of its clones.
        cell.withdraw(frames, EventSet::WISHES);
        cell.forced |= stopped.is_some();
        // Where nothing of it has run, its clones go on where its source stood.
        if cell.counters.exits > 0 {
            cell.stopped = stopped;
        }
        cell.state = CellState::Frozen;
        // It will not say anything any more.
        occupant.close();
        self.news = true;
    }

    /// Brings a cell that is to freeze as it stands, and whose unfinished call is done, to where it can be cloned.
    pub(super) fn halt(&mut self, id: CellId, now: Nanos) -> Next {
        let (occupant, frames) = self.running(id);
        let cell = &mut occupant.cell;
        if let Some(write) = cell.unconfirmed.take() {
            // It is not retried here, and a clone must not see the old page.
            if let Err(shortage) = cell.memory.renew(frames, write.address) {
                cell.unconfirmed = Some(write);
                return self.short(id, shortage);
            }
            cell.confirm(frames, write);
        }
        match self.serve_rings(id, now) {
            Ok(()) => Next::Leave(Leave::Stopped),
            Err(error) => self.delayed(id, error),
        }
    }
}
