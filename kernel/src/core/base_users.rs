// SPDX-License-Identifier: MIT OR Apache-2.0
//! The base that each cell refers to, and the base for the clones of a cell.

use super::cell_table::LiveCell;
use super::state::State;
use crate::cell::CellId;
use crate::cell::run_state::RunState;

impl State {
    /// Sets the base of a new clone: the source's memory. If the source may run again, only this clone uses that base. If the source cloned
    /// itself, the clone gets the source's base, because such clones do not sleep.
    pub(super) fn set_base(&mut self, source: CellId, clone: CellId) {
        if self.swap.is_none() {
            return;
        }
        let State { cells, frames, bases, .. } = self;
        let Some(LiveCell { cell, execution, base, clone_base, .. }) = cells.get_mut(source) else { return };
        let id = match execution.run_state() {
            RunState::Frozen | RunState::New => Some(*clone_base.get_or_insert_with(|| bases.add(&mut cell.memory, frames))),
            RunState::Idle { .. } => {
                let id = bases.add(&mut cell.memory, frames);
                cells.get_mut(clone).expect("it was just made").base = Some(id);
                return;
            }
            _ => *base,
        };
        if let Some(id) = id
            && let Some(live) = cells.get_mut(clone)
        {
            bases.hold(id);
            live.base = Some(id);
        }
    }

    /// Releases the base for clones of a cell whose memory changes from now on.
    pub(super) fn forget_own_base(&mut self, id: CellId) {
        if let Some(base) = self.cells.get_mut(id).and_then(|live| live.clone_base.take()) {
            self.bases.release(base, &mut self.frames);
        }
    }
}
