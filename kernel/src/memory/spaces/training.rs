// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording of accesses: training traces for a template, and written pages for the next clone of a space.

use super::page_span::PageSpan;
use super::set::SpaceSet;
use crate::limits::TRACE_PAGES;
use crate::memory::frames::Frames;
use crate::memory::paging::Access;
use crate::memory::prefetch::{PageAccess, PrefetchSet, PrefetchState, TrainingTrace, VirtualPage};
use crate::memory::tree::DecodedEntry;
use std::ops::Range;

impl SpaceSet {
    /// Starts recording accesses, as far as there is room. Disables prefetching, because accesses to prefetched pages could not be
    /// seen.
    pub(crate) fn begin_training(&mut self) {
        (self.training_trace, self.prefetch) = (Some(Box::default()), PrefetchState::default());
    }

    /// Ends the recording, and returns the trace.
    pub(crate) fn end_training(&mut self) -> Option<TrainingTrace> {
        self.training_trace.take().map(|trace| *trace)
    }

    /// The prefetch set of its clones.
    pub(crate) fn prefetch_set_for_clones(&self) -> PrefetchSet {
        self.clone_traces.as_ref().map(|traces| traces.prefetch_set().clone()).unwrap_or_default()
    }

    /// Records a page that is present now. A page that became exclusive on a read counts as written, because a later write
    /// causes no fault.
    pub(super) fn note_access(&mut self, frames: &Frames, page: &PageSpan, access: Access) {
        if self.training_trace.as_ref().is_none_or(|trace| trace.accesses.len() >= TRACE_PAGES) {
            return;
        }
        let found = self.tree(page.space, page.slot).map(|tree| tree.find(frames, page.pages.start));
        let is_exclusive = found.is_some_and(|found| found.is_owned && matches!(found.decoded, DecodedEntry::Page { writable: true, .. }));
        let access = PageAccess { page: page.first(), is_written: access == Access::Write || is_exclusive };
        self.training_trace.iter_mut().for_each(|trace| trace.accesses.push(access));
    }

    /// Records that the cell has written output, or waits.
    pub(crate) fn note_pause(&mut self) {
        if let Some(trace) = &mut self.training_trace {
            trace.pause.get_or_insert(trace.accesses.len() as u32);
        }
    }

    /// Records that the running space has written to a shared page.
    pub(super) fn note_written(&mut self, page: VirtualPage) {
        let Ok(space) = self.space(self.current) else { return };
        space.fork_prefetch.note_written_by_parent(page);
        self.note_written_as_clone(page..VirtualPage { number: page.number + 1, ..page });
    }

    /// If the running space is a clone, records in its original that a clone has written to these pages of a slot, which were shared or
    /// lazy.
    pub(super) fn note_written_as_clone(&mut self, pages: Range<VirtualPage>) {
        let Ok(space) = self.space(self.current) else { return };
        if let Some(original) = space.cloned_from.and_then(|original| self.space(original).ok()) {
            for number in pages.start.number..pages.end.number {
                original.fork_prefetch.note_written_by_child(VirtualPage { number, ..pages.start });
            }
        }
    }
}
