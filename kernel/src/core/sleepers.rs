// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queues of cells that fall asleep and wake up.
//!
//! A cell that idles for the kernel's `sleep_after` falls asleep, the longest idle first. The delay of a cell doubles when the cell was
//! woken soon, and halves otherwise. The queue has one entry for each cell that idles. When it is due, and the cell has run since, it is
//! queued again. If memory is short, the first cells of the queue fall asleep before they are due.

use super::idle_queue::{IdleClass, IdlePosition, IdleQueue};
use super::records::StoredRecord;
use crate::cell::CellId;
use crate::limits::{RECENT_WAKE, REFUSAL_RETRY, SLEEP_DELAY_DOUBLINGS, SLEEP_RETRY};
use pando_machine::{Nanos, PageCount};
use std::collections::VecDeque;
use std::time::Duration;

/// How a cell idles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idleness {
    /// When it last became idle.
    pub(super) since: Nanos,
    /// It does not fall asleep before this time: it could not when it was tried.
    not_before: Nanos,
    /// It is not put to sleep before this time, also if memory is short: swap space did not take it, or events interrupted it repeatedly.
    pub(super) retry_at: Nanos,
    /// Until when it is spared while others can sleep: it woke up, or an event interrupted its falling asleep.
    spared_until: Nanos,
    /// Its place in the queue of idle cells.
    pub(super) place: Option<IdlePosition>,
    /// How often its delay has doubled.
    doublings: u8,
    /// Number of times in a row that it could not sleep.
    refusals: u8,
    /// Number of times in a row that an event interrupted its falling asleep.
    interruptions: u8,
}

impl Idleness {
    /// How long the cell idles before it falls asleep.
    fn delay(&self, sleep_after: Option<Duration>) -> Duration {
        sleep_after.unwrap_or_default().saturating_mul(1 << self.doublings)
    }

    /// When the cell falls asleep if no event comes.
    pub(super) fn due(&self, sleep_after: Option<Duration>) -> Nanos {
        (self.since + self.delay(sleep_after)).max(self.not_before).max(self.retry_at)
    }

    /// Records that the cell has become idle. Its state has changed since it could not sleep.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.since = now;
        if std::mem::take(&mut self.refusals) > 0 {
            self.not_before = now;
        }
    }

    /// Records that the state of the cell does not allow it to sleep at present. The interval to the next attempt doubles. Returns when a
    /// search for memory looks at it again: its reason, such as unread output, may pass without its doing.
    pub(super) fn note_refusal(&mut self, now: Nanos) -> Nanos {
        let doublings = 1 << self.refusals;
        self.not_before = now + SLEEP_RETRY.saturating_mul(doublings);
        self.refusals = (self.refusals + 1).min(SLEEP_DELAY_DOUBLINGS);
        now + REFUSAL_RETRY.saturating_mul(doublings)
    }

    /// Records that swap space did not take the cell: the next attempt comes after the longest delay.
    pub(super) fn note_failure(&mut self, now: Nanos) {
        self.doublings = SLEEP_DELAY_DOUBLINGS;
        self.retry_at = now + SLEEP_RETRY.saturating_mul(1 << SLEEP_DELAY_DOUBLINGS);
    }

    /// Records that an event came while the cell fell asleep. A search for memory does not insist on a cell whose sleep is always
    /// interrupted: after the first interruption, the interval to its next attempt doubles.
    pub(super) fn note_interruption(&mut self, now: Nanos) {
        self.spared_until = now + RECENT_WAKE;
        self.retry_at = self.retry_at.max(now + RECENT_WAKE.saturating_mul((1 << self.interruptions) - 1));
        self.interruptions = (self.interruptions + 1).min(SLEEP_DELAY_DOUBLINGS);
    }

    /// Records that the cell has woken up, and how long it slept.
    pub(super) fn note_wake(&mut self, now: Nanos, slept: Duration, sleep_after: Option<Duration>) {
        let is_short = slept < self.delay(sleep_after);
        self.doublings = if is_short { (self.doublings + 1).min(SLEEP_DELAY_DOUBLINGS) } else { self.doublings.saturating_sub(1) };
        self.spared_until = now + RECENT_WAKE;
        self.interruptions = 0;
    }

    /// Until when the cell is put to sleep under memory pressure only if no other can, because it has just woken up.
    pub(super) fn spared_until(&self, now: Nanos) -> Option<Nanos> {
        Some(self.spared_until).filter(|until| *until > now)
    }

    /// Whether an entry of the queue stands for the cell.
    pub(super) fn is_at(&self, place: IdlePosition) -> bool {
        self.place == Some(place)
    }
}

/// Where the memory of a sleeping cell is.
#[derive(Debug)]
pub(super) enum SleepStage {
    /// A thread writes it to swap space.
    SwappingOut,
    /// In swap space.
    Stored(StoredRecord),
    /// A thread restores it.
    SwappingIn,
}

/// The sleep of a cell.
#[derive(Debug)]
pub(super) struct Sleep {
    pub(super) stage: SleepStage,
    /// Whether it should wake up.
    pub(super) is_wake_requested: bool,
    /// When it began.
    pub(super) since: Nanos,
    /// Frames that the cell used before.
    pub(super) used: PageCount,
    /// The quota of the cell, if it is exceeded while the cell wakes up.
    pub(super) quota: Option<PageCount>,
}

/// The outcome of a request to put a cell to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepOutcome {
    /// Its memory is in swap space.
    Asleep,
    /// It stays awake, or wakes up: an event came for it meanwhile.
    Interrupted,
}

/// The outcome of a request to put an idle cell to sleep because memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwapOutRequest {
    /// One falls asleep.
    UnderWay,
    /// Another request may find one.
    Unfinished,
    /// None can sleep.
    Refused,
}

/// Numbers of sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepCounters {
    /// Cells that fell asleep.
    pub sleeps: u64,
    /// Those of them that did because memory was short.
    pub pressure_sleeps: u64,
    /// Cells that woke up.
    pub wakes: u64,
    /// Cells to which an event came while they fell asleep, and which stayed awake.
    pub interrupted: u64,
    /// Cells that should have slept and stayed awake: their state does not allow it, or swap space was full or failed.
    pub refused: u64,
    /// Cells that ended because their memory could not be restored.
    pub restore_failures: u64,
}

/// The queues of cells that fall asleep and wake up.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// How long a cell idles before it falls asleep; `None`: it does so on request only.
    pub(super) sleep_after: Option<Duration>,
    /// Whether each idle cell falls asleep at once: for tests.
    pub(super) sleeps_when_idle: bool,
    /// Whether threads work through the queues. Otherwise the vCPUs do.
    pub(super) has_threads: bool,
    pub(super) counters: SleepCounters,
    /// Swap space is full or fails: it is not tried for want of memory before this time.
    pub(super) swap_retry_at: Nanos,
    /// When a cell last fell asleep because memory was short.
    pub(super) last_swap_out: Option<Nanos>,
    /// Number of cells that fall asleep because memory is short, those in the queue included.
    pub(super) swap_outs: usize,
    /// Number of cells whose records are being written, for whatever reason. They free memory soon.
    pub(super) leaving: usize,
    /// A search for an idle cell was not finished: the next housekeeping continues it.
    pub(super) is_search_unfinished: bool,
    /// Idle cells fall asleep while cells use more than this. `None`: while they use more than there is.
    pub(super) resident_limit: Option<PageCount>,
    /// The cell whose restore needs more memory than is free. Others wait until it is complete.
    pub(super) short_restore: Option<CellId>,
    /// Cells that wait until one of these has fallen asleep, or until another cell waits and can.
    pub(super) swap_out_waiters: Vec<CellId>,
    /// When the memory of cells that fell asleep goes back to the host. `None`: it has.
    pub(super) reclaim_due: Option<Nanos>,
    pub(super) idle: IdleQueue,
    swap_out_queue: VecDeque<CellId>,
    wakes: VecDeque<CellId>,
}

impl Sleepers {
    /// Empty queues.
    pub(super) fn new(sleep_after: Option<Duration>, sleeps_when_idle: bool) -> Sleepers {
        Sleepers { sleep_after, sleeps_when_idle, ..Sleepers::default() }
    }

    /// Whether idle cells fall asleep without a request.
    pub(super) fn is_automatic(&self) -> bool {
        self.sleeps_when_idle || self.sleep_after.is_some()
    }

    /// Queues an idle cell, which falls asleep when it has idled for its delay.
    pub(super) fn queue_idle(&mut self, id: CellId, idleness: &mut Idleness) {
        self.place_idle(id, idleness, IdleClass::Waiting, idleness.due(self.sleep_after));
    }

    /// Gives an idle cell a place in the queue; an earlier one is not valid any more.
    pub(super) fn place_idle(&mut self, id: CellId, idleness: &mut Idleness, class: IdleClass, at: Nanos) {
        let place = IdlePosition { class, at };
        idleness.place = Some(place);
        self.idle.push(id, place);
    }

    /// Takes the next entry of the queue of idle cells whose time has come, if cells fall asleep without a request.
    pub(super) fn pop_due_idle(&mut self, now: Nanos) -> Option<(CellId, IdlePosition)> {
        if self.is_automatic() { self.idle.pop_due(now) } else { None }
    }

    /// When the time of the next entry of that queue comes, if cells fall asleep without a request.
    pub(super) fn next_due(&self) -> Nanos {
        self.idle.next_due().filter(|_| self.is_automatic()).unwrap_or(Nanos::NEVER)
    }

    /// Queues an idle cell that falls asleep because memory is short.
    pub(super) fn queue_swap_out(&mut self, id: CellId) {
        self.swap_outs += 1;
        self.swap_out_queue.push_back(id);
    }

    /// Takes the next cell that falls asleep because memory is short.
    pub(super) fn pop_swap_out(&mut self) -> Option<CellId> {
        self.swap_out_queue.pop_front()
    }

    /// Whether a cell falls asleep, or is about to because memory is short.
    pub(super) fn is_any_swapping_out(&self) -> bool {
        self.swap_outs > 0 || self.leaving > 0
    }

    /// The same, for a caller that waits for it: only other threads make it happen.
    pub(super) fn does_another_thread_free_memory(&self) -> bool {
        self.leaving > 0 || (self.has_threads && self.swap_outs > 0)
    }

    /// Whether cells wait for the thread that puts them to sleep because memory is short.
    pub(super) fn has_swap_outs(&self) -> bool {
        !self.swap_out_queue.is_empty()
    }

    /// Queues a cell that should wake up.
    pub(super) fn queue_wake(&mut self, id: CellId) {
        self.wakes.push_back(id);
    }

    /// Takes the next cell that should wake up. `None` if memory is too short for another.
    pub(super) fn pop_wake(&mut self) -> Option<CellId> {
        if self.short_restore.is_some() { None } else { self.wakes.pop_front() }
    }

    /// Number of cells that should wake up.
    pub(super) fn wake_count(&self) -> usize {
        self.wakes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Idleness;
    use crate::limits::RECENT_WAKE;
    use pando_machine::Nanos;
    use std::time::Duration;

    #[test]
    fn a_cell_that_is_interrupted_repeatedly_is_tried_less_and_less_often() {
        let (mut idleness, now) = (Idleness::default(), Nanos(1_000_000_000));
        for interval in [0, 1, 3, 7] {
            idleness.note_interruption(now);
            assert!(idleness.spared_until(now).is_some());
            assert_eq!(idleness.retry_at, now + RECENT_WAKE * interval);
        }
        for _ in 0..100 {
            idleness.note_interruption(now);
        }
        assert_eq!(idleness.retry_at, now + RECENT_WAKE * 63);
        idleness.note_wake(now, Duration::from_secs(10), None);
        idleness.retry_at = now;
        idleness.note_interruption(now);
        assert_eq!(idleness.retry_at, now);
    }
}
