// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fork prefetch: the pages that a space and its clone write first, learned from writes after earlier clones. Each of them would
//! cost both sides a fault, which costs more than the copy.
//!
//! A wrong prediction costs only a copy of a page.

use super::page::VirtualPage;
use std::collections::BTreeSet;

/// Pages that are remembered for each side: what a program with some libraries writes first, a megabyte.
const PAGES_MAX: usize = 256;
/// Number of clones after which learning starts anew, because nothing shows whether a prefetched page was written.
const CLONES_MAX: u32 = 32;

/// The pages learned from a space's clones.
#[derive(Debug, Default)]
pub(in crate::memory) struct ForkPrefetch {
    clones: u32,
    by_parent: BTreeSet<VirtualPage>,
    by_child: BTreeSet<VirtualPage>,
}

impl ForkPrefetch {
    /// Counts a new clone. Returns the pages that the parent and the child are expected to write.
    pub(in crate::memory) fn next_clone(&mut self) -> [BTreeSet<VirtualPage>; 2] {
        if self.clones.is_multiple_of(CLONES_MAX) {
            self.by_parent.clear();
            self.by_child.clear();
        }
        self.clones = self.clones.wrapping_add(1);
        [self.by_parent.clone(), self.by_child.clone()]
    }

    /// Records that the space itself has written to a shared page.
    pub(in crate::memory) fn note_written_by_parent(&mut self, page: VirtualPage) {
        if self.clones > 0 {
            add(&mut self.by_parent, page);
        }
    }

    /// Records that a clone has written to a shared page, or to lazy memory.
    pub(in crate::memory) fn note_written_by_child(&mut self, page: VirtualPage) {
        add(&mut self.by_child, page);
    }
}

/// Adds a page to a set that is not full.
fn add(pages: &mut BTreeSet<VirtualPage>, page: VirtualPage) {
    if pages.len() < PAGES_MAX {
        pages.insert(page);
    }
}
