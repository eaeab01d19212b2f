// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the cache of a mount has what a call needs, and that it is new enough.
//!
//! Each call revalidates the last component of its path. The directories before it, and attributes from a listing, are valid for a second.

use super::CacheMiss;
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::Files;
use crate::files::tree::InodeRef;
use crate::files::tree::directory::Dentry;
use crate::files::tree::node::{Body, LiveInode, NodeId};

/// How long a directory on the way to a file, and the result of a listing, is valid without a new request (FUSE's `entry_valid`): as
/// virtiofs does with `cache=auto`.
pub(super) const ENTRY_VALID: u64 = 1_000_000_000;

impl Files {
    /// The node of a mount, and what the cache knows of it. `None`: the inode is of no mount.
    fn live(&self, inode: InodeRef) -> Option<(NodeId, &LiveInode)> {
        if self.mounts.is_empty() {
            return None;
        }
        let InodeRef::Node(id) = self.tree.real_inode(inode) else { return None };
        self.tree.node(id).ok()?.live.as_deref().map(|live| (id, live))
    }

    /// Whether an inode is of a mount.
    #[must_use]
    pub fn is_live(&self, inode: InodeRef) -> bool {
        self.live(inode).is_some()
    }

    /// Checks that a name of a directory is known. `is_last`: it is what the call names.
    ///
    /// # Errors
    /// `QUEUED`: it must be looked up first. `ENOENT`, `EACCES`, `EIO`.
    pub(in crate::files) fn check_name(&self, directory: InodeRef, name: &[u8], is_last: bool) -> Result<(), Errno> {
        let Some((id, live)) = self.live(directory) else { return Ok(()) };
        let began = self.mounts.began;
        self.mounts.check_alive(live.mount)?;
        if let Ok(directory) = self.tree.node(id)?.directory()
            && let Dentry::Positive(child) = directory.get(name)
        {
            // Something of the cell is mounted there.
            let Some((_, child)) = self.live(child) else { return Ok(()) };
            if let Some((above, last, valid)) = &child.entry
                && *above == id
                && **last == *name
                && (valid.at >= began || valid.until >= began || !is_last && valid.at.saturating_add(ENTRY_VALID) >= began)
            {
                return Ok(());
            }
            if child.nodeid == super::nodes::ROOT {
                return Ok(());
            }
        }
        let missing = self.mounts.missing.borrow();
        if let Some((.., error, _)) = missing.iter().find(|(above, other, _, at)| *above == id && **other == *name && *at >= began) {
            return Err(*error);
        }
        drop(missing);
        Err(self.mounts.note_miss(CacheMiss::Name(id, name.into())))
    }

    /// Checks that the attributes of an inode are known. `is_last`: the call names it.
    ///
    /// # Errors
    /// `QUEUED`: they must be asked for first. `EIO`.
    pub fn check_attributes(&self, inode: InodeRef, is_last: bool) -> Result<(), Errno> {
        let Some((id, live)) = self.live(inode) else { return Ok(()) };
        let began = self.mounts.began;
        let is_valid =
            live.checked.at >= began || live.checked.until >= began || !is_last && live.checked.at.saturating_add(ENTRY_VALID) >= began;
        if is_valid && live.checked.at > 0 {
            return Ok(());
        }
        self.mounts.check_alive(live.mount)?;
        Err(self.mounts.note_miss(CacheMiss::Attributes(id)))
    }

    /// Checks that the size of a file, to which the running call appends, was asked for during the call.
    ///
    /// # Errors
    /// `QUEUED`: it must be asked for first. `EIO`.
    pub fn check_append(&self, file: InodeRef) -> Result<(), Errno> {
        let Some((id, live)) = self.live(file) else { return Ok(()) };
        if live.checked.at >= self.mounts.began {
            return Ok(());
        }
        self.mounts.check_alive(live.mount)?;
        Err(self.mounts.note_miss(CacheMiss::Attributes(id)))
    }

    /// Checks that the names of a directory are known. A listing that has begun goes on with the names that it began with.
    ///
    /// # Errors
    /// `QUEUED`: they must be asked for first. `EIO`.
    pub fn check_listing(&self, directory: InodeRef, position: u64) -> Result<(), Errno> {
        let Some((id, live)) = self.live(directory) else { return Ok(()) };
        self.mounts.check_alive(live.mount)?;
        if let Some(error) = live.listing_error.take() {
            return Err(error);
        }
        if live.listed.at >= self.mounts.began || position > 0 && live.listed.at > 0 {
            return Ok(());
        }
        Err(self.mounts.note_miss(CacheMiss::Listing(id)))
    }

    /// Checks that the target of a symbolic link is known.
    ///
    /// # Errors
    /// `QUEUED`: it must be asked for first. `EIO`.
    pub fn check_target(&self, link: InodeRef) -> Result<(), Errno> {
        let Some((id, live)) = self.live(link) else { return Ok(()) };
        match &self.tree.node(id)?.body {
            Body::Symlink(target) if target.is_empty() => {}
            _ => return Ok(()),
        }
        self.mounts.check_alive(live.mount)?;
        Err(self.mounts.note_miss(CacheMiss::Target(id)))
    }

    /// Checks that a part of a file's content is in the cache.
    ///
    /// # Errors
    /// `QUEUED`: it must be read first. `EIO`.
    pub fn check_content(&self, inode: InodeRef, offset: u64, length: u64) -> Result<(), Errno> {
        let Some((id, live)) = self.live(inode) else { return Ok(()) };
        let node = self.tree.node(id)?;
        if node.kind() != FileType::Regular {
            return Ok(());
        }
        if let Some(error) = node.content()?.take_read_error() {
            return Err(error);
        }
        let Some(missing) = node.content()?.missing(offset..offset.saturating_add(length)) else { return Ok(()) };
        self.mounts.check_alive(live.mount)?;
        Err(self.mounts.note_miss(CacheMiss::Content(id, missing.start, missing.end - missing.start)))
    }

    /// Checks that a file can be written: that its server has opened it.
    ///
    /// # Errors
    /// `QUEUED`: it must be opened first. `EACCES`, `EIO`, and other errors of the server.
    pub fn check_handle(&mut self, id: NodeId) -> Result<(), Errno> {
        let Some((_, live)) = self.live(InodeRef::Node(id)) else { return Ok(()) };
        self.mounts.check_alive(live.mount)?;
        if live.handle.is_some() {
            return Ok(());
        }
        self.open_for_writing(id)
    }
}
