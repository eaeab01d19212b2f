// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queues of cells that fall asleep and wake up.
//!
//! A cell that idles longer than the kernel's patience falls asleep, the longest idle first. The patience with a cell doubles when the
//! cell was woken soon, and halves otherwise. There is one entry for each cell that idles. When it is due, and the cell has run since, it
//! is queued again.

use crate::cell::CellId;
use crate::device::swap::SwapSlot;
use crate::limits::PATIENCE_DOUBLINGS;
use pando_machine::{Nanos, PageCount};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// How a cell idles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idleness {
    /// When it last became idle.
    pub(super) since: Nanos,
    /// Whether the queue has an entry for it.
    pub(super) is_queued: bool,
    /// How often the patience with it has doubled.
    doublings: u8,
}

impl Idleness {
    /// The patience with the cell.
    pub(super) fn patience(&self, patience: Duration) -> Duration {
        patience.saturating_mul(1 << self.doublings)
    }

    /// Records that the cell could not sleep: it is tried again much later.
    pub(super) fn note_refusal(&mut self) {
        self.doublings = PATIENCE_DOUBLINGS;
    }

    /// Records how long the cell slept.
    pub(super) fn note_sleep(&mut self, slept: Duration, patience: Duration) {
        let is_short = slept < self.patience(patience);
        self.doublings = if is_short { (self.doublings + 1).min(PATIENCE_DOUBLINGS) } else { self.doublings.saturating_sub(1) };
    }
}

/// Where the memory of a sleeping cell is.
#[derive(Debug)]
pub(super) enum SleepStage {
    /// A thread writes it to swap space.
    Leaving,
    /// In swap space.
    Stored(SwapSlot),
    /// A thread restores it.
    Returning,
}

/// The sleep of a cell.
#[derive(Debug)]
pub(super) struct Sleep {
    pub(super) stage: SleepStage,
    /// Whether it should wake up.
    pub(super) is_wake_wanted: bool,
    /// When it began.
    pub(super) since: Nanos,
    /// Frames that the cell used before.
    pub(super) used: PageCount,
    /// The quota of the cell, if it is exceeded while the cell wakes up.
    pub(super) quota: Option<PageCount>,
}

/// Numbers of sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepCounters {
    /// Cells that fell asleep.
    pub sleeps: u64,
    /// Cells that woke up.
    pub wakes: u64,
    /// Cells to which an event came while they fell asleep, and which stayed awake.
    pub interrupted: u64,
    /// Cells that should have slept and stayed awake: their state does not allow it, or swap space was full or failed.
    pub refused: u64,
    /// Cells that ended because their memory could not be restored.
    pub lost: u64,
}

/// The queues of cells that fall asleep and wake up.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// How long a cell idles before it falls asleep; `None`: it does so on request only.
    pub(super) patience: Option<Duration>,
    /// Whether each idle cell falls asleep at once: for tests.
    pub(super) is_drowsy: bool,
    /// Whether a thread works through the queues. Otherwise the vCPUs do.
    pub(super) has_thread: bool,
    pub(super) counters: SleepCounters,
    idle: BinaryHeap<Reverse<(Nanos, CellId)>>,
    wakes: VecDeque<CellId>,
}

impl Sleepers {
    /// Empty queues.
    pub(super) fn new(patience: Option<Duration>, is_drowsy: bool) -> Sleepers {
        Sleepers { patience, is_drowsy, ..Sleepers::default() }
    }

    /// Whether idle cells fall asleep without a request.
    pub(super) fn is_automatic(&self) -> bool {
        self.is_drowsy || self.patience.is_some()
    }

    /// Queues a cell that may fall asleep at `due`.
    pub(super) fn queue_idle(&mut self, id: CellId, due: Nanos) {
        self.idle.push(Reverse((due, id)));
    }

    /// Takes the next cell that is due to fall asleep.
    pub(super) fn next_idle(&mut self, now: Nanos) -> Option<CellId> {
        let Reverse((due, _)) = self.idle.peek()?;
        if *due > now {
            return None;
        }
        self.idle.pop().map(|Reverse((_, id))| id)
    }

    /// When the next cell is due to fall asleep.
    pub(super) fn next_due(&self) -> Nanos {
        self.idle.peek().map_or(Nanos::NEVER, |Reverse((due, _))| *due)
    }

    /// Queues a cell that should wake up.
    pub(super) fn queue_wake(&mut self, id: CellId) {
        self.wakes.push_back(id);
    }

    /// Takes the next cell that should wake up.
    pub(super) fn next_wake(&mut self) -> Option<CellId> {
        self.wakes.pop_front()
    }

    /// Number of cells that should wake up.
    pub(super) fn waking(&self) -> usize {
        self.wakes.len()
    }
}
