// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is taken of a kernel, and given back when whoever has it lets go, on whichever path: cells, and what they are cloned from.

use pando_kernel::{CellId, End, Kernel};
use pando_launch::Root;
use std::ops::Deref;
use std::sync::Arc;

/// A cell that ends when this is dropped, which waits until it has.
pub(crate) struct CellGuard {
    kernel: Arc<Kernel>,
    cell: CellId,
    is_released: bool,
}

impl CellGuard {
    /// Guards a cell: ends it, if nobody has.
    pub(crate) fn new(kernel: &Arc<Kernel>, cell: CellId) -> CellGuard {
        CellGuard { kernel: Arc::clone(kernel), cell, is_released: false }
    }

    /// The cell.
    pub(crate) fn cell(&self) -> CellId {
        self.cell
    }

    /// Leaves the cell to somebody else.
    pub(crate) fn release(mut self) -> CellId {
        self.is_released = true;
        self.cell
    }
}

impl Drop for CellGuard {
    fn drop(&mut self) {
        if !self.is_released {
            // It may have ended by itself, and have been waited for.
            let _ = self.kernel.end(self.cell, End::Killed);
            let _ = self.kernel.wait(self.cell);
        }
    }
}

/// What clones are made from: goes when this is dropped, and its disks with it. Its clones have ended by then.
pub(crate) struct RootGuard {
    kernel: Arc<Kernel>,
    root: Root,
}

impl RootGuard {
    /// Guards a root that nobody else gives up.
    pub(crate) fn new(kernel: &Arc<Kernel>, root: Root) -> RootGuard {
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
            // A clone that lives on although nobody waits for it keeps it, until the kernel ends.
            let _ = self.kernel.remove_disk(disk);
        }
    }
}
