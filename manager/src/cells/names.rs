// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of cells: no two living cells of a manager have the same name.

use super::cell::ManagedCell;
use super::tasks::lock;
use super::{Manager, ManagerError};
use std::sync::Arc;

/// The name of a cell that is being started: nobody else gets it meanwhile.
pub(super) struct NameReservation {
    manager: Arc<Manager>,
    name: String,
}

impl NameReservation {
    /// Reserves a name.
    ///
    /// # Errors
    /// A living cell has it, or a cell that is being started.
    pub(super) fn new(manager: &Arc<Manager>, name: &str) -> Result<NameReservation, ManagerError> {
        let mut starting = lock(&manager.starting);
        let living = manager.lock().named(name).into_iter().find(|cell| !cell.has_ended());
        if let Some(cell) = living {
            return Err(ManagerError::NameInUse { name: name.into(), cell: Some(cell.id()) });
        }
        if !starting.insert(name.into()) {
            return Err(ManagerError::NameInUse { name: name.into(), cell: None });
        }
        Ok(NameReservation { manager: Arc::clone(manager), name: name.into() })
    }
}

impl Drop for NameReservation {
    fn drop(&mut self) {
        lock(&self.manager.starting).remove(&self.name);
    }
}

impl Manager {
    /// The cell of this number or name. Among cells of one name it is the living one, or the one that was started last.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, reference: &str) -> Result<Arc<ManagedCell>, ManagerError> {
        if let Ok(id) = reference.parse() {
            return self.cell(id);
        }
        let named = self.lock().named(reference);
        named.into_iter().max_by_key(|cell| (!cell.has_ended(), cell.id())).ok_or_else(|| ManagerError::NoSuchCell(reference.into()))
    }
}
