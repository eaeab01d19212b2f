// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates and copies of running cells.

use super::ManagerError;
use super::cell::ManagedCell;
use super::origin::CellOrigin;
use super::pool::NameLock;
use super::restart_policy::RestartPolicy;
use super::spec::{EndReason, ManagedCellSpec};
use super::tasks::blocking;
use crate::limits::Limits;
use crate::root::RootGuard;
use crate::template::TemplateName;
use pando_gateway::Publication;
use pando_kernel::End;
use pando_launch::Root;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// How long a cell may take to reach a point at which it can be frozen.
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// The time between attempts to copy a cell that runs.
const FORK_INTERVAL: Duration = Duration::from_millis(1);

impl ManagedCell {
    /// Creates a template from it, holding the locks in `held`: the cell never runs again. Its program is asked to freeze and gets some
    /// time, or is stopped at once with `by_force`.
    ///
    /// # Errors
    /// It has ended, does not reach a point at which it can be frozen, or cannot be stored.
    pub(super) async fn freeze(
        self: Arc<ManagedCell>,
        name: TemplateName,
        held: (NameLock, OwnedSemaphorePermit),
        by_force: bool,
    ) -> Result<(), ManagerError> {
        let freezing = Arc::clone(&self.freezing).lock_owned().await;
        blocking(move || {
            // Held to the end, even if the client disconnects.
            let _locks = (freezing, held);
            self.create_template(&name, by_force)
        })
        .await
    }

    fn create_template(&self, name: &TemplateName, by_force: bool) -> Result<(), ManagerError> {
        let ManagedCell { operator, cell, id, .. } = self;
        let ended = || ManagerError::Ended { cell: *id, action: "freeze" };
        let origin = self.lock().resources.as_ref().map(|resources| resources.origin.clone()).ok_or_else(ended)?;
        // From the next step on, the cell cannot continue.
        self.pool.check_can_be_kept(&origin)?;
        operator.freeze(*cell, by_force).map_err(|_| ended())?;
        if !operator.wait_frozen(*cell, Some(FREEZE_MAX))? && operator.withdraw_freeze(*cell)? {
            return Err(ManagerError::NotFrozen { cell: *id, seconds: FREEZE_MAX.as_secs() });
        }
        operator.wait_frozen(*cell, None)?;
        let stored = self.pool.keep_clone(&origin, *cell, name, by_force);
        self.lock().cause.get_or_insert(if stored.is_ok() { EndReason::Frozen } else { EndReason::Killed });
        // The cell does not continue, whether it was stored or not.
        let _ = operator.end(*cell, End::Killed);
        stored
    }

    /// Copies it while it runs, at a moment at which it waits. Returns the specification of clones of the copy, which have the same limits
    /// and arguments, and the copy as their origin. May block.
    ///
    /// # Errors
    /// It has ended, its programs do not pause, or there is not enough memory.
    pub(super) fn copy(&self) -> Result<(ManagedCellSpec, CellOrigin), ManagerError> {
        let ManagedCell { operator, cell, id, .. } = self;
        let ended = || ManagerError::Ended { cell: *id, action: "fork" };
        let origin = self.lock().resources.as_ref().map(|resources| resources.origin.clone()).ok_or_else(ended)?;
        let give_up = Instant::now() + FREEZE_MAX;
        let copy = loop {
            match operator.clone_cell(*cell, origin.memory(), None) {
                Ok(copy) => break copy,
                Err(_) if operator.usage(*cell).is_none() => return Err(ended()),
                Err(error) if !error.is_wrong_state() => return Err(error.into()),
                Err(_) if Instant::now() > give_up => return Err(ManagerError::NotIdle { cell: *id, seconds: FREEZE_MAX.as_secs() }),
                Err(_) => std::thread::sleep(FORK_INTERVAL),
            }
        };
        let root = RootGuard::new(Arc::clone(operator), Root::loaded(copy, Vec::new(), Vec::new()));
        operator.set_prefetch_from_writes(*cell, copy);
        let spec = ManagedCellSpec {
            // No two living cells have the same name, and no two have the same port of the host.
            name: None,
            host_name: None,
            publish: self.spec.publish.iter().filter(|published| matches!(published, Publication::ByName(_))).copied().collect(),
            // The present limit, from the start of each copy on.
            limits: Limits { time: self.lock().time_limit, ..self.spec.limits },
            ..self.spec.clone()
        };
        let spec = ManagedCellSpec { input: Vec::new(), input_ends: false, is_read_completely: false, ..spec };
        let spec = ManagedCellSpec { restart: RestartPolicy::No, restarts: 0, ..spec };
        Ok((spec, origin.copy(root)))
    }
}
