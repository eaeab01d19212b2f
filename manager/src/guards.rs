// SPDX-License-Identifier: MIT OR Apache-2.0
//! RAII guards for kernel resources: cells and their roots.

use pando_kernel::{CellId, End, Kernel};
use pando_launch::Root;
use std::ops::Deref;
use std::sync::Arc;

/// A cell that is terminated when this is dropped; the drop waits for its end.
pub struct CellGuard {
    kernel: Arc<Kernel>,
    cell: CellId,
    is_released: bool,
}

impl CellGuard {
    /// Guards a cell.
    pub fn new(kernel: &Arc<Kernel>, cell: CellId) -> CellGuard {
        CellGuard { kernel: Arc::clone(kernel), cell, is_released: false }
    }

    /// The cell.
    pub fn cell(&self) -> CellId {
        self.cell
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
            // It may have ended, and its end may have been collected.
            let _ = self.kernel.end(self.cell, End::Killed);
            let _ = self.kernel.wait(self.cell);
        }
    }
}

/// A root for clones: removed when this is dropped, with its disks. Its clones must have ended by then.
pub struct RootGuard {
    kernel: Arc<Kernel>,
    root: Root,
}

impl RootGuard {
    /// Guards a root.
    pub fn new(kernel: &Arc<Kernel>, root: Root) -> RootGuard {
        RootGuard { kernel: Arc::clone(kernel), root }
    }
}

impl Deref for RootGuard {
    type Target = Root;

    fn deref(&self) -> &Root {
        &self.root
    }
}

impl Drop for RootGuard {
    fn drop(&mut self) {
        for disk in self.root.clone().clear(&self.kernel) {
            // A clone that nobody waits for keeps its disk until the kernel ends.
            let _ = self.kernel.remove_disk(disk);
        }
    }
}
