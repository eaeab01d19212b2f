// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends a cell that takes too long.

use pando_kernel::{CellId, End, Kernel};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Ends a cell when its time is up. Its thread runs from the start, because a confined process starts no thread.
#[derive(Clone)]
pub(crate) struct Watch {
    limits: mpsc::Sender<(Instant, End)>,
}

impl Watch {
    /// A watch over a cell that may take as long as it likes, until a limit is set.
    pub(crate) fn start(kernel: &Arc<Kernel>, cell: CellId) -> std::io::Result<Watch> {
        let (limits, orders) = mpsc::channel();
        let kernel = Arc::clone(kernel);
        let body = move || {
            if let Some(end) = wait(&orders) {
                // It may have ended this very moment.
                let _ = kernel.end(cell, end);
            }
        };
        std::thread::Builder::new().name("watch".into()).spawn(body)?;
        Ok(Watch { limits })
    }

    /// Ends the cell so, unless it has ended by itself in this time.
    pub(crate) fn limit(&self, time: Duration, end: End) {
        // What no clock will ever show is no limit.
        if let Some(moment) = Instant::now().checked_add(time) {
            // A watch whose thread has gone has ended the cell already.
            let _ = self.limits.send((moment, end));
        }
    }
}

/// Ends those of many cells that take longer than all of them may.
pub(crate) struct Limit {
    moments: mpsc::Sender<(Instant, CellId)>,
}

impl Limit {
    /// A limit that nobody has yet.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub(crate) fn start(kernel: &Arc<Kernel>) -> std::io::Result<Limit> {
        let (moments, orders) = mpsc::channel::<(Instant, CellId)>();
        let kernel = Arc::clone(kernel);
        // All may take as long, so who began first is due first.
        let body = move || {
            for (moment, cell) in orders {
                std::thread::sleep(moment.saturating_duration_since(Instant::now()));
                // Most have ended by themselves; a name is never given twice.
                let _ = kernel.end(cell, End::TimedOut);
            }
        };
        std::thread::Builder::new().name("limit".into()).spawn(body)?;
        Ok(Limit { moments })
    }

    /// Ends a cell unless it has ended by itself in this time, which is the same for all.
    pub(crate) fn set(&self, cell: CellId, time: Duration) {
        if let Some(moment) = Instant::now().checked_add(time) {
            // Its thread is there as long as this is.
            let _ = self.moments.send((moment, cell));
        }
    }
}

/// Waits until a limit is reached, the earliest if there are several. `None`: nobody can set one any more.
fn wait(orders: &mpsc::Receiver<(Instant, End)>) -> Option<End> {
    let (mut moment, mut end) = orders.recv().ok()?;
    loop {
        match orders.recv_timeout(moment.saturating_duration_since(Instant::now())) {
            Ok((earlier, other)) if earlier < moment => (moment, end) = (earlier, other),
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => return Some(end),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::wait;
    use pando_kernel::End;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn the_earliest_limit_counts() {
        let (limits, orders) = mpsc::channel();
        let now = Instant::now();
        for (after, end) in [(3600, End::Killed), (0, End::TimedOut), (1800, End::Quota)] {
            limits.send((now + Duration::from_secs(after), end)).expect("somebody listens");
        }
        assert_eq!(wait(&orders), Some(End::TimedOut));
    }

    #[test]
    fn without_a_limit_nobody_is_ended() {
        let (limits, orders) = mpsc::channel();
        drop(limits);
        assert_eq!(wait(&orders), None);
        let (limits, orders) = mpsc::channel();
        limits.send((Instant::now() + Duration::from_secs(3600), End::Killed)).expect("somebody listens");
        drop(limits);
        assert_eq!(wait(&orders), None);
    }
}
