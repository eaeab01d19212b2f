// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocator of frames: free lists per huge frame.
//!
//! Frames are handed out densely, lowest first within a huge frame, so that huge frames stay whole for large pages. A huge frame that
//! was used before is preferred to one that never was, because the host has memory behind it already.
//!
//! The machine provides huge frames in ascending order, and never takes one back. Those that it has not provided yet are allocated last,
//! so an allocation of a single frame cannot fail as long as a provided one is free ([`FrameAllocator::provide`]).

use crate::limits::TRIM_FREE_FRAMES;
use pando_machine::{Arena, FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame, Machine};

/// The free frames of a huge frame.
#[derive(Clone, Copy, Debug)]
struct HugeFrameState {
    /// A set bit: the frame is free.
    free: [u64; 8],
    free_count: u16,
    /// Frames from here on were never allocated, and so read zero.
    fresh_from: u16,
    /// Whether the list of huge frames with some free frames contains it.
    in_partial: bool,
    /// Whether one of the two lists of wholly free huge frames contains it.
    in_whole: bool,
    /// Whether its free frames have no memory of the host behind them: none was allocated or freed since they were given back.
    is_trimmed: bool,
    /// Whether the host backs it with small pages, because a part of it was given back.
    has_small_pages: bool,
}

impl HugeFrameState {
    const UNUSED: HugeFrameState = HugeFrameState {
        free: [u64::MAX; 8],
        free_count: FRAMES_PER_HUGE_FRAME as u16,
        fresh_from: 0,
        in_partial: false,
        in_whole: true,
        is_trimmed: false,
        has_small_pages: false,
    };
    /// Of huge frame 0, which the machine uses.
    const MACHINE: HugeFrameState = HugeFrameState { free: [0; 8], free_count: 0, in_whole: false, ..HugeFrameState::UNUSED };

    fn is_whole(&self) -> bool {
        u32::from(self.free_count) == FRAMES_PER_HUGE_FRAME
    }

    /// The free frames, as runs: the number of the first, and the length.
    fn free_runs(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for number in (0..FRAMES_PER_HUGE_FRAME).filter(|number| self.free[*number as usize / 64] >> (number % 64) & 1 != 0) {
            match runs.last_mut() {
                Some((first, length)) if *first + *length == number => *length += 1,
                _ => runs.push((number, 1)),
            }
        }
        runs
    }
}

/// The free frames of a machine.
#[derive(Debug)]
pub(super) struct FrameAllocator {
    /// The huge frames that the machine has provided: the lowest ones. A huge frame that no cell needed takes no memory here either.
    huge_frames: Vec<HugeFrameState>,
    /// Number of huge frames that the machine can provide.
    limit: u32,
    /// Huge frames with some free frames: all that were ever used, and stale entries without free frames.
    partial: Vec<u32>,
    /// Wholly free huge frames that have been used: all of them, and stale entries.
    whole: Vec<u32>,
    /// Huge frames that were used, and were given back to the host: they read zero. All of them, and stale entries.
    given_back: Vec<u32>,
    /// The lowest huge frame that was never used. All above it were never used either.
    never_used: u32,
    free: u64,
    /// Free frames in provided huge frames.
    provided_free: u64,
    /// Free frames that must stay free, because the host has no memory for them.
    withheld: u64,
    /// Frames of huge frames that are withdrawn at present.
    withdrawn: u64,
}

/// A frame that was allocated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub(super) frame: FrameId,
    /// Whether it was never allocated before, and so reads zero.
    pub(super) is_fresh: bool,
}

/// A huge frame that was allocated as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct HugeAllocation {
    pub(super) huge_frame: HugeFrame,
    /// Number of frames at its start that were allocated before; the others read zero.
    pub(super) used: u16,
}

impl FrameAllocator {
    /// All frames of a machine with `huge_frames` huge frames, except huge frame 0, which the machine uses.
    pub(super) fn new(huge_frames: u32) -> FrameAllocator {
        FrameAllocator {
            huge_frames: vec![HugeFrameState::MACHINE],
            limit: huge_frames,
            partial: Vec::new(),
            whole: Vec::new(),
            given_back: Vec::new(),
            never_used: 1,
            free: u64::from(huge_frames.saturating_sub(1)) * u64::from(FRAMES_PER_HUGE_FRAME),
            provided_free: 0,
            withheld: 0,
            withdrawn: 0,
        }
    }

    /// Number of free frames, without those that are withheld.
    pub(super) fn free_count(&self) -> u64 {
        self.free_with_withheld().saturating_sub(self.withheld).min(self.free)
    }

    /// Number of free frames, with those that are withheld or withdrawn.
    pub(super) fn free_with_withheld(&self) -> u64 {
        self.free + self.withdrawn
    }

    /// Withholds this many frames from allocations. There may be fewer free ones.
    pub(super) fn withhold(&mut self, count: u64) {
        self.withheld = count;
    }

    /// Number of frames that are withheld.
    pub(super) fn withheld(&self) -> u64 {
        self.withheld
    }

    /// Number of frames that must become free before as many as are withheld are free.
    pub(super) fn deficit(&self) -> u64 {
        self.withheld.saturating_sub(self.free_with_withheld())
    }

    /// Lets the machine provide huge frames until `count` frames can be allocated, or all that the host gives. Returns the number of
    /// frames that must become free before `count` can be allocated. Amortised O(1).
    pub(super) fn provide(&mut self, machine: &dyn Machine, count: u64) -> u64 {
        while self.provided_free < count && self.provide_next(machine) {}
        count.saturating_sub(self.provided_free).max(self.withheld.saturating_add(count).saturating_sub(self.free_with_withheld()))
    }

    /// Lets the machine provide the next huge frame. `false`: there is none, or the host refused.
    fn provide_next(&mut self, machine: &dyn Machine) -> bool {
        let next = self.huge_frames.len() as u32;
        if next >= self.limit || machine.provide(HugeFrame(next)).is_err() {
            return false;
        }
        self.huge_frames.push(HugeFrameState::UNUSED);
        self.provided_free += u64::from(FRAMES_PER_HUGE_FRAME);
        true
    }

    /// Counts frames as allocated.
    fn count_allocated(&mut self, frames: u64) {
        self.free -= frames;
        self.provided_free -= frames;
    }

    /// Counts frames as free.
    fn count_free(&mut self, frames: u64) {
        self.free += frames;
        self.provided_free += frames;
    }

    /// Allocates a frame. Amortised O(1). `None`: none is free, or the host cannot provide another huge frame.
    pub(super) fn allocate(&mut self, machine: &dyn Machine) -> Option<Allocation> {
        let index = loop {
            match self.partial.last() {
                Some(index) if self.huge_frames[*index as usize].free_count > 0 => break *index,
                Some(index) => {
                    self.huge_frames[*index as usize].in_partial = false;
                    self.partial.pop();
                }
                None => {
                    let index = self.take_whole(machine)?;
                    self.huge_frames[index as usize].in_partial = true;
                    self.partial.push(index);
                }
            }
        };
        let state = &mut self.huge_frames[index as usize];
        let word = state.free.iter().position(|word| *word != 0)?;
        let bit = state.free[word].trailing_zeros();
        state.free[word] &= !(1 << bit);
        state.free_count -= 1;
        state.is_trimmed = false;
        let number = word as u32 * 64 + bit;
        let is_fresh = number >= u32::from(state.fresh_from);
        if is_fresh {
            state.fresh_from = number as u16 + 1;
        }
        self.count_allocated(1);
        Some(Allocation { frame: HugeFrame(index).first().offset(number), is_fresh })
    }

    /// Allocates a huge frame as a whole. Amortised O(1). `None`: none is wholly free, or the host cannot provide another.
    pub(super) fn allocate_huge(&mut self, machine: &dyn Machine) -> Option<HugeAllocation> {
        if self.free_count() < u64::from(FRAMES_PER_HUGE_FRAME) {
            return None;
        }
        let index = self.take_whole(machine)?;
        let state = &mut self.huge_frames[index as usize];
        let used = state.fresh_from;
        *state = HugeFrameState { free: [0; 8], free_count: 0, fresh_from: FRAMES_PER_HUGE_FRAME as u16, ..*state };
        self.count_allocated(u64::from(FRAMES_PER_HUGE_FRAME));
        Some(HugeAllocation { huge_frame: HugeFrame(index), used })
    }

    /// Frees a frame.
    pub(super) fn free(&mut self, frame: FrameId) {
        let huge_frame = frame.huge_frame().0;
        let number = frame.0 - HugeFrame(huge_frame).first().0;
        let state = &mut self.huge_frames[huge_frame as usize];
        state.free[number as usize / 64] |= 1 << (number % 64);
        state.free_count += 1;
        state.is_trimmed = false;
        if state.is_whole() && !state.in_whole {
            state.in_whole = true;
            self.whole.push(huge_frame);
        }
        if !state.in_partial && !state.is_whole() {
            state.in_partial = true;
            // Below the top: the huge frame on top continues to be filled first.
            let below = self.partial.len().saturating_sub(1);
            self.partial.insert(below, huge_frame);
        }
        self.count_free(1);
    }

    /// Takes out a wholly free huge frame with memory of the host behind it, if there are more than `keep` of them.
    pub(super) fn withdraw(&mut self, machine: &dyn Machine, keep: usize) -> Option<HugeFrame> {
        if self.whole.len() <= keep {
            return None;
        }
        let index = self.take_whole(machine)?;
        let state = &mut self.huge_frames[index as usize];
        *state = HugeFrameState { free: [0; 8], free_count: 0, ..*state };
        self.count_allocated(u64::from(FRAMES_PER_HUGE_FRAME));
        self.withdrawn += u64::from(FRAMES_PER_HUGE_FRAME);
        Some(HugeFrame(index))
    }

    /// Puts back a withdrawn huge frame, which reads zero and has no memory of the host behind it.
    pub(super) fn put_back(&mut self, huge_frame: HugeFrame) {
        let state = &mut self.huge_frames[huge_frame.0 as usize];
        *state = HugeFrameState { in_partial: state.in_partial, ..HugeFrameState::UNUSED };
        self.given_back.push(huge_frame.0);
        self.withdrawn -= u64::from(FRAMES_PER_HUGE_FRAME);
        self.count_free(u64::from(FRAMES_PER_HUGE_FRAME));
    }

    /// Gives the host the memory of the free frames of a partly used huge frame, from `from` on, if they are many and may have memory
    /// behind them. Moves `from` past it. `false`: there is none. The frames stay free, and need not be taken out, as this takes some
    /// ten microseconds.
    pub(super) fn trim_next(&mut self, arena: &Arena, from: &mut u32) -> bool {
        let is_due = |state: &HugeFrameState| !state.is_trimmed && !state.is_whole() && state.free_count >= TRIM_FREE_FRAMES;
        let rest = self.huge_frames.iter_mut().enumerate().skip(*from as usize);
        let Some((index, state)) = { rest }.find(|(_, state)| is_due(state)) else { return false };
        let huge_frame = HugeFrame(index as u32);
        *from = huge_frame.0 + 1;
        if !state.has_small_pages {
            arena.use_small_pages(huge_frame);
            state.has_small_pages = true;
        }
        for (first, length) in state.free_runs() {
            arena.give_back(huge_frame.first().offset(first), length);
        }
        state.is_trimmed = true;
        true
    }

    /// Takes a wholly free huge frame off its list, if possible one that was used before. Amortised O(1).
    fn take_whole(&mut self, machine: &dyn Machine) -> Option<u32> {
        while let Some(index) = self.whole.pop().or_else(|| self.given_back.pop()) {
            let state = &mut self.huge_frames[index as usize];
            state.in_whole = false;
            if state.is_whole() {
                if std::mem::take(&mut state.has_small_pages) {
                    machine.arena().use_huge_pages(HugeFrame(index));
                }
                return Some(index);
            }
        }
        let index = self.never_used;
        if index as usize >= self.huge_frames.len() && !self.provide_next(machine) {
            return None;
        }
        self.never_used += 1;
        self.huge_frames[index as usize].in_whole = false;
        Some(index)
    }
}
