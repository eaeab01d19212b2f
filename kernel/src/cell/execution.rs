// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution contexts: what runs on vCPUs for cells.
//!
//! A [`Cell`](super::Cell) holds resources, an [`ExecutionContext`] uses them. A cell has one. Only its
//! owner in `core` (`LiveCell`) and the image of a cell ([`CellRecord`](super::image::CellRecord)) rely on that.

use super::run_state::RunState;
use super::work::Work;
use crate::memory::Frames;
use pando_machine::{Context, FrameId, Nanos, VectorState};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The value that the result register receives when the context next runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resumption {
    /// None: the registers are complete.
    AsIs,
    /// The pending events: it returns from idling.
    WithEvents,
    /// The generation: it returns from freezing, as a clone.
    WithGeneration,
}

/// The vector state of a context that is on no vCPU (line 7 of the context contract).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavedVector {
    /// The cell declared it dead; it gets the initial state.
    Dead,
    /// Saved when the context left its vCPU.
    Saved(VectorState),
}

/// A write whose page was just copied: its instruction will be retried, and the vCPU may not have seen the copy yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnconfirmedWrite {
    pub(crate) instruction: u64,
    pub(crate) address: u64,
    /// The shared page that the vCPU may still read there: held until the write is confirmed.
    pub(crate) replaced: Option<FrameId>,
}

impl UnconfirmedWrite {
    /// Releases the page that the write has replaced, once no vCPU can still read it for this cell.
    pub(crate) fn confirm(self, frames: &mut Frames) {
        if let Some(frame) = self.replaced {
            frames.release(frame);
        }
    }
}

/// Consecutive faults at one address that the page tables rule out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpuriousFaults {
    address: u64,
    count: u32,
}

impl SpuriousFaults {
    /// Counts a fault, and returns how many in a row there were at this address.
    pub(crate) fn note(&mut self, address: u64) -> u32 {
        let count = if self.address == address { self.count + 1 } else { 1 };
        *self = SpuriousFaults { address, count };
        count
    }
}

/// The part of a cell that a vCPU runs: its CPU state, and its place in the scheduling of the kernel.
pub struct ExecutionContext {
    run_state: RunState,
    /// All CPU state except the vector state.
    pub(crate) context: Context,
    pub(crate) vector: SavedVector,
    pub(crate) resumption: Resumption,
    /// Unfinished work: its next step comes before the context runs.
    pub(crate) work: Option<Work>,
    pub(crate) unconfirmed: Option<UnconfirmedWrite>,
    pub(crate) spurious: SpuriousFaults,
    /// Number of flushes that it has waited for since its last exit.
    pub(crate) flush_waits: u32,
    /// Until when it waits, or last waited, for memory that no idle cell had.
    pub(crate) memory_deadline: Option<Nanos>,
    /// The vCPU that it ran on last.
    pub(crate) last_vcpu: Option<usize>,
    /// Rest of a quantum that a waking cell interrupted; the cell keeps it. Zero: the next quantum is a whole one.
    pub(crate) quantum_left: Duration,
    /// When it left its vCPU although it could go on; `None` once it runs again.
    pub(crate) preempted_at: Option<Nanos>,
}

impl ExecutionContext {
    /// A context that was not started, with all registers zero.
    pub(crate) fn new() -> ExecutionContext {
        ExecutionContext::with(Context::default(), SavedVector::Dead, Resumption::AsIs)
    }

    /// A context with this CPU state that was not started.
    pub(crate) fn with(context: Context, vector: SavedVector, resumption: Resumption) -> ExecutionContext {
        ExecutionContext {
            run_state: RunState::New,
            context,
            vector,
            resumption,
            work: None,
            unconfirmed: None,
            spurious: SpuriousFaults::default(),
            flush_waits: 0,
            memory_deadline: None,
            last_vcpu: None,
            quantum_left: Duration::ZERO,
            preempted_at: None,
        }
    }

    /// Its run state.
    pub(crate) fn run_state(&self) -> RunState {
        self.run_state
    }

    /// Changes the time until which it waits, if it is idle.
    pub(crate) fn extend_idle(&mut self, time: Nanos) {
        if let RunState::Idle { until } = &mut self.run_state {
            *until = time;
        }
    }

    /// Moves it to another run state. This and [`ExecutionContext::extend_idle`] are the only places that change the run state.
    pub(crate) fn transition(&mut self, next: RunState) {
        debug_assert!(self.run_state.can_become(next), "no transition leads from {:?} to {next:?}", self.run_state);
        self.run_state = next;
    }
}
