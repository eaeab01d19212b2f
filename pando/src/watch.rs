// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends cells that take too long.

use pando_kernel::{CellId, End, Kernel};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Ends cells when their time is up. Its thread runs from the start, because a confined process starts no thread.
#[derive(Clone)]
pub(crate) struct Watch {
    orders: Sender<Order<CellId>>,
}

/// What the thread is told.
enum Order<Cell> {
    /// A cell may go on until then, and ends so.
    Limit(Instant, Cell, End),
    /// A cell may take as long as it likes.
    Lift(Cell),
}

impl Watch {
    /// A watch over cells that may take as long as they like, until a limit is set.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub(crate) fn start(kernel: &Arc<Kernel>) -> std::io::Result<Watch> {
        let (orders, told) = mpsc::channel();
        let kernel = Arc::clone(kernel);
        let body = move || {
            watch(&told, &mut |cell, end| {
                // Most have ended by themselves; a name is never given twice.
                let _ = kernel.end(cell, end);
            });
        };
        std::thread::Builder::new().name("watch".into()).spawn(body)?;
        Ok(Watch { orders })
    }

    /// Ends a cell so, unless it has ended by itself in this time. The earliest of several limits counts.
    pub(crate) fn limit(&self, cell: CellId, time: Duration, end: End) {
        // What no clock will ever show is no limit.
        if let Some(moment) = Instant::now().checked_add(time) {
            // The thread is there as long as this is.
            let _ = self.orders.send(Order::Limit(moment, cell, end));
        }
    }

    /// Lets a cell take as long as it likes.
    pub(crate) fn lift(&self, cell: CellId) {
        let _ = self.orders.send(Order::Lift(cell));
    }
}

/// Ends cells as their moments come, until nobody can set one any more.
fn watch<Cell: Copy + Ord>(told: &Receiver<Order<Cell>>, end: &mut dyn FnMut(Cell, End)) {
    let mut limits: BTreeMap<(Instant, Cell), End> = BTreeMap::new();
    loop {
        let order = match limits.first_key_value() {
            None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(((moment, _), _)) => told.recv_timeout(moment.saturating_duration_since(Instant::now())),
        };
        match order {
            Ok(Order::Limit(moment, cell, how)) => _ = limits.insert((moment, cell), how),
            Ok(Order::Lift(cell)) => limits.retain(|(_, limited), _| *limited != cell),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(((_, cell), how)) = limits.pop_first() {
                    end(cell, how);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, watch};
    use pando_kernel::End;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Who is ended by these orders, and how, until somebody is ended `last` or nobody can be any more.
    fn ended(orders: Vec<Order<u32>>, last: Option<u32>) -> Vec<(u32, End)> {
        let (sender, told) = mpsc::channel();
        orders.into_iter().for_each(|order| sender.send(order).expect("somebody listens"));
        let mut sender = Some(sender).filter(|_| last.is_some());
        let mut all = Vec::new();
        watch(&told, &mut |cell, end| {
            all.push((cell, end));
            sender.take_if(|_| Some(cell) == last);
        });
        all
    }

    #[test]
    fn who_is_due_first_is_ended_first_and_whose_limit_was_lifted_never() {
        let now = Instant::now();
        let limit = |milliseconds, cell, end| Order::Limit(now + Duration::from_millis(milliseconds), cell, end);
        let orders = vec![
            limit(20, 1, End::TimedOut),
            limit(3_600_000, 2, End::Killed),
            limit(0, 2, End::Quota),
            limit(10, 3, End::Killed),
            Order::Lift(3),
        ];
        assert_eq!(ended(orders, Some(1)), [(2, End::Quota), (1, End::TimedOut)]);
    }

    #[test]
    fn without_a_limit_nobody_is_ended() {
        assert_eq!(ended(Vec::new(), None), []);
        assert_eq!(ended(vec![Order::Limit(Instant::now() + Duration::from_secs(3600), 1, End::Killed)], None), []);
    }
}
