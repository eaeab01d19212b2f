// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of cells' output: from a position on, live, and with or without loss.

use super::cell::ManagedCell;
use super::spec::OutputPiece;
use std::sync::Arc;

/// A client for which a cell waits: nothing after its position is dropped.
pub struct Reader {
    cell: Arc<ManagedCell>,
    key: u64,
}

impl Reader {
    /// Adds a reader at this position.
    pub fn new(cell: &Arc<ManagedCell>, position: u64) -> Reader {
        let mut state = cell.lock();
        let key = state.waiters.last_key_value().map_or(0, |(last, _)| last + 1);
        state.waiters.insert(key, position);
        drop(state);
        Reader { cell: Arc::clone(cell), key }
    }

    /// Moves to this position.
    pub fn advance(&self, position: u64) {
        let mut state = self.cell.lock();
        state.waiters.insert(self.key, position);
        let is_awaited = state.is_waiting;
        drop(state);
        if is_awaited {
            self.cell.changed.send_replace(());
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cell.lock().waiters.remove(&self.key);
        self.cell.changed.send_replace(());
    }
}

impl ManagedCell {
    /// A piece of output from a position on, or from the first that is kept. Waits for one if `waits`. `None`: there is none yet.
    pub async fn piece(&self, position: u64, waits: bool) -> Option<OutputPiece> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let state = self.lock();
                if let Some((position, stream, bytes)) = state.log.get(position) {
                    return Some(OutputPiece::Bytes { position, stream, bytes });
                }
                if let Some(outcome) = &state.outcome {
                    return Some(OutputPiece::Ended(outcome.clone()));
                }
            }
            if !waits {
                return None;
            }
            let _ = changed.changed().await;
        }
    }
}
