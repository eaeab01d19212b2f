// SPDX-License-Identifier: MIT OR Apache-2.0
//! An RAII guard for the root that clones are made from.

use pando_kernel::Kernel;
use pando_launch::Root;
use std::ops::Deref;
use std::sync::Arc;

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
