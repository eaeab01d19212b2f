// SPDX-License-Identifier: MIT OR Apache-2.0
//! Those who read what cells say: from a piece on, as it comes, and some of them all of it.

use super::Cell;
use crate::api;
use crate::service::streams::{Gone, Outgoing};
use std::sync::Arc;

/// Somebody for whom a cell waits: from the number on that was told last, nothing is forgotten.
pub(in crate::service) struct Reader {
    cell: Arc<Cell>,
    key: u64,
}

impl Reader {
    /// Reads from this number on.
    pub(in crate::service) fn new(cell: &Arc<Cell>, number: u64) -> Reader {
        let mut state = cell.lock();
        let key = state.waiters.last_key_value().map_or(0, |(last, _)| last + 1);
        state.waiters.insert(key, number);
        drop(state);
        Reader { cell: Arc::clone(cell), key }
    }

    /// Goes on to this number.
    fn go_on(&self, number: u64) {
        let mut state = self.cell.lock();
        let was_full = state.waiters.insert(self.key, number).is_some_and(|before| state.log.is_full_from(before));
        drop(state);
        if was_full {
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
    /// The piece of this number of what it says, or the next that is remembered; waits for it if it is `patient`. `None`: there is none yet.
    async fn piece(&self, number: u64, patient: bool) -> Option<api::Piece> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let mut state = self.lock();
                if let Some((number, stream, bytes)) = state.log.get(number) {
                    return Some(api::Piece::Said { number, stream: stream.into(), data: api::Text::of(bytes) });
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

    /// Says what it says, from a number on, until it has ended, which is returned; or, to who is not `patient`, until there is no more.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub(in crate::service) async fn tell(
        &self,
        from: u64,
        patient: bool,
        reader: Option<Reader>,
        outgoing: &mut Outgoing,
    ) -> Result<Option<api::Piece>, Gone> {
        let mut number = from;
        while let Some(piece) = outgoing.unless_gone(self.piece(number, patient)).await? {
            let api::Piece::Said { number: said, .. } = &piece else { return Ok(Some(piece)) };
            number = said + 1;
            if let Some(reader) = &reader {
                reader.go_on(number);
            }
            outgoing.line(&piece).await?;
        }
        Ok(None)
    }
}
