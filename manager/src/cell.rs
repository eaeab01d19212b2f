// SPDX-License-Identifier: MIT OR Apache-2.0
//! The specification of a cell, and an RAII guard for the cell. Every front end creates, starts and awaits its cells here.

use crate::limits::Limits;
use crate::time_limits::TimeLimits;
use pando_kernel::{CellId, ConsolePort, End, Kernel, OperatorError, Outcome};
use pando_launch::{LaunchError, Program, Root};
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
    kernel: Arc<Kernel>,
    cell: CellId,
    is_released: bool,
}

impl CellSpec {
    /// Creates the cell as a clone of a root. It does not run yet.
    ///
    /// # Errors
    /// There is not enough memory, or its arguments and environment are too long.
    pub fn create(&self, kernel: &Arc<Kernel>, root: &Root) -> Result<CellGuard, LaunchError> {
        let guard = CellGuard::new(kernel, self.program.prepare(kernel, root)?);
        self.limits.apply(kernel, guard.cell)?;
        if let Some(name) = &self.host_name {
            kernel.set_host_name(guard.cell, name)?;
        }
        Ok(guard)
    }
}

impl CellGuard {
    /// Guards a cell.
    pub(crate) fn new(kernel: &Arc<Kernel>, cell: CellId) -> CellGuard {
        CellGuard { kernel: Arc::clone(kernel), cell, is_released: false }
    }

    /// The cell.
    pub fn id(&self) -> CellId {
        self.cell
    }

    /// Its console.
    ///
    /// # Errors
    /// It has ended.
    pub fn console(&self) -> Result<Arc<ConsolePort>, LaunchError> {
        Ok(self.kernel.console(self.cell)?)
    }

    /// Starts it, and its time limit.
    ///
    /// # Errors
    /// It has ended.
    pub fn start(&self, limits: &Limits, time_limits: &TimeLimits) -> Result<(), LaunchError> {
        self.kernel.start(self.cell)?;
        if let Some(time) = limits.time {
            time_limits.limit(self.cell, time, End::TimedOut);
        }
        Ok(())
    }

    /// Terminates it; it may have ended by itself.
    pub fn end(&self, end: End) {
        let _ = self.kernel.end(self.cell, end);
    }

    /// Waits until it has ended, and returns its outcome.
    ///
    /// # Errors
    /// The outcome was taken already.
    pub fn wait(&self) -> Result<Outcome, LaunchError> {
        Ok(wait(&self.kernel, self.cell)?)
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
            let _ = self.kernel.end(self.cell, End::Killed);
            let _ = self.kernel.wait(self.cell);
        }
    }
}

/// Waits until a cell has ended, and returns its outcome. A cell that has frozen without a request is terminated.
///
/// # Errors
/// The outcome was taken already.
pub(crate) fn wait(kernel: &Kernel, cell: CellId) -> Result<Outcome, OperatorError> {
    match kernel.wait(cell) {
        Err(OperatorError::Froze) => {
            // Nothing else terminates it.
            let _ = kernel.end(cell, End::Killed);
            kernel.wait(cell)
        }
        ended => ended,
    }
}
