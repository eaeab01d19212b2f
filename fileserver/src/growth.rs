// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit on the growth of the served files.
//!
//! A request is charged before it is performed. It is credited only for what it has provably freed: a request that fails frees nothing,
//! and a file without names takes space until the client has closed and forgotten it.

use rustix::io::Errno;
use std::collections::BTreeMap;

/// The cost of each name in addition to its file's bytes, as in a write-back: a cell could fill a file system with empty files.
pub(crate) const NAME_COST: u64 = 4096;

/// How far the files may still grow.
#[derive(Debug)]
pub(crate) struct Growth {
    left: u64,
    most: u64,
    /// Handles of each inode that the client has open.
    handles: BTreeMap<u64, u64>,
    /// Files without names, by inode. A size is known once the client has forgotten the inode.
    orphans: BTreeMap<u64, Option<u64>>,
}

impl Growth {
    /// Files that may grow by so many bytes.
    pub(crate) fn new(most: u64) -> Growth {
        Growth { left: most, most, handles: BTreeMap::new(), orphans: BTreeMap::new() }
    }

    /// Charges bytes.
    ///
    /// # Errors
    /// `EDQUOT`.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<(), Errno> {
        self.left = self.left.checked_sub(bytes).ok_or(Errno::DQUOT)?;
        Ok(())
    }

    /// Credits bytes that were freed.
    pub(crate) fn credit(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes).min(self.most);
    }

    /// Records that the client has opened an inode.
    pub(crate) fn open(&mut self, inode: u64) {
        *self.handles.entry(inode).or_default() += 1;
    }

    /// Records that the client has closed a handle of an inode.
    pub(crate) fn close(&mut self, inode: u64) {
        if let Some(count) = self.handles.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                self.handles.remove(&inode);
            }
        }
        self.credit_orphan(inode);
    }

    /// Records that a file has lost its last name.
    pub(crate) fn orphan(&mut self, inode: u64) {
        self.orphans.insert(inode, None);
    }

    /// Whether a file has lost its last name, and the client has not forgotten it.
    pub(crate) fn is_orphan(&self, inode: u64) -> bool {
        self.orphans.get(&inode) == Some(&None)
    }

    /// Records that the client has forgotten a file without names, which has so many bytes.
    pub(crate) fn forget(&mut self, inode: u64, size: u64) {
        self.orphans.insert(inode, Some(size));
        self.credit_orphan(inode);
    }

    /// Credits a file without names that the client has closed and forgotten.
    fn credit_orphan(&mut self, inode: u64) {
        if !self.handles.contains_key(&inode)
            && let Some(Some(size)) = self.orphans.get(&inode)
        {
            let size = *size;
            self.orphans.remove(&inode);
            self.credit(size);
        }
    }
}
