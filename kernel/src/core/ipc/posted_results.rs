// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of posted calls, which are written when their cell runs next.

use super::delivery::answer_bytes;
use crate::cell::CellId;
use crate::cell::child_operation::CallerBytes;
use crate::core::exits::NextStep;
use crate::core::state::State;
use crate::limits::IPC_RELEASE_STEP;
use crate::memory::{CopyAuthority, CopyError};

impl State {
    /// Writes the results of posted calls of a cell that is about to run.
    ///
    /// # Errors
    /// A step that comes first.
    pub(in crate::core) fn write_answers(&mut self, id: CellId) -> Result<(), NextStep> {
        let (live, frames) = self.expect_living(id);
        if let Some(CallerBytes { address, count }) = live.ipc.prefault_request.take().map(|wanted| *wanted) {
            // Without memory for it, the reply is refused later.
            let _ = live.cell.memory.prefault_for_writing(frames, address, count);
        }
        let mut written = 0;
        while let Some((address, answer)) = self.expect_living(id).0.ipc.answers.pop() {
            let (live, frames) = self.expect_living(id);
            if written == IPC_RELEASE_STEP {
                live.ipc.answers.push((address, answer));
                return Err(NextStep::Again);
            }
            written += 1;
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
