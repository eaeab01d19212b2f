// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that need answers of file servers: they wait, and are made again.

use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::{clock, events};

use super::System;
use crate::errno::Errno;
use crate::wait::Channel;

impl System {
    /// Makes a call that may need file servers: gives their mounts its changes, and lets its thread wait for what it needs.
    ///
    /// # Errors
    /// Those of the call, but for `QUEUED`; `WAITS`.
    pub fn with_mounts(&mut self, perform: impl FnOnce(&mut System) -> Result<u64, Errno>) -> Result<u64, Errno> {
        self.files.mounts.began = *self.thread.call.began.get_or_insert_with(clock::now);
        // The call may have waited for a server, and now waits for something else.
        self.thread.call.is_uninterruptible = false;
        let outcome = perform(self);
        self.files.write_back();
        if outcome != Err(Errno::QUEUED) {
            self.files.evict_live();
            self.files.mounts.send();
            if outcome != Err(Errno::WAITS) {
                self.files.mounts.finish_call(self.thread.number);
            }
            return outcome;
        }
        let awaited = self.files.request_misses(clock::now());
        self.files.mounts.send();
        let awaited = awaited.ok_or(Errno::EIO)?;
        // A call that is interrupted would be made twice.
        self.thread.call.is_uninterruptible = true;
        Err(self.wait_on(&[Channel::Answer(awaited)], NO_DEADLINE))
    }

    /// Takes the answers that file servers have sent, and wakes the threads that wait for them.
    pub(super) fn take_answers(&mut self) {
        if self.files.mounts.is_empty() {
            return;
        }
        self.files.take_answers();
        for unique in core::mem::take(&mut self.files.mounts.answered) {
            self.wake(Channel::Answer(unique));
        }
    }

    /// Repeats an action outside of any call until the file servers have answered all that it needs. Nothing else runs meanwhile.
    ///
    /// # Errors
    /// Those of the action.
    pub fn await_mounts<T>(&mut self, mut action: impl FnMut(&mut System) -> Result<T, Errno>) -> Result<T, Errno> {
        if self.files.mounts.is_empty() {
            return action(self);
        }
        self.files.mounts.began = clock::now();
        loop {
            let outcome = action(self);
            self.files.write_back();
            if !matches!(outcome, Err(Errno::QUEUED)) {
                self.files.mounts.send();
                return outcome;
            }
            let awaited = self.files.request_misses(clock::now());
            self.files.mounts.send();
            let awaited = awaited.ok_or(Errno::EIO)?;
            loop {
                self.take_answers();
                if self.files.mounts.is_answered(awaited) {
                    break;
                }
                events::wait(NO_DEADLINE);
            }
        }
    }

    /// Waits until the servers have all writes, at the end of the cell.
    pub(super) fn finish_mounts(&mut self) {
        if self.files.mounts.is_empty() {
            return;
        }
        self.files.write_back();
        self.files.mounts.send();
        while self.files.has_writes() {
            events::wait(NO_DEADLINE);
            self.take_answers();
        }
    }
}
