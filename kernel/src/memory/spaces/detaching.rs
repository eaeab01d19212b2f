// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that leaves its cell for a while: the memory of a cell that falls asleep, is asleep, or wakes up.
//!
//! The cell keeps an empty set with its account and its disks. It must not run: it has no running space.

use super::set::SpaceSet;
use crate::memory::frames::Frames;
use crate::memory::prefetch::{CopyClusters, PrefetchState};
use std::mem;

impl SpaceSet {
    /// A set of the same account and disks without any space. A restore adds its mapped memory.
    #[must_use]
    pub(crate) fn new_empty_for_same_account(&self) -> SpaceSet {
        SpaceSet {
            account: self.account,
            spaces: Vec::new(),
            segments: Vec::new(),
            disks: self.disks.clone(),
            current: self.current,
            training_trace: None,
            start_trace: None,
            is_starting: false,
            clone_traces: None,
            prefetch: PrefetchState::default(),
            clusters: CopyClusters::default(),
            had_pages_taken: self.had_pages_taken,
        }
    }

    /// A set of the same account and disks with one space that holds only an empty system segment.
    #[must_use]
    pub(crate) fn new_for_same_account(&self, frames: &mut Frames) -> SpaceSet {
        SpaceSet { disks: self.disks.clone(), ..SpaceSet::new(frames, self.account) }
    }

    /// Takes all memory out. The records of its starts and of its clones stay.
    #[must_use]
    pub(crate) fn detach(&mut self) -> SpaceSet {
        let mut memory = self.new_empty_for_same_account();
        mem::swap(self, &mut memory);
        (self.start_trace, self.clone_traces) = (memory.start_trace.take(), memory.clone_traces.take());
        memory
    }

    /// Puts memory back that was taken out, or that was built instead of it.
    pub(crate) fn reattach(&mut self, mut memory: SpaceSet) {
        (memory.start_trace, memory.clone_traces) = (self.start_trace.take(), self.clone_traces.take());
        *self = memory;
    }

    /// Whether accesses are recorded for a template.
    #[must_use]
    pub(crate) fn is_training(&self) -> bool {
        self.training_trace.is_some()
    }
}
