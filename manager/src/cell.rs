// SPDX-License-Identifier: MIT OR Apache-2.0
//! The specification of a cell, and an RAII guard for the cell. Every front end creates, starts and awaits its cells here.

use crate::limits::Limits;
use crate::time_limits::TimeLimits;
use pando_kernel::{CellId, ConsolePort, End, OperatorError, Outcome};
use pando_launch::{LaunchError, Operator, Program, Root};
use std::sync::Arc;

/// A cell to create.
#[derive(Clone, Debug, Default)]
pub struct CellSpec {
    /// The program. If the root is a template, the program runs already: its arguments and environment are those of the clone.
    pub program: Program,
    /// The limits; `program` has the memory limit.
    pub limits: Limits,
    /// The host name; `None`: the default.
    pub host_name: Option<String>,
}

/// A cell that is terminated when this is dropped; the drop waits for its end.
pub struct CellGuard {
    operator: Arc<dyn Operator>,
    cell: CellId,
    is_released: bool,
}

impl CellSpec {
    /// Creates the cell as a clone of a root. It does not run yet.
    ///
    /// # Errors
    /// There is not enough memory, or its arguments and environment are too long.
    pub fn create(&self, operator: Arc<dyn Operator>, root: &Root) -> Result<CellGuard, LaunchError> {
        let cell = self.program.prepare(&*operator, root)?;
        let guard = CellGuard { operator, cell, is_released: false };
        self.limits.apply(&*guard.operator, cell)?;
        if let Some(name) = &self.host_name {
            guard.operator.set_host_name(guard.cell, name)?;
        }
        Ok(guard)
    }
}

impl CellGuard {
    /// The cell.
    pub fn id(&self) -> CellId {
        self.cell
    }

    /// Its console.
    ///
    /// # Errors
    /// It has ended.
    pub fn console(&self) -> Result<Arc<ConsolePort>, LaunchError> {
        self.operator.console(self.cell)
    }

    /// Starts it. Its time limit begins when it may run: it may be queued before.
    ///
    /// # Errors
    /// It has ended.
    pub fn start(&self, limits: &Limits, time_limits: &TimeLimits) -> Result<(), LaunchError> {
        let Some(time) = limits.time else { return self.operator.start(self.cell) };
        let (cell, time_limits) = (self.cell, time_limits.clone());
        self.operator.start_with(cell, Some(Box::new(move || time_limits.limit_from_start(cell, time, End::TimedOut))))
    }

    /// Terminates it; it may have ended by itself.
    pub fn end(&self, end: End) {
        let _ = self.operator.end(self.cell, end);
    }

    /// Waits until it has ended, and returns its outcome.
    ///
    /// # Errors
    /// The outcome was taken already.
    pub fn wait(&self) -> Result<Outcome, LaunchError> {
        wait(&*self.operator, self.cell)
    }

    /// Releases the cell without terminating it.
    pub fn release(mut self) -> CellId {
        self.is_released = true;
        self.cell
    }
}

impl Drop for CellGuard {
    fn drop(&mut self) {
        if !self.is_released {
            // It may have ended, and its outcome may have been taken.
            let _ = self.operator.end(self.cell, End::Killed);
            let _ = self.operator.wait(self.cell);
        }
    }
}

/// Waits until a cell has ended, and returns its outcome. A cell that has frozen without a request is terminated.
///
/// # Errors
/// The outcome was taken already.
pub(crate) fn wait(operator: &dyn Operator, cell: CellId) -> Result<Outcome, LaunchError> {
    match operator.wait(cell) {
        Err(LaunchError::Kernel(OperatorError::Froze)) => {
            // Nothing else terminates it.
            let _ = operator.end(cell, End::Killed);
            operator.wait(cell)
        }
        ended => ended,
    }
}
