// SPDX-License-Identifier: MIT OR Apache-2.0
//! Training: a template learns which pages its clones access, and prefetches them for later clones.

use super::invoke::Subject;
use super::{Kernel, OperatorError};
use crate::cell::CellId;
use crate::cell::operation::Operation;
use crate::cell::run_state::Requirement;
use crate::memory::{PrefetchSet, TrainingTraces, WrittenPages};
use pando_machine::PageCount;

impl Kernel {
    /// Trains a template with this clone, which must not have started: its page accesses are recorded until it ends. Later clones
    /// get copies of the pages that most training clones wrote, before they write them. The last nine training clones count; the
    /// prefetch set of an imported template counts as one.
    ///
    /// # Errors
    /// The clone was started before, or one of the two cells does not live.
    pub fn train(&self, template: CellId, clone: CellId) -> Result<(), OperatorError> {
        self.invoke(Subject::Cell(clone), Operation::Train { template }).map(drop)
    }

    /// Sets the prefetch set of `template`'s later clones: the pages that `cell` has written since it was cloned itself, and those that it
    /// was expected to access. `template` is that cell, which has frozen, or a copy of it. Replaces what the template has learned.
    ///
    /// # Errors
    /// One of the two cells does not live.
    pub fn set_prefetch_from_writes(&self, cell: CellId, template: CellId) -> Result<(), OperatorError> {
        let mut written = WrittenPages::default();
        while !self.attempt("inspect", |state| {
            let (live, frames) = state.require(cell, Requirement::Living)?;
            Ok(live.cell.memory.list_written(frames, &mut written))
        })? {}
        let mut written = Some(written);
        let trace = self.attempt("inspect", |state| {
            let (live, _) = state.require(cell, Requirement::Living)?;
            Ok(live.cell.memory.expected_trace(written.take().unwrap_or_default()))
        })?;
        // Sorted without the lock.
        let mut traces = Some(Box::new(TrainingTraces::of(trace)));
        self.attempt("train", |state| {
            let (live, _) = state.require(template, Requirement::Living)?;
            live.cell.memory.clone_traces = traces.take();
            Ok(())
        })
    }

    /// Number of pages in a template's prefetch set.
    ///
    /// # Errors
    /// The template does not live.
    pub fn prefetch_set(&self, template: CellId) -> Result<PageCount, OperatorError> {
        self.prefetch_set_of(template).map(|prefetch_set| PageCount(prefetch_set.accesses().len() as u64))
    }

    /// Computes a template's prefetch set anew if it has new training traces: without the lock, because that takes milliseconds.
    pub(super) fn update_prefetch_set(&self, template: CellId) {
        let unmerged = self.shared.lock().living(template).and_then(|(live, _)| live.cell.memory.clone_traces.as_ref()?.unmerged());
        let Some((recorded, traces)) = unmerged else { return };
        let prefetch_set = PrefetchSet::of(&traces);
        if let Some((live, _)) = self.shared.lock().living(template)
            && let Some(traces) = &mut live.cell.memory.clone_traces
        {
            traces.set_prefetch(recorded, prefetch_set);
        }
    }

    fn prefetch_set_of(&self, template: CellId) -> Result<PrefetchSet, OperatorError> {
        self.update_prefetch_set(template);
        self.query("inspect", template, |live, _| live.cell.memory.prefetch_set_for_clones())
    }

    /// Makes an imported template's prefetch set present in the template, so that its clones share the pages. Reads the blocks of
    /// disks that this needs.
    ///
    /// # Errors
    /// The template does not live, a block cannot be read, or there is not enough memory.
    pub fn prefetch(&self, template: CellId) -> Result<(), OperatorError> {
        let prefetch_set = self.prefetch_set_of(template)?;
        let mut left = prefetch_set.accesses();
        while !left.is_empty() {
            self.change("prefetch pages of", template, |cell, frames| Ok(cell.memory.read_prefetched(frames, &mut left)?))?;
        }
        Ok(())
    }

    /// Copies the first prefetch batch of a clone, as far as there is memory for it.
    ///
    /// # Errors
    /// It was started before, or does not live.
    pub(super) fn copy_first_batch(&self, clone: CellId) -> Result<(), OperatorError> {
        let first = self.attempt("start", |state| Ok(state.require(clone, Requirement::NotStarted)?.0.cell.memory.prefetch.first()))?;
        let Some(mut first) = first else { return Ok(()) };
        while !first.is_empty() {
            self.attempt("start", |state| {
                let (live, frames) = state.require(clone, Requirement::NotStarted)?;
                live.cell.memory.copy_prefetched(frames, &mut first);
                Ok(())
            })?;
        }
        Ok(())
    }
}
