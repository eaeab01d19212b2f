// SPDX-License-Identifier: MIT OR Apache-2.0
//! The quarantine: retired tables whose frames are unused until the machine has flushed (rule 3 of the page-table discipline).

use super::frame_table::Frames;
use crate::memory::rules::OmittedRules;
use pando_machine::{FrameId, HostError};

impl Frames {
    /// Retires a table without holders: it stays charged, and its frame unused, until the machine has flushed.
    pub(in crate::memory) fn retire(&mut self, table: FrameId) {
        self.clear_holders(table);
        let payer = self.payer(table);
        self.accounts.note_retired(payer);
        if self.rules().omits(OmittedRules::WITHOUT_QUARANTINE) {
            self.accounts.note_flushed(payer);
            return self.free_frame(table);
        }
        self.quarantine.push(table);
    }

    /// Number of tables that wait for a flush.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.quarantine.len()
    }

    /// Number of tables made since the last flush began: the machine may have cached each of them.
    #[must_use]
    pub fn tables_since_flush(&self) -> usize {
        self.tables_since_flush
    }

    /// Takes out the retired tables. The caller flushes the machine without the lock, and then calls [`Frames::end_flush`].
    #[must_use]
    pub fn begin_flush(&mut self) -> Vec<FrameId> {
        self.tables_since_flush = 0;
        std::mem::take(&mut self.quarantine)
    }

    /// Frees tables that were retired before the machine's flush, or keeps them if it failed.
    pub fn end_flush(&mut self, tables: Vec<FrameId>, outcome: &Result<(), HostError>) {
        if outcome.is_err() {
            self.quarantine.extend(tables);
            return;
        }
        for table in tables {
            self.accounts.note_flushed(self.payer(table));
            self.free_frame(table);
        }
    }
}
