// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a vCPU does between cells: alarms, admissions, and memory that is to become free again.

use super::Shared;
use super::state::State;
use crate::cell::State as CellState;
use crate::limits::{FLUSH_INTERVAL, QUARANTINE_HIGH, RELEASE_PIECE};
use crate::sched::Reason;
use pando_machine::Nanos;
use std::sync::MutexGuard;

impl Shared {
    /// Does what is due, in bounded pieces. Lets go of the lock while the machine flushes.
    pub(super) fn duties<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let now = self.machine.now();
        state.ring_alarms(now);
        state.frames.reap(RELEASE_PIECE);
        while let Some(id) = state.admit() {
            state.make_ready(id, Reason::Turn);
        }
        if state.flush_is_due(now) {
            state = self.flush(state);
        }
        self.tell(&mut state);
        state
    }

    /// Flushes the machine's tables, which makes retired tables free, and wakes the cells that waited for that.
    pub(super) fn flush<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.flushes.under_way {
            return state;
        }
        state.flushes.under_way = true;
        let tables = state.frames.begin_flush();
        drop(state);
        let outcome = self.machine.flush_tables();
        let mut state = self.lock();
        state.frames.flushed(tables, &outcome);
        state.flushes.under_way = false;
        state.flushes.last = self.machine.now();
        for id in std::mem::take(&mut state.flushes.awaited_by) {
            if state.living(id).is_some_and(|(occupant, _)| occupant.cell.state == CellState::AwaitingFlush) {
                state.make_ready(id, Reason::Turn);
                self.announce(&state);
            }
        }
        state
    }

    /// Passes on what happened under the lock: ends to their waiters, interrupts to vCPUs.
    pub(super) fn tell(&self, state: &mut State) {
        if std::mem::take(&mut state.news) {
            self.changed.notify_all();
        }
        for vcpu in std::mem::take(&mut state.condemned) {
            self.interrupt(vcpu);
        }
    }
}

impl State {
    /// The next cell that the gatekeeper lets in.
    fn admit(&mut self) -> Option<crate::cell::CellId> {
        loop {
            let id = self.gatekeeper.admit(self.frames.free())?;
            if self.living(id).is_some_and(|(occupant, _)| occupant.cell.state == CellState::Waiting) {
                return Some(id);
            }
        }
    }

    fn flush_is_due(&self, now: Nanos) -> bool {
        let many = self.frames.quarantined() >= QUARANTINE_HIGH;
        let awaited = !self.flushes.awaited_by.is_empty();
        !self.flushes.under_way && (many || (awaited && now >= self.flushes.last + FLUSH_INTERVAL))
    }

    /// When there will be something to do: the next alarm, or the next flush that somebody waits for.
    pub(super) fn next_duty(&mut self) -> Nanos {
        let nobody_waits = self.flushes.awaited_by.is_empty() || self.flushes.under_way;
        let flush = if nobody_waits { Nanos::NEVER } else { self.flushes.last + FLUSH_INTERVAL };
        self.next_alarm().min(flush)
    }
}
