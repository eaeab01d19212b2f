// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of posted calls, which are written when their cell runs next.

use super::delivery::answer_bytes;
use crate::cell::CellId;
use crate::core::exits::NextStep;
use crate::core::state::State;
use crate::memory::{CopyAuthority, CopyError};

impl State {
    /// Writes the results of posted calls of a cell that is about to run.
    ///
    /// # Errors
    /// A step that comes first.
    pub(in crate::core) fn write_answers(&mut self, id: CellId) -> Result<(), NextStep> {
        while let Some((address, answer)) = self.running(id).0.ipc.answers.pop() {
            let (live, frames) = self.running(id);
            match live.cell.memory.write(frames, address, &answer_bytes(&answer), CopyAuthority::Cell) {
                // The cell has taken away its own record.
                Ok(()) | Err(CopyError::Refused | CopyError::Unreadable) => {}
                Err(error @ (CopyError::Shortage(_) | CopyError::Absent(_) | CopyError::Taken(_))) => {
                    live.ipc.answers.push((address, answer));
                    return Err(self.after_failed_copy(id, error));
                }
            }
        }
        Ok(())
    }
}
