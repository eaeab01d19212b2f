// SPDX-License-Identifier: MIT OR Apache-2.0
//! The idle timeout of a cell: it is terminated when nothing has been done in it or with it for some time.
//!
//! Input, output, requests for programs and files, a debugger, and programs that run besides the first one are use. So is CPU time beyond
//! 0.1 %: a program that only waits for time or for clients uses less.

use super::cell::ManagedCell;
use super::spec::EndReason;
use super::tasks::lock;
use pando_kernel::End;
use pando_launch::CellPhase;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Checks of a cell per timeout.
const CHECKS: u32 = 8;
/// The shortest time between two checks.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// A program that uses less than one part in this many of the CPU time idles.
const BUSY_DIVISOR: u32 = 1000;

/// The signs that a cell is used.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ActivityCounts {
    /// Bytes of input and output, and requests.
    count: u64,
    jobs: usize,
}

/// Terminates a cell that has not been used for this time; returns when it has ended.
pub(super) async fn watch(cell: Arc<ManagedCell>, timeout: Duration) {
    let interval = (timeout / CHECKS).max(INTERVAL_MIN);
    let (mut before, mut cpu, mut since, mut checked) = (usage(&cell), cell.cpu(), Instant::now(), Instant::now());
    loop {
        tokio::select! {
            _ = cell.wait_ended() => return,
            () = tokio::time::sleep(interval) => {}
        }
        let (now, used) = (usage(&cell), cell.cpu());
        let is_busy = cell.is_queued() || used.saturating_sub(cpu) > checked.elapsed() / BUSY_DIVISOR;
        (cpu, checked) = (used, Instant::now());
        if is_busy || now != before || now.jobs > 0 {
            (before, since) = (now, Instant::now());
        } else if since.elapsed() >= timeout {
            return cell.terminate(EndReason::TimedOut, End::TimedOut);
        }
    }
}

fn usage(cell: &ManagedCell) -> ActivityCounts {
    let count = cell.lock().log.written() + cell.uses.load(Ordering::Relaxed);
    // A debugger is one more program.
    ActivityCounts { count, jobs: lock(&cell.jobs).running() + usize::from(cell.is_debugged.load(Ordering::Relaxed)) }
}

impl ManagedCell {
    /// The time without use after which it is terminated.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        self.spec.idle_timeout
    }

    /// Whether it waits for its start.
    pub(super) fn is_queued(&self) -> bool {
        self.operator.usage(self.cell).is_some_and(|usage| usage.phase == CellPhase::Queued)
    }

    /// Its CPU time so far.
    fn cpu(&self) -> Duration {
        self.operator.usage(self.cell).map_or(Duration::ZERO, |usage| usage.cpu)
    }
}
