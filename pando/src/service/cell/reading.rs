// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of cells' output: from a position on, live, and with or without loss.

use super::Cell;
use crate::api;
use crate::service::streams::{ClientGone, Outgoing};
use std::sync::Arc;

/// A client for which a cell waits: nothing after its position is dropped.
pub(in crate::service) struct Reader {
    cell: Arc<Cell>,
    key: u64,
}

impl Reader {
    /// Adds a reader at this position.
    pub(in crate::service) fn new(cell: &Arc<Cell>, position: u64) -> Reader {
        let mut state = cell.lock();
        let key = state.waiters.last_key_value().map_or(0, |(last, _)| last + 1);
        state.waiters.insert(key, position);
        drop(state);
        Reader { cell: Arc::clone(cell), key }
    }

    /// Moves to this position.
    fn go_on(&self, position: u64) {
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

impl Cell {
    /// A piece of output from a position on, or from the first that is kept. Waits for one if `patient`. `None`: there is none yet.
    async fn piece(&self, position: u64, patient: bool) -> Option<api::Piece> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let state = self.lock();
                if let Some((number, stream, bytes)) = state.log.get(position) {
                    let next = number + bytes.len() as u64;
                    return Some(api::Piece::Said { number, next, stream: stream.into(), data: api::TextOrBytes::of(bytes) });
                }
                if let Some(outcome) = &state.outcome {
                    return Some(api::Piece::Ended { outcome: outcome.clone() });
                }
            }
            if !patient {
                return None;
            }
            let _ = changed.changed().await;
        }
    }

    /// Sends its output to a client from a position on. If `patient`, until it has ended, and returns the end; otherwise until
    /// there is no more.
    ///
    /// # Errors
    /// The client has disconnected.
    pub(in crate::service) async fn tell(
        &self,
        from: u64,
        patient: bool,
        reader: Option<Reader>,
        outgoing: &mut Outgoing,
    ) -> Result<Option<api::Piece>, ClientGone> {
        let mut position = from;
        while let Some(piece) = outgoing.unless_gone(self.piece(position, patient)).await? {
            let api::Piece::Said { next, .. } = &piece else { return Ok(Some(piece)) };
            position = *next;
            if let Some(reader) = &reader {
                reader.go_on(position);
            }
            outgoing.line(&piece).await?;
        }
        Ok(None)
    }
}
