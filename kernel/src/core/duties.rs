// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a vCPU does between cells: alarms, admissions, and memory that is to become free again.

use super::Shared;
use super::state::State;
use crate::cell::State as CellState;
use crate::cell::end::End;
use crate::limits::{FLUSH_INTERVAL, GIVE_BACK_PIECE, RELEASE_PIECE, TABLES_HIGH, WARM_STRETCHES};
use crate::memory::Shortage;
use crate::sched::Reason;
use pando_machine::Nanos;
use std::sync::MutexGuard;

impl Shared {
    /// Does what is due, in bounded pieces. Lets go of the lock while the machine flushes.
    pub(super) fn duties<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let now = self.machine.now();
        state.ring_alarms(now);
        state.networks.advance(now);
        state.wake_receivers();
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
        state.flushes.failed = outcome.is_err();
        for id in std::mem::take(&mut state.flushes.awaited_by) {
            if !state.living(id).is_some_and(|(occupant, _)| occupant.cell.state == CellState::AwaitingFlush) {
                continue;
            }
            match &outcome {
                Ok(()) => {
                    state.make_ready(id, Reason::Turn);
                    self.announce(&state);
                }
                // What it waits for will not come.
                Err(error) => state.end(id, End::Host(error.to_string())),
            }
        }
        state
    }

    /// Frees all that can be freed without ending anybody. Milliseconds, most of them without the lock.
    pub(super) fn make_room<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.flush(self.reap_all(state))
    }

    /// Releases all that is to be released, with pauses for others.
    fn reap_all<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while !state.frames.reap(RELEASE_PIECE) {
            drop(state);
            state = self.lock();
        }
        state
    }

    /// Frees what the operator is short of, as far as nobody has to end for it; the machine is flushed only once. `None`: nothing is left to free.
    pub(super) fn relieve<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        shortage: Shortage,
        flushed: &mut bool,
    ) -> Option<MutexGuard<'a, State>> {
        if shortage == Shortage::Machine && state.sweep(None) {
            return Some(self.reap_all(state));
        }
        let any = state.frames.has_garbage() || state.frames.quarantined() > 0;
        (any && !std::mem::replace(flushed, true)).then(|| self.make_room(state))
    }

    /// Gives some of the memory that nobody needs back to the host, without the lock; `true` if there was any.
    pub(super) fn give_back(&self, mut state: MutexGuard<'_, State>) -> bool {
        let spare: Vec<_> = std::iter::from_fn(|| state.frames.begin_giving_back(WARM_STRETCHES)).take(GIVE_BACK_PIECE).collect();
        drop(state);
        for stretch in &spare {
            self.machine.arena().give_back(*stretch);
        }
        let found = !spare.is_empty();
        if found {
            let mut state = self.lock();
            spare.into_iter().for_each(|stretch| state.frames.given_back(stretch));
        }
        found
    }

    /// Passes on what happened under the lock: ends to their waiters, interrupts to vCPUs.
    pub(super) fn tell(&self, state: &mut State) {
        if std::mem::take(&mut state.news) {
            self.changed.notify_all();
        }
        for vcpu in std::mem::take(&mut state.condemned) {
            self.interrupt(vcpu);
        }
        // A vCPU that is free takes one of them; one that is not takes them when its cell waits, or its quantum ends.
        if std::mem::take(&mut state.woken) && state.idle_workers > 0 {
            self.work.notify_one();
        }
    }
}

impl State {
    /// The next cell that the gatekeeper lets in.
    fn admit(&mut self) -> Option<crate::cell::CellId> {
        loop {
            let id = self.gatekeeper.admit(self.frames.available())?;
            if self.living(id).is_some_and(|(occupant, _)| occupant.cell.state == CellState::Waiting) {
                return Some(id);
            }
        }
    }

    /// Whether somebody waits for a flush: a cell that runs out of memory, or one that is not let in for want of it.
    fn flush_is_awaited(&self) -> bool {
        let gate = self.gatekeeper.is_waited_for() && (self.frames.quarantined() > 0 || self.frames.has_garbage());
        !self.flushes.under_way && (gate || !self.flushes.awaited_by.is_empty())
    }

    fn flush_is_due(&self, now: Nanos) -> bool {
        let most = self.frames.quarantined().max(self.frames.made_since_flush());
        let many = !self.flushes.under_way && most >= TABLES_HIGH;
        let rested = now >= self.flushes.last + FLUSH_INTERVAL;
        rested && self.flush_is_awaited() || many && (rested || !self.flushes.failed)
    }

    /// When there will be something to do: the next alarm, or the next flush that somebody waits for.
    pub(super) fn next_duty(&mut self) -> Nanos {
        let flush = if self.flush_is_awaited() { self.flushes.last + FLUSH_INTERVAL } else { Nanos::NEVER };
        self.next_alarm().min(flush).min(self.networks.next_arrival())
    }
}
