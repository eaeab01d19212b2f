// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of cells' output: from a position on, live, and with or without loss.

use super::cell::ManagedCell;
use super::read_positions::ReadPositions;
use super::spec::OutputPiece;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A client for which a cell waits: nothing after its position is dropped, even if the cell is started again.
pub struct Reader {
    positions: Arc<ReadPositions>,
    key: u64,
}

impl Reader {
    /// Adds a reader at this position.
    pub fn new(cell: &Arc<ManagedCell>, position: u64) -> Reader {
        let positions = Arc::clone(&cell.readers);
        let mut key = 0;
        positions.change(|all| {
            key = all.last_key_value().map_or(0, |(last, _)| last + 1);
            all.insert(key, position);
        });
        Reader { positions, key }
    }

    /// Moves to this position.
    pub fn advance(&self, position: u64) {
        self.positions.change(|all| _ = all.insert(self.key, position));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.positions.change(|all| _ = all.remove(&self.key));
    }
}

impl ManagedCell {
    /// A piece of output from a position on, or from the first that is kept. Waits for one if `waits`. `None`: there is none yet. The
    /// output of a cell that is started again continues: `cell` is that one then, so that those before it are freed.
    pub async fn piece(cell: &mut Arc<ManagedCell>, position: u64, waits: bool) -> Option<OutputPiece> {
        loop {
            if let ControlFlow::Break(piece) = cell.changed.wait_for(|| cell.own_piece(position, waits)).await {
                return piece;
            }
            if let Some(next) = cell.latest_successor() {
                *cell = next;
            }
        }
    }

    /// The answer of [`ManagedCell::piece`], or `Continue` if its successor (the cell that restarted it) has it. `None`: there is no
    /// answer yet.
    fn own_piece(&self, position: u64, waits: bool) -> Option<ControlFlow<Option<OutputPiece>>> {
        let state = self.lock();
        if state.successor.is_some() {
            return Some(ControlFlow::Continue(()));
        }
        if let Some((position, stream, bytes)) = state.log.get(position) {
            return Some(ControlFlow::Break(Some(OutputPiece::Bytes { position, stream, bytes })));
        }
        if let Some(outcome) = state.outcome.as_ref().filter(|_| !(waits && state.may_restart)) {
            return Some(ControlFlow::Break(Some(OutputPiece::Ended(outcome.clone()))));
        }
        (!waits).then_some(ControlFlow::Break(None))
    }

    /// Its latest successor: the cell that restarted it last. `None`: it was not restarted.
    fn latest_successor(&self) -> Option<Arc<ManagedCell>> {
        let mut last = self.lock().successor.clone()?;
        loop {
            let next = last.lock().successor.clone();
            match next {
                Some(next) => last = next,
                None => return Some(last),
            }
        }
    }

    /// The position of its last `lines` lines of output, or of the first that is kept.
    pub fn tail(&self, lines: u64) -> u64 {
        self.latest_successor().as_deref().unwrap_or(self).lock().log.tail(lines)
    }
}
