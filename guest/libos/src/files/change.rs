// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates, removes and moves names, in Linux's order of checks.

use super::Files;
use super::namei::{LastComponent, LookupFlags, LookupResult, Name};
use super::tree::node::{Body, Node};
use super::tree::{InodeRef, NameAt};
use crate::credentials::Owner;
use crate::credentials::WRITE;
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::uapi::{AT_FDCWD, CAP_MKNOD, CAP_SYS_CHROOT, IN_ATTRIB, IN_CREATE, IN_DELETE, IN_MOVE_SELF, RENAME_EXCHANGE, RENAME_NOREPLACE};

/// A path relative to a directory.
#[derive(Clone, Copy, Debug)]
pub struct PathAt<'a> {
    /// The directory: a descriptor, or [`AT_FDCWD`].
    pub directory: u64,
    /// The path.
    pub path: &'a [u8],
}

/// The kind of file to create.
#[derive(Clone, Copy, Debug)]
pub enum NewNode<'a> {
    /// A directory.
    Directory,
    /// An empty file, a device, a FIFO or a socket.
    File(FileType, (u32, u32)),
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
}

/// An existing name, and its file.
#[derive(Clone, Copy, Debug)]
struct FoundEntry {
    directory: InodeRef,
    name: Name,
    inode: InodeRef,
    is_directory: bool,
    slash: bool,
}

impl FoundEntry {
    fn named(&self) -> NameAt<'_> {
        NameAt { directory: self.directory, name: self.name.bytes() }
    }
}

impl Files {
    /// Creates a file at an unused name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `EACCES`, `EPERM`, `ENOSPC`; those of looking up paths.
    pub fn make(&mut self, at: PathAt<'_>, new: NewNode<'_>, mode: u64, now: Time) -> Result<(), Errno> {
        let (found, name) = self.free_name(at, matches!(new, NewNode::Directory))?;
        self.check_change(found.directory)?;
        let mut owner = self.new_owner(found.directory, mode, matches!(new, NewNode::Directory))?;
        let body = match new {
            NewNode::Directory => super::Tree::empty_directory(found.directory),
            NewNode::File(FileType::Regular, _) => Body::Regular(super::tree::content::Content::default()),
            NewNode::File(FileType::CharacterDevice | FileType::BlockDevice, _) if !self.current.credentials.is_capable(CAP_MKNOD) => {
                return Err(Errno::EPERM);
            }
            NewNode::File(kind, numbers) => Body::Special(kind, numbers),
            NewNode::Symlink(target) => {
                owner.permissions = 0o777;
                Body::Symlink(target.into())
            }
        };
        let at = NameAt { directory: found.directory, name: name.bytes() };
        if self.create_live(at, &body, owner.permissions, true)?.is_none() {
            self.tree.create(at, body, owner, now)?;
        }
        self.notify_name(found.directory, name.bytes(), matches!(new, NewNode::Directory), IN_CREATE);
        Ok(())
    }

    /// Finds the directory for a new name. `is_directory`: a trailing slash is allowed.
    fn free_name(&self, at: PathAt<'_>, is_directory: bool) -> Result<(LookupResult, Name), Errno> {
        let found = self.walk(at.directory, at.path, LookupFlags::NAME)?;
        match found.last {
            LastComponent::Name(_) if found.inode.is_some() => Err(Errno::EEXIST),
            LastComponent::Name(_) if found.slash && !is_directory => Err(Errno::ENOENT),
            LastComponent::Name(name) => Ok((found, name)),
            _ => Err(Errno::EEXIST),
        }
    }

    /// Adds a hard link to a file. `follow`: if it is a symbolic link, the link's target is used. An empty path names a descriptor, if
    /// `by_descriptor`.
    ///
    /// # Errors
    /// Those of `linkat`.
    pub fn link(&mut self, from: PathAt<'_>, to: PathAt<'_>, follow: bool, by_descriptor: bool, now: Time) -> Result<(), Errno> {
        let way = if follow { LookupFlags::FOLLOW } else { LookupFlags::KEEP };
        let inode = match from.path {
            [] if by_descriptor && from.directory as i32 == AT_FDCWD as i32 => self.current.working_directory,
            [] if by_descriptor => self.inode(from.directory)?,
            path => self.find(from.directory, path, way)?,
        };
        let (found, name) = self.free_name(to, false)?;
        let status = self.status(inode)?;
        if self.tree.volume_of(inode).is_none() || self.tree.volume_of(inode) != self.tree.volume_of(found.directory) {
            return Err(Errno::EXDEV);
        }
        self.check_change(found.directory)?;
        if status.is_directory() {
            return Err(Errno::EPERM);
        }
        // Names that the file has on the host only do not count.
        let is_nameless = |node: &Node| node.links == 0 && !node.temporary;
        if matches!(self.tree.real_inode(inode), InodeRef::Node(id) if self.tree.node(id).is_ok_and(is_nameless)) {
            return Err(Errno::ENOENT);
        }
        let at = NameAt { directory: found.directory, name: name.bytes() };
        if !self.link_live(inode, at)? {
            self.tree.link(inode, at, now)?;
        }
        if let InodeRef::Node(id) = self.tree.real_inode(inode) {
            self.tree.node_mut(id)?.temporary = false;
        }
        self.notify_self(inode, IN_ATTRIB);
        self.notify_name(found.directory, name.bytes(), false, IN_CREATE);
        Ok(())
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// Those of `unlink`.
    pub fn unlink(&mut self, at: PathAt<'_>, now: Time) -> Result<(), Errno> {
        let there = self.find_existing(at, Errno::EISDIR, Errno::EISDIR, Errno::EISDIR)?;
        if there.slash {
            return Err(if there.is_directory { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        self.check_removal(there.directory, there.inode)?;
        if there.is_directory {
            return Err(Errno::EISDIR);
        }
        if self.keeps_name(there.directory, there.name.bytes()) || self.tree.is_mount(there.inode) {
            return Err(Errno::EBUSY);
        }
        self.remove(&there, now)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `rmdir`.
    pub fn remove_directory(&mut self, at: PathAt<'_>, now: Time) -> Result<(), Errno> {
        let there = self.find_existing(at, Errno::EINVAL, Errno::ENOTEMPTY, Errno::EBUSY)?;
        self.check_removal(there.directory, there.inode)?;
        if !there.is_directory {
            return Err(Errno::ENOTDIR);
        }
        if self.tree.is_mount(there.inode) || self.tree.real_inode(there.inode) == self.tree.real_inode(self.current.root) {
            return Err(Errno::EBUSY);
        }
        if !self.is_live(there.inode) && !self.tree.is_empty(there.inode)? {
            return Err(Errno::ENOTEMPTY);
        }
        self.remove(&there, now)
    }

    /// Finds an existing name, with the errors for a path that ends with `.`, with `..`, and for the root.
    fn find_existing(&self, at: PathAt<'_>, dot: Errno, dot_dot: Errno, root: Errno) -> Result<FoundEntry, Errno> {
        let found = self.walk(at.directory, at.path, LookupFlags::NAME)?;
        let name = match found.last {
            LastComponent::Name(name) => name,
            LastComponent::Dot => return Err(dot),
            LastComponent::DotDot => return Err(dot_dot),
            LastComponent::Root => return Err(root),
        };
        let inode = self.tree.real_inode(found.inode.ok_or(Errno::ENOENT)?);
        let is_directory = self.status(inode)?.is_directory();
        Ok(FoundEntry { directory: found.directory, name, inode, is_directory, slash: found.slash })
    }

    /// Removes a name, and its file if that was its last name and no process has it open.
    fn remove(&mut self, there: &FoundEntry, now: Time) -> Result<(), Errno> {
        self.unlink_live(there.named(), there.is_directory)?;
        self.keep_if_open(there.inode)?;
        let unlinked = self.tree.unlink(there.named(), now)?;
        if !there.is_directory {
            self.notify_self(unlinked, IN_ATTRIB);
        }
        self.drop_if_unlinked(unlinked);
        self.notify_name(there.directory, there.name.bytes(), there.is_directory, IN_DELETE);
        Ok(())
    }

    /// Drops a file that has lost a name, if that was its last.
    fn drop_if_unlinked(&mut self, inode: InodeRef) {
        if let InodeRef::Image(_) = self.tree.real_inode(inode) {
            // It had one name, and no process has it open.
            self.notify_gone(inode);
        }
        self.release(inode);
    }

    /// Makes a node of an open inode, so that it continues to exist without a name.
    fn keep_if_open(&mut self, inode: InodeRef) -> Result<(), Errno> {
        if matches!(inode, InodeRef::Image(_)) && self.is_open(inode) {
            self.tree.copy_up(inode)?;
        }
        Ok(())
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(&mut self, from: PathAt<'_>, to: PathAt<'_>, flags: u64, now: Time) -> Result<(), Errno> {
        let exchange = flags & RENAME_EXCHANGE != 0;
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 || exchange && flags & RENAME_NOREPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let old = self.walk(from.directory, from.path, LookupFlags::NAME)?;
        let new = self.walk(to.directory, to.path, LookupFlags::NAME)?;
        let LastComponent::Name(old_name) = old.last else { return Err(Errno::EBUSY) };
        let LastComponent::Name(new_name) = new.last else {
            return Err(if flags & RENAME_NOREPLACE != 0 { Errno::EEXIST } else { Errno::EBUSY });
        };
        if self.tree.volume_of(old.directory) != self.tree.volume_of(new.directory) {
            return Err(Errno::EXDEV);
        }
        let inode = self.tree.real_inode(old.inode.ok_or(Errno::ENOENT)?);
        let is_directory = self.status(inode)?.is_directory();
        let moved = FoundEntry { directory: old.directory, name: old_name, inode, is_directory, slash: old.slash };
        let target = match new.inode {
            Some(inode) => {
                let inode = self.tree.real_inode(inode);
                let is_directory = self.status(inode)?.is_directory();
                Some(FoundEntry { directory: new.directory, name: new_name, inode, is_directory, slash: new.slash })
            }
            None => None,
        };
        if target.is_some() && flags & RENAME_NOREPLACE != 0 {
            return Err(Errno::EEXIST);
        }
        if exchange && target.is_none() {
            return Err(Errno::ENOENT);
        }
        self.check_kinds(&moved, target.as_ref(), new.slash, exchange)?;
        self.check_nesting(&moved, new.directory, target.as_ref(), exchange)?;
        if target.is_some_and(|target| target.inode == moved.inode) {
            return Ok(());
        }
        self.check_move(&moved, new.directory, target.as_ref(), exchange)?;
        let name = NameAt { directory: new.directory, name: new_name.bytes() };
        self.rename_live(moved.named(), name, flags)?;
        if exchange {
            self.tree.exchange(moved.named(), name, now)?;
            if let Some(target) = target {
                self.moved_live(name);
                self.moved_live(moved.named());
                self.notify_exchanged(&moved, &target);
            }
            return Ok(());
        }
        if let Some(target) = target {
            self.keep_if_open(target.inode)?;
        }
        let replaced = self.tree.rename(moved.named(), name, now)?;
        self.moved_live(name);
        self.notify_moved((moved.directory, moved.name.bytes()), (new.directory, new_name.bytes()), moved.is_directory);
        if let Some(replaced) = replaced.filter(|_| !moved.is_directory) {
            self.notify_self(replaced, IN_ATTRIB);
        }
        self.notify_self(moved.inode, IN_MOVE_SELF);
        if let Some(replaced) = replaced {
            self.drop_if_unlinked(replaced);
        }
        Ok(())
    }

    /// Notifies watchers that two names were exchanged.
    fn notify_exchanged(&mut self, one: &FoundEntry, other: &FoundEntry) {
        let (first, second) = ((one.directory, one.name.bytes()), (other.directory, other.name.bytes()));
        self.notify_moved(first, second, one.is_directory);
        self.notify_self(one.inode, IN_MOVE_SELF);
        self.notify_moved(second, first, other.is_directory);
        self.notify_self(other.inode, IN_MOVE_SELF);
    }

    /// Checks that moved names with trailing slashes are directories.
    fn check_kinds(&self, moved: &FoundEntry, target: Option<&FoundEntry>, slash: bool, exchange: bool) -> Result<(), Errno> {
        let wrong = if exchange {
            moved.slash && !moved.is_directory || target.is_some_and(|target| target.slash && !target.is_directory)
        } else {
            !moved.is_directory && (moved.slash || slash)
        };
        if wrong { Err(Errno::ENOTDIR) } else { Ok(()) }
    }

    /// Checks that no directory moves into itself, and that none is replaced by its own descendant.
    fn check_nesting(&self, moved: &FoundEntry, to: InodeRef, target: Option<&FoundEntry>, exchange: bool) -> Result<(), Errno> {
        if moved.is_directory && self.is_above(moved.inode, to)? {
            return Err(Errno::EINVAL);
        }
        match target {
            Some(target) if target.is_directory && self.is_above(target.inode, moved.directory)? => {
                Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY })
            }
            _ => Ok(()),
        }
    }

    /// Whether `above` is the directory itself or one of its ancestors.
    fn is_above(&self, above: InodeRef, directory: InodeRef) -> Result<bool, Errno> {
        let (above, top) = (self.tree.real_inode(above), self.tree.root());
        let mut here = self.tree.real_inode(directory);
        while here != above {
            if here == top {
                return Ok(false);
            }
            here = self.tree.real_inode(self.tree.parent(here)?);
        }
        Ok(true)
    }

    /// Checks the process's permissions for a move.
    fn check_move(&self, moved: &FoundEntry, to: InodeRef, target: Option<&FoundEntry>, exchange: bool) -> Result<(), Errno> {
        self.check_removal(moved.directory, moved.inode)?;
        match target {
            Some(target) => {
                self.check_removal(to, target.inode)?;
                match (moved.is_directory, target.is_directory) {
                    (true, false) if !exchange => return Err(Errno::ENOTDIR),
                    (false, true) if !exchange => return Err(Errno::EISDIR),
                    _ => {}
                }
            }
            None => self.check_change(to)?,
        }
        // Moving a directory to another parent changes its `..`.
        let changes_above = self.tree.real_inode(moved.directory) != self.tree.real_inode(to);
        for there in [Some(moved), target.filter(|_| exchange)].into_iter().flatten() {
            if there.is_directory && changes_above {
                self.check(there.inode, WRITE)?;
            }
        }
        let is_busy = |there: &FoundEntry| self.tree.is_mount(there.inode) || self.tree.real_inode(self.current.root) == there.inode;
        let is_kept = !exchange && self.keeps_name(moved.directory, moved.name.bytes());
        if is_kept || is_busy(moved) || target.is_some_and(is_busy) {
            return Err(Errno::EBUSY);
        }
        match target {
            Some(target) if target.is_directory && !exchange && !self.is_live(target.inode) && !self.tree.is_empty(target.inode)? => {
                Err(Errno::ENOTEMPTY)
            }
            _ => Ok(()),
        }
    }

    /// Sets the working directory.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`.
    pub fn change_directory(&mut self, inode: InodeRef) -> Result<(), Errno> {
        self.check_enterable(inode)?;
        let before = core::mem::replace(&mut self.current.working_directory, inode);
        self.release(before);
        Ok(())
    }

    /// Sets the root directory of paths (`chroot`).
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`; `EPERM`: only root may.
    pub fn change_root(&mut self, inode: InodeRef) -> Result<(), Errno> {
        self.check_enterable(inode)?;
        if !self.current.credentials.is_capable(CAP_SYS_CHROOT) {
            return Err(Errno::EPERM);
        }
        let before = core::mem::replace(&mut self.current.root, inode);
        self.release(before);
        Ok(())
    }

    fn check_enterable(&self, inode: InodeRef) -> Result<(), Errno> {
        if !self.status(inode)?.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.check(inode, crate::credentials::EXECUTE)
    }

    /// The owner and permissions of an inode, mutably.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `EPERM`: it is in a pseudo filesystem.
    pub fn owner_mut(&mut self, inode: InodeRef, now: Time) -> Result<&mut Owner, Errno> {
        let id = self.tree.copy_up(inode)?;
        let node = self.tree.node_mut(id)?;
        node.times.changed = now;
        Ok(&mut node.owner)
    }
}

/// A path relative to the working directory.
#[must_use]
pub fn at_cwd(path: &[u8]) -> PathAt<'_> {
    PathAt { directory: AT_FDCWD, path }
}
