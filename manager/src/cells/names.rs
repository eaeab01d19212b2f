// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of cells: no two living cells of a manager have the same name, or names that differ in case only, as host names do not.

use super::cell::ManagedCell;
use super::cell_number::cell_number;
use super::tasks::lock;
use super::{Manager, ManagerError};
use std::sync::Arc;

/// The name of a cell that is being started: nobody else gets it meanwhile.
pub(super) struct NameReservation {
    manager: Arc<Manager>,
    key: String,
}

impl NameReservation {
    /// Reserves a name for a new cell, or for the ended cell `own`, which is started again.
    ///
    /// # Errors
    /// A living cell has it, one that may be started again, or one that is being started.
    pub(super) fn new(manager: &Arc<Manager>, name: &str, own: Option<u64>) -> Result<NameReservation, ManagerError> {
        let mut starting = lock(&manager.starting);
        let has_it = |cell: &Arc<ManagedCell>| !cell.has_ended() || cell.may_restart() && Some(cell.id()) != own;
        let living = manager.lock().named_in_any_case(name).into_iter().find(has_it);
        if let Some(cell) = living {
            return Err(ManagerError::NameInUse { name: name.into(), cell: Some(cell.id()) });
        }
        let key = name.to_ascii_lowercase();
        if !starting.insert(key.clone()) {
            return Err(ManagerError::NameInUse { name: name.into(), cell: None });
        }
        Ok(NameReservation { manager: Arc::clone(manager), key })
    }
}

impl Drop for NameReservation {
    fn drop(&mut self) {
        lock(&self.manager.starting).remove(&self.key);
    }
}

impl Manager {
    /// The cell of this number or name. Among cells of one name it is the living one, or the one that was started last.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, reference: &str) -> Result<Arc<ManagedCell>, ManagerError> {
        self.find_among(reference, |_| true)
    }

    /// The same among those cells that `is_wanted` chooses, as if there were no others.
    ///
    /// # Errors
    /// There is none.
    pub fn find_among(&self, reference: &str, is_wanted: impl Fn(&ManagedCell) -> bool) -> Result<Arc<ManagedCell>, ManagerError> {
        let unknown = || ManagerError::NoSuchCell(reference.into());
        if let Some(id) = cell_number(reference) {
            return self.cell(id).ok().filter(|cell| is_wanted(cell)).ok_or_else(unknown);
        }
        let named = self.lock().named(reference).into_iter().filter(|cell| is_wanted(cell));
        named.max_by_key(|cell| (!cell.has_ended(), cell.id())).ok_or_else(unknown)
    }
}
