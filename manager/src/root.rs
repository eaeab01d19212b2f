// SPDX-License-Identifier: MIT OR Apache-2.0
//! An RAII guard for the root that clones are made from.

use pando_launch::{Operator, Root};
use std::ops::Deref;
use std::sync::Arc;

/// A root for clones: removed when this is dropped, with its disks. Its clones must have ended by then.
pub struct RootGuard {
    operator: Arc<dyn Operator>,
    root: Root,
}

impl RootGuard {
    /// Guards a root.
    pub fn new(operator: Arc<dyn Operator>, root: Root) -> RootGuard {
        RootGuard { operator, root }
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
        self.operator.discard_root(self.root.clone());
    }
}
