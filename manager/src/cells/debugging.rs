// SPDX-License-Identifier: MIT OR Apache-2.0
//! The right to debug a cell of the manager: one at a time has it.

use super::ManagerError;
use super::cell::ManagedCell;
use super::spec::CellSignal;
use pando_kernel::CellId;
use pando_launch::Operator;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The reason for a refusal.
const DEBUGGED: &str = "a debugger is attached to it: detach that one first";

/// A cell that is being debugged, until this is dropped. Then it runs, unwatched.
pub struct DebuggedCell(Arc<ManagedCell>);

impl DebuggedCell {
    /// The operator that runs it.
    #[must_use]
    pub fn operator(&self) -> &dyn Operator {
        &*self.0.operator
    }

    /// Terminates it, as a request to kill it does.
    pub fn kill(&self) {
        self.0.signal(CellSignal::Kill);
    }

    /// The identifier by which the operator knows it.
    #[must_use]
    pub fn id(&self) -> CellId {
        self.0.cell
    }
}

impl Drop for DebuggedCell {
    fn drop(&mut self) {
        self.operator().unwatch(self.id());
        self.0.is_debugged.store(false, Ordering::Release);
    }
}

impl ManagedCell {
    /// Begins to debug it.
    ///
    /// # Errors
    /// It has ended, it is queued for its start, or it is being debugged.
    pub fn debug(self: &Arc<ManagedCell>) -> Result<DebuggedCell, ManagerError> {
        self.uses.fetch_add(1, Ordering::Relaxed);
        if self.has_ended() {
            return Err(ManagerError::Ended { cell: self.id(), action: "debug" });
        }
        if self.is_queued() {
            let reason = "it is queued for its start: wait until it runs, or admit it (`pando wake`)";
            return Err(ManagerError::NotPossible { action: "debug", cell: self.id(), reason });
        }
        if self.is_debugged.swap(true, Ordering::Acquire) {
            return Err(ManagerError::NotPossible { action: "debug", cell: self.id(), reason: DEBUGGED });
        }
        Ok(DebuggedCell(Arc::clone(self)))
    }

    /// Refuses what a debugger would prevent: the cell may be halted.
    ///
    /// # Errors
    /// It is being debugged.
    pub(super) fn refuse_if_debugged(&self, action: &'static str) -> Result<(), ManagerError> {
        match self.is_debugged.load(Ordering::Relaxed) {
            true => Err(ManagerError::NotPossible { action, cell: self.id(), reason: DEBUGGED }),
            false => Ok(()),
        }
    }
}
