// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trims: a kernel whose cells are all idle evicts blocks and gives the host all memory that is unused.
//!
//! A trim ends early when a cell becomes runnable. The [schedule](super::trim_schedule) says when one is due.

use super::Shared;
use super::state::State;
use crate::limits::FILE_PAGE_STEP;
use pando_machine::Nanos;
use std::sync::MutexGuard;

impl State {
    /// When a trim is due: never while a cell runs or is runnable.
    pub(super) fn next_trim(&self) -> Nanos {
        if self.is_idle() { self.trims.due() } else { Nanos::NEVER }
    }

    /// Whether no cell runs or is runnable, and the kernel goes on.
    fn is_idle(&self) -> bool {
        !self.is_stopping && self.scheduler.is_empty() && self.vcpus.iter().all(Option::is_none)
    }
}

impl Shared {
    /// Does a trim that is due. `false`: none is.
    pub(super) fn trim(&self) -> bool {
        let now = self.machine.now();
        let mut state = self.lock();
        if state.next_trim() > now {
            return false;
        }
        state.trims.begin(now);
        drop(state);
        // It stops halfway when a cell becomes runnable. The next idle time completes it.
        let _ = self.trim_in_steps();
        // The other idle vCPUs free their buffers.
        self.work.notify_all();
        true
    }

    /// Evicts all blocks, and gives all unused memory back. `None`: a cell became runnable.
    fn trim_in_steps(&self) -> Option<()> {
        while self.lock_idle()?.evict(None) {}
        drop(self.make_room(self.lock_idle()?));
        while !self.lock_idle()?.frames.decommit_step() {}
        while self.give_back(self.lock_idle()?, 0) {}
        while self.lock_idle()?.frames.map_file_pages(FILE_PAGE_STEP) {}
        let mut from = 0;
        while self.lock_idle()?.frames.trim_next(&mut from) {}
        Some(())
    }

    /// The kernel lock. `None`: the kernel is not idle.
    fn lock_idle(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.lock();
        state.is_idle().then_some(state)
    }
}
