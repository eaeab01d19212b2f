// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restarts of cells that have ended, by their policies. A restarted cell takes the place of the ended one: it has its name and its number,
//! and its output continues.

use super::log::Log;
use super::origin::CellOrigin;
use super::spec::{CellSignal, EndReason, ManagedCellSpec};
use super::{ManagedCell, Manager};
use crate::report::Warning;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The delay before the first restart. Each further one takes twice as long.
const DELAY_MIN: Duration = Duration::from_millis(100);
/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// A cell that ran for this time is started again after the shortest delay.
const UPTIME_MIN: Duration = Duration::from_secs(10);

/// Restarts a cell by its policy until a client ends or removes it. `spec` and `origin` are those of the cell, as it was requested: a
/// restarted cell has the same image and the same version of the template.
pub(super) async fn supervise(manager: Arc<Manager>, mut cell: Arc<ManagedCell>, spec: ManagedCellSpec, origin: CellOrigin) {
    // Its input came from a client that is gone.
    let mut spec = ManagedCellSpec { name: Some(cell.name()), input_ends: true, ..spec };
    let mut delay = DELAY_MIN;
    loop {
        let outcome = cell.wait_ended().await;
        // It lives on as a template, or was ended by a client.
        let is_over = matches!(outcome.reason, EndReason::Killed | EndReason::Frozen);
        if is_over || !spec.restart.should_restart(outcome.exit_status, spec.restarts) {
            return cell.end_restarts(&manager);
        }
        spec.restarts = spec.restarts.saturating_add(1);
        if outcome.time >= UPTIME_MIN {
            delay = DELAY_MIN;
        }
        let started = loop {
            tokio::select! {
                () = sleep(delay) => {}
                // It may be stopped or removed meanwhile.
                () = cell.wait_stopped() => {}
            }
            delay = (delay * 2).min(DELAY_MAX);
            if cell.is_stopped() {
                return cell.end_restarts(&manager);
            }
            match manager.start_again(&cell, spec.clone(), &origin).await {
                Ok(started) => break started,
                Err(error) => manager.environment().reporter.warn(Warning::NotRestarted { cell: cell.name(), reason: error.to_string() }),
            }
        };
        if cell.is_removed() {
            // It was removed during the start. Dropping the new cell ends and removes that.
            return started.cell.end_restarts(&manager);
        }
        let is_stopped = cell.is_stopped();
        cell = started.release();
        if is_stopped {
            cell.signal(CellSignal::Kill);
        }
    }
}

impl Drop for ManagedCell {
    fn drop(&mut self) {
        let successor = self.lock().successor.take();
        unlink(successor, |cell| cell.lock().successor.take());
    }
}

/// Drops a chain of values, each of which has the next, one after the other: a long one would overflow the stack. Stops at one that is
/// used elsewhere.
fn unlink<T>(first: Option<Arc<T>>, next: impl Fn(&T) -> Option<Arc<T>>) {
    let mut link = first.and_then(Arc::into_inner);
    while let Some(value) = link {
        link = next(&value).and_then(Arc::into_inner);
    }
}

impl ManagedCell {
    /// Sends it a signal that ends it, terminates it if it has not ended after this time, and waits until it has ended. If it was started
    /// again meanwhile, the new cell is ended like this, too.
    pub async fn end_by(self: Arc<ManagedCell>, signal: CellSignal, time: Option<Duration>) {
        let mut cell = self;
        loop {
            cell.signal(signal);
            if let Some(time) = time
                && timeout(time, cell.wait_ended()).await.is_err()
            {
                cell.signal(CellSignal::Kill);
            }
            cell.wait_ended().await;
            match cell.restarted_or_over().await {
                Some(next) => cell = next,
                None => return,
            }
        }
    }

    /// Its successor: the cell that restarts it. Waits until that is decided. `None`: it was not, or a client has removed it.
    async fn restarted_or_over(&self) -> Option<Arc<ManagedCell>> {
        let decided = || {
            if self.is_removed() {
                return Some(None);
            }
            let state = self.lock();
            (state.successor.is_some() || !state.may_restart).then(|| state.successor.clone())
        };
        self.changed.wait_for(decided).await
    }

    /// Whether it may be started again.
    pub(super) fn may_restart(&self) -> bool {
        self.lock().may_restart
    }

    /// Records that it is not started again: its readers get its end.
    pub(super) fn end_restarts(self: &Arc<ManagedCell>, manager: &Manager) {
        self.lock().may_restart = false;
        if self.has_ended() {
            manager.note_end(self);
        }
        self.changed.notify();
    }

    /// Records its successor: its readers continue with that cell.
    pub(super) fn set_successor(&self, successor: &Arc<ManagedCell>) {
        self.lock().successor = Some(Arc::clone(successor));
        self.changed.notify();
    }

    /// Its output, for its successor.
    pub(super) fn take_log(&self) -> Log {
        let mut state = self.lock();
        let empty = state.log.empty_copy();
        std::mem::replace(&mut state.log, empty)
    }
}

#[cfg(test)]
mod tests {
    use super::unlink;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Link(Mutex<Option<Arc<Link>>>);

    impl Link {
        fn take(&self) -> Option<Arc<Link>> {
            self.0.lock().expect("no thread panics with it").take()
        }
    }

    impl Drop for Link {
        fn drop(&mut self) {
            unlink(self.take(), Link::take);
        }
    }

    #[test]
    fn a_long_chain_of_restarts_is_dropped_without_recursion() {
        let last = Arc::new(Link::default());
        let first = (0..1_000_000).fold(Arc::clone(&last), |next, _| Arc::new(Link(Mutex::new(Some(next)))));
        drop(first);
        assert_eq!(Arc::strong_count(&last), 1);
        // A link that is used elsewhere keeps those after it.
        let second = Arc::new(Link(Mutex::new(Some(Arc::clone(&last)))));
        drop(Link(Mutex::new(Some(Arc::clone(&second)))));
        assert_eq!(Arc::strong_count(&last), 2);
    }
}
