// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of starts, and mappings that follow them.

use super::page_span::PageSpan;
use super::set::SpaceSet;
use crate::limits::{START_BLOCKS, START_RELEASE, START_SCAN, START_TABLES};
use crate::memory::block::{Block, DiskId};
use crate::memory::frames::Frames;
use crate::memory::prefetch::{StartMode, StartTrace};
use crate::memory::tree::span;
use pando_abi::layout::SLOT_SIZE;
use pando_abi::{BlockNumber, DiskIndex, PAGE_SIZE};
use std::collections::HashSet;
use std::ops::Range;

impl SpaceSet {
    /// Starts tracing.
    pub(crate) fn trace_start(&mut self, mode: StartMode) {
        (self.start_trace, self.is_starting) = (Some(Box::new(StartTrace::new(mode))), true);
    }

    /// Whether mappings get the blocks that are in memory at once, and read no others.
    pub(crate) fn uses_prefetched_blocks(&self) -> bool {
        self.is_starting && self.start_trace.as_ref().is_some_and(|start| start.mode == StartMode::Prefetched)
    }

    /// Counts a read of blocks for the cell.
    pub(crate) fn note_miss(&mut self) {
        if let Some(start) = self.start_trace.as_mut().filter(|_| self.is_starting) {
            start.misses += 1;
        }
    }

    /// Ends the start: when the cell waits for others, after [`START_TRACE_CPU_MAX`](crate::limits::START_TIME), or at its end. Bounded by
    /// [`START_SCAN`].
    pub(crate) fn end_start(&mut self, frames: &mut Frames) {
        let is_learned = self.start_trace.as_ref().is_some_and(|start| start.mode == StartMode::Record);
        if std::mem::take(&mut self.is_starting) && is_learned {
            // Records the blocks of mappings that are gone.
            let _ = frames.reap(START_RELEASE);
            let spans = self.note_accessed(frames);
            let blocks = self.block_ranges(frames.end_access_tracking());
            if let Some(start) = &mut self.start_trace {
                (start.blocks, start.spans) = (blocks, spans);
            }
        }
    }

    /// Takes the trace of a start that is over.
    pub(crate) fn take_start(&mut self, frames: &mut Frames) -> Option<StartTrace> {
        self.end_start(frames);
        self.start_trace.take().map(|start| *start)
    }

    /// Records the blocks that the CPU has accessed. Returns the spans of segments in which they lie.
    fn note_accessed(&mut self, frames: &mut Frames) -> Vec<u64> {
        let mut budget = START_SCAN;
        for tree in self.trees_mut() {
            tree.note_accessed(frames, &mut budget);
        }
        let mut spans = Vec::new();
        for (slot, tree) in self.current_segments() {
            let pages = tree.note_accessed(frames, &mut budget);
            spans.extend(pages.into_iter().map(|page| slot as u64 * SLOT_SIZE + page * PAGE_SIZE));
        }
        spans.truncate(START_TABLES);
        spans
    }

    /// Blocks of attached disks as ranges, in the cell's names and in order.
    fn block_ranges(&self, blocks: HashSet<Block>) -> Vec<(DiskIndex, Range<BlockNumber>)> {
        let disks: Vec<DiskId> = self.attached().map(|(disk, _)| disk).collect();
        let name = |block: Block| Some((disks.iter().position(|disk| *disk == block.disk)? as u32, block.number.0));
        let mut numbers: Vec<(u32, u32)> = blocks.into_iter().filter_map(name).collect();
        numbers.sort_unstable();
        numbers.truncate(START_BLOCKS as usize);
        let runs = numbers.chunk_by(|one, next| (one.0, one.1 + 1) == *next);
        runs.map(|run| (DiskIndex(run[0].0), BlockNumber(run[0].1)..BlockNumber(run[run.len() - 1].1.saturating_add(1)))).collect()
    }

    /// Makes blocks at the front of a range, which begins with `first`, present if they are in memory, and removes their pages from the
    /// range. One step. Without memory for a table the pages fault later.
    pub(crate) fn map_resident_step(&mut self, frames: &mut Frames, range: &mut PageSpan, first: &mut Block) {
        let end = ((range.pages.start / span(2) + 1) * span(2)).min(range.pages.end);
        let account = self.account;
        let pages = range.pages.start..end;
        let count = pages.end - pages.start;
        if frames.has_some_blocks(*first, count)
            && let Some(tree) = self.tree(range.space, range.slot)
        {
            let _ = tree.map_resident(frames, account, pages);
        }
        range.pages.start = end;
        *first = first.offset(count);
    }

    /// Makes blocks present that are in memory, in the span of a large page of the running space that contains an address. It is best
    /// effort: a span that cells do not own, or for which there is no memory, stays as it is.
    pub(crate) fn map_resident_span(&mut self, frames: &mut Frames, address: u64) {
        let start = address / (span(2) * PAGE_SIZE) * (span(2) * PAGE_SIZE);
        let account = self.account;
        let Ok(range) = self.check(self.current, start, span(2)) else { return };
        if let Some(tree) = self.tree(range.space, range.slot) {
            let _ = tree.map_resident(frames, account, range.pages);
        }
    }
}
