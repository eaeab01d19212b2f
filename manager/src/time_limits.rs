// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time limits of cells.

use pando_kernel::{CellId, End};
use pando_launch::Operator;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Terminates cells when their time limits expire. Its thread runs from the start, because a confined process cannot start any.
#[derive(Clone)]
pub struct TimeLimits {
    requests: Sender<LimitRequest<CellId>>,
}

/// A message to the thread.
enum LimitRequest<Cell> {
    /// Terminate a cell at this time, with this end.
    Limit(Instant, Cell, End),
    /// The same, in place of all limits that it has, and of one that begins at its start.
    Replace(Instant, Cell, End),
    /// The limit that begins at the start of a cell, unless it was replaced before.
    LimitFromStart(Instant, Cell, End),
    /// Remove a cell's limits.
    Lift(Cell),
}

impl TimeLimits {
    /// Starts the thread. Cells have no limit until one is set.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(operator: Arc<dyn Operator>) -> std::io::Result<TimeLimits> {
        let (requests, received) = mpsc::channel();
        let body = move || {
            watch(&received, &mut |cell, end| {
                // Most have ended by themselves; IDs are never reused.
                let _ = operator.end(cell, end);
            });
        };
        std::thread::Builder::new().name("watch".into()).spawn(body)?;
        Ok(TimeLimits { requests })
    }

    /// Terminates a cell after this time, unless it has ended. The earliest of several limits counts.
    pub fn limit(&self, cell: CellId, time: Duration, end: End) {
        // A time beyond the clock's range is no limit.
        if let Some(moment) = Instant::now().checked_add(time) {
            // The thread lives as long as this.
            let _ = self.requests.send(LimitRequest::Limit(moment, cell, end));
        }
    }

    /// Sets the limit of a cell that starts now, unless it has got another one while it was queued ([`TimeLimits::replace`]).
    pub fn limit_from_start(&self, cell: CellId, time: Duration, end: End) {
        if let Some(moment) = Instant::now().checked_add(time) {
            let _ = self.requests.send(LimitRequest::LimitFromStart(moment, cell, end));
        }
    }

    /// Terminates a cell after this time, in place of earlier limits. [`TimeLimits::lift`] must follow when it has ended.
    pub fn replace(&self, cell: CellId, time: Duration, end: End) {
        match Instant::now().checked_add(time) {
            Some(moment) => _ = self.requests.send(LimitRequest::Replace(moment, cell, end)),
            None => self.lift(cell),
        }
    }

    /// Removes a cell's limits.
    pub fn lift(&self, cell: CellId) {
        let _ = self.requests.send(LimitRequest::Lift(cell));
    }
}

/// Terminates cells as their limits expire, until all senders are dropped.
fn watch<Cell: Copy + Ord>(received: &Receiver<LimitRequest<Cell>>, end: &mut dyn FnMut(Cell, End)) {
    let mut limits: BTreeMap<(Instant, Cell), End> = BTreeMap::new();
    // The cells whose limit at the start was replaced.
    let mut replaced = BTreeSet::new();
    loop {
        let request = match limits.first_key_value() {
            None => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(((moment, _), _)) => received.recv_timeout(moment.saturating_duration_since(Instant::now())),
        };
        match request {
            Ok(LimitRequest::Limit(moment, cell, how)) => _ = limits.insert((moment, cell), how),
            Ok(LimitRequest::LimitFromStart(_, cell, _)) if replaced.contains(&cell) => {}
            Ok(LimitRequest::LimitFromStart(moment, cell, how)) => _ = limits.insert((moment, cell), how),
            Ok(LimitRequest::Replace(moment, cell, how)) => {
                limits.retain(|(_, limited), _| *limited != cell);
                limits.insert((moment, cell), how);
                replaced.insert(cell);
            }
            Ok(LimitRequest::Lift(cell)) => {
                limits.retain(|(_, limited), _| *limited != cell);
                replaced.remove(&cell);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(((_, cell), how)) = limits.pop_first() {
                    replaced.remove(&cell);
                    end(cell, how);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitRequest, watch};
    use pando_kernel::End;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// The cells that these orders end, and how, until cell `last` is ended or none is left.
    fn ended(orders: Vec<LimitRequest<u32>>, last: Option<u32>) -> Vec<(u32, End)> {
        let (sender, received) = mpsc::channel();
        orders.into_iter().for_each(|order| sender.send(order).expect("the receiver exists"));
        let mut sender = Some(sender).filter(|_| last.is_some());
        let mut all = Vec::new();
        watch(&received, &mut |cell, end| {
            all.push((cell, end));
            sender.take_if(|_| Some(cell) == last);
        });
        all
    }

    #[test]
    fn the_earliest_limit_expires_first_and_a_lifted_one_never() {
        let now = Instant::now();
        let limit = |milliseconds, cell, end| LimitRequest::Limit(now + Duration::from_millis(milliseconds), cell, end);
        let orders = vec![
            limit(20, 1, End::TimedOut),
            limit(3_600_000, 2, End::Killed),
            limit(0, 2, End::Quota),
            limit(10, 3, End::Killed),
            LimitRequest::Lift(3),
        ];
        assert_eq!(ended(orders, Some(1)), [(2, End::Quota), (1, End::TimedOut)]);
    }

    #[test]
    fn a_limit_that_was_set_before_the_start_counts() {
        let now = Instant::now();
        let at = |milliseconds| now + Duration::from_millis(milliseconds);
        let orders = vec![
            LimitRequest::Replace(at(20), 1, End::Quota),
            LimitRequest::LimitFromStart(at(0), 1, End::TimedOut),
            LimitRequest::LimitFromStart(at(10), 2, End::TimedOut),
            LimitRequest::LimitFromStart(at(0), 3, End::TimedOut),
            LimitRequest::Replace(at(30), 3, End::Killed),
        ];
        assert_eq!(ended(orders, Some(3)), [(2, End::TimedOut), (1, End::Quota), (3, End::Killed)]);
    }

    #[test]
    fn without_a_limit_no_cell_is_ended() {
        assert_eq!(ended(Vec::new(), None), []);
        assert_eq!(ended(vec![LimitRequest::Limit(Instant::now() + Duration::from_secs(3600), 1, End::Killed)], None), []);
    }
}
