// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making, removing and moving names, in Linux's order of checks.

use super::Files;
use super::inotify::event;
use super::names::{CURRENT, Found, Last, Name, Way};
use super::tree::node::{Body, Owner};
use super::tree::{Named, Place};
use crate::credentials::WRITE;
use crate::credentials::capabilities::{MKNOD, SYS_CHROOT};
use crate::erofs::{FileType, Time};
use crate::errno::Errno;

/// Do not replace what the new name leads to.
pub const RENAME_NOREPLACE: u64 = 1;
/// Exchange what the two names lead to.
pub const RENAME_EXCHANGE: u64 = 2;

/// A path, seen from a directory.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The directory: a descriptor, or [`CURRENT`].
    pub directory: u64,
    /// The path.
    pub path: &'a [u8],
}

/// What to make.
#[derive(Clone, Copy, Debug)]
pub enum New<'a> {
    /// A directory.
    Directory,
    /// An empty file, a device, a FIFO or a socket.
    File(FileType, (u32, u32)),
    /// A symbolic link to here.
    Symlink(&'a [u8]),
}

/// A name that was found, and where it leads.
#[derive(Clone, Copy, Debug)]
struct There {
    directory: Place,
    name: Name,
    place: Place,
    is_directory: bool,
    slash: bool,
}

impl There {
    fn named(&self) -> Named<'_> {
        Named { directory: self.directory, name: self.name.bytes() }
    }
}

impl Files {
    /// Makes something at a name that is free.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `EACCES`, `EPERM`, `ENOSPC`; those of looking up paths.
    pub fn make(&mut self, at: At<'_>, new: New<'_>, mode: u64, now: Time) -> Result<(), Errno> {
        let (found, name) = self.free_name(at, matches!(new, New::Directory))?;
        self.check_change(found.directory)?;
        let mut owner = self.new_owner(found.directory, mode, matches!(new, New::Directory))?;
        let body = match new {
            New::Directory => super::Tree::empty_directory(found.directory),
            New::File(FileType::Regular, _) => Body::Regular(super::tree::content::Content::default()),
            New::File(FileType::CharacterDevice | FileType::BlockDevice, _) if !self.own.who.is_capable(MKNOD) => return Err(Errno::EPERM),
            New::File(kind, numbers) => Body::Special(kind, numbers),
            New::Symlink(target) => {
                owner.permissions = 0o777;
                Body::Symlink(target.into())
            }
        };
        self.tree.create(Named { directory: found.directory, name: name.bytes() }, body, owner, now)?;
        self.tell_name(found.directory, name.bytes(), matches!(new, New::Directory), event::CREATE);
        Ok(())
    }

    /// Finds the directory for a new name. `is_directory`: a slash may follow.
    fn free_name(&self, at: At<'_>, is_directory: bool) -> Result<(Found, Name), Errno> {
        let found = self.walk(at.directory, at.path, Way::NAME)?;
        match found.last {
            Last::Name(_) if found.place.is_some() => Err(Errno::EEXIST),
            Last::Name(_) if found.slash && !is_directory => Err(Errno::ENOENT),
            Last::Name(name) => Ok((found, name)),
            _ => Err(Errno::EEXIST),
        }
    }

    /// Gives a file another name. `follow`: if it is a symbolic link, the one that it leads to. An empty path names a descriptor, if `by_descriptor`.
    ///
    /// # Errors
    /// Those of `linkat`.
    pub fn link(&mut self, from: At<'_>, to: At<'_>, follow: bool, by_descriptor: bool, now: Time) -> Result<(), Errno> {
        let way = if follow { Way::FOLLOW } else { Way::KEEP };
        let place = match from.path {
            [] if by_descriptor && from.directory as i32 == super::names::AT_FDCWD => self.own.working_directory,
            [] if by_descriptor => self.place(from.directory)?,
            path => self.find(from.directory, path, way)?,
        };
        let (found, name) = self.free_name(to, false)?;
        let status = self.status(place)?;
        if self.tree.volume_of(place).is_none() || self.tree.volume_of(place) != self.tree.volume_of(found.directory) {
            return Err(Errno::EXDEV);
        }
        self.check_change(found.directory)?;
        if status.is_directory() {
            return Err(Errno::EPERM);
        }
        let is_temporary = matches!(self.tree.settle(place), Place::Node(id) if self.tree.node(id).is_ok_and(|node| node.temporary));
        if status.links == 0 && !is_temporary {
            return Err(Errno::ENOENT);
        }
        self.tree.link(place, Named { directory: found.directory, name: name.bytes() }, now)?;
        if let Place::Node(id) = self.tree.settle(place) {
            self.tree.node_mut(id)?.temporary = false;
        }
        self.tell_self(place, event::ATTRIB);
        self.tell_name(found.directory, name.bytes(), false, event::CREATE);
        Ok(())
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// Those of `unlink`.
    pub fn unlink(&mut self, at: At<'_>, now: Time) -> Result<(), Errno> {
        let there = self.there(at, Errno::EISDIR, Errno::EISDIR, Errno::EISDIR)?;
        if there.slash {
            return Err(if there.is_directory { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        self.check_removal(there.directory, there.place)?;
        if there.is_directory {
            return Err(Errno::EISDIR);
        }
        if self.keeps_name(there.directory, there.name.bytes()) {
            return Err(Errno::EBUSY);
        }
        self.remove(&there, now)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `rmdir`.
    pub fn remove_directory(&mut self, at: At<'_>, now: Time) -> Result<(), Errno> {
        let there = self.there(at, Errno::EINVAL, Errno::ENOTEMPTY, Errno::EBUSY)?;
        self.check_removal(there.directory, there.place)?;
        if !there.is_directory {
            return Err(Errno::ENOTDIR);
        }
        if self.tree.is_mount(there.place) || self.tree.settle(there.place) == self.tree.settle(self.own.root) {
            return Err(Errno::EBUSY);
        }
        if !self.tree.is_empty(there.place)? {
            return Err(Errno::ENOTEMPTY);
        }
        self.remove(&there, now)
    }

    /// Finds a name that is there, with the errors for a path that ends with `.`, with `..`, and for the root.
    fn there(&self, at: At<'_>, dot: Errno, dot_dot: Errno, root: Errno) -> Result<There, Errno> {
        let found = self.walk(at.directory, at.path, Way::NAME)?;
        let name = match found.last {
            Last::Name(name) => name,
            Last::Dot => return Err(dot),
            Last::DotDot => return Err(dot_dot),
            Last::Root => return Err(root),
        };
        let place = self.tree.settle(found.place.ok_or(Errno::ENOENT)?);
        let is_directory = self.status(place)?.is_directory();
        Ok(There { directory: found.directory, name, place, is_directory, slash: found.slash })
    }

    /// Removes a name, and what it led to if that was its last and nobody has it open.
    fn remove(&mut self, there: &There, now: Time) -> Result<(), Errno> {
        self.keep_if_open(there.place)?;
        let gone = self.tree.unlink(there.named(), now)?;
        if !there.is_directory {
            self.tell_self(gone, event::ATTRIB);
        }
        self.lose(gone);
        self.tell_name(there.directory, there.name.bytes(), there.is_directory, event::DELETE);
        Ok(())
    }

    /// Forgets what has lost a name, if that was its last.
    fn lose(&mut self, gone: Place) {
        if let Place::Image(_) = self.tree.settle(gone) {
            // It had one name, and nobody has it open.
            self.tell_gone(gone);
        }
        self.release(gone);
    }

    /// Makes a node of an inode that somebody has open: it will be remembered without a name.
    fn keep_if_open(&mut self, place: Place) -> Result<(), Errno> {
        if matches!(place, Place::Image(_)) && self.is_open(place) {
            self.tree.own(place)?;
        }
        Ok(())
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(&mut self, from: At<'_>, to: At<'_>, flags: u64, now: Time) -> Result<(), Errno> {
        let exchange = flags & RENAME_EXCHANGE != 0;
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 || exchange && flags & RENAME_NOREPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let old = self.walk(from.directory, from.path, Way::NAME)?;
        let new = self.walk(to.directory, to.path, Way::NAME)?;
        let Last::Name(old_name) = old.last else { return Err(Errno::EBUSY) };
        let Last::Name(new_name) = new.last else {
            return Err(if flags & RENAME_NOREPLACE != 0 { Errno::EEXIST } else { Errno::EBUSY });
        };
        if self.tree.volume_of(old.directory) != self.tree.volume_of(new.directory) {
            return Err(Errno::EXDEV);
        }
        let place = self.tree.settle(old.place.ok_or(Errno::ENOENT)?);
        let is_directory = self.status(place)?.is_directory();
        let moved = There { directory: old.directory, name: old_name, place, is_directory, slash: old.slash };
        let target = match new.place {
            Some(place) => {
                let place = self.tree.settle(place);
                let is_directory = self.status(place)?.is_directory();
                Some(There { directory: new.directory, name: new_name, place, is_directory, slash: new.slash })
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
        if target.is_some_and(|target| target.place == moved.place) {
            return Ok(());
        }
        self.check_move(&moved, new.directory, target.as_ref(), exchange)?;
        let name = Named { directory: new.directory, name: new_name.bytes() };
        if exchange {
            self.tree.exchange(moved.named(), name, now)?;
            if let Some(target) = target {
                self.tell_exchanged(&moved, &target);
            }
            return Ok(());
        }
        if let Some(target) = target {
            self.keep_if_open(target.place)?;
        }
        let gone = self.tree.rename(moved.named(), name, now)?;
        self.tell_moved((moved.directory, moved.name.bytes()), (new.directory, new_name.bytes()), moved.is_directory);
        if let Some(gone) = gone.filter(|_| !moved.is_directory) {
            self.tell_self(gone, event::ATTRIB);
        }
        self.tell_self(moved.place, event::MOVE_SELF);
        if let Some(gone) = gone {
            self.lose(gone);
        }
        Ok(())
    }

    /// Tells that two names were exchanged.
    fn tell_exchanged(&mut self, one: &There, other: &There) {
        let (first, second) = ((one.directory, one.name.bytes()), (other.directory, other.name.bytes()));
        self.tell_moved(first, second, one.is_directory);
        self.tell_self(one.place, event::MOVE_SELF);
        self.tell_moved(second, first, other.is_directory);
        self.tell_self(other.place, event::MOVE_SELF);
    }

    /// What slashes say of names that move.
    fn check_kinds(&self, moved: &There, target: Option<&There>, slash: bool, exchange: bool) -> Result<(), Errno> {
        let wrong = if exchange {
            moved.slash && !moved.is_directory || target.is_some_and(|target| target.slash && !target.is_directory)
        } else {
            !moved.is_directory && (moved.slash || slash)
        };
        if wrong { Err(Errno::ENOTDIR) } else { Ok(()) }
    }

    /// No directory moves into itself, and none is replaced by what lies in it.
    fn check_nesting(&self, moved: &There, to: Place, target: Option<&There>, exchange: bool) -> Result<(), Errno> {
        if moved.is_directory && self.is_above(moved.place, to)? {
            return Err(Errno::EINVAL);
        }
        match target {
            Some(target) if target.is_directory && self.is_above(target.place, moved.directory)? => {
                Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY })
            }
            _ => Ok(()),
        }
    }

    /// Whether a directory is another or lies above it.
    fn is_above(&self, above: Place, directory: Place) -> Result<bool, Errno> {
        let (above, top) = (self.tree.settle(above), self.tree.root());
        let mut here = self.tree.settle(directory);
        while here != above {
            if here == top {
                return Ok(false);
            }
            here = self.tree.settle(self.tree.parent(here)?);
        }
        Ok(true)
    }

    /// Whether the process may move a name to where it goes.
    fn check_move(&self, moved: &There, to: Place, target: Option<&There>, exchange: bool) -> Result<(), Errno> {
        self.check_removal(moved.directory, moved.place)?;
        match target {
            Some(target) => {
                self.check_removal(to, target.place)?;
                match (moved.is_directory, target.is_directory) {
                    (true, false) if !exchange => return Err(Errno::ENOTDIR),
                    (false, true) if !exchange => return Err(Errno::EISDIR),
                    _ => {}
                }
            }
            None => self.check_change(to)?,
        }
        // A directory that gets another one above it changes itself.
        let changes_above = self.tree.settle(moved.directory) != self.tree.settle(to);
        for there in [Some(moved), target.filter(|_| exchange)].into_iter().flatten() {
            if there.is_directory && changes_above {
                self.check(there.place, WRITE)?;
            }
        }
        let is_busy = |there: &There| self.tree.is_mount(there.place) || self.tree.settle(self.own.root) == there.place;
        let is_kept = !exchange && self.keeps_name(moved.directory, moved.name.bytes());
        if is_kept || is_busy(moved) || target.is_some_and(is_busy) {
            return Err(Errno::EBUSY);
        }
        match target {
            Some(target) if target.is_directory && !exchange && !self.tree.is_empty(target.place)? => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Makes a directory the working directory.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`.
    pub fn change_directory(&mut self, place: Place) -> Result<(), Errno> {
        self.check_enterable(place)?;
        let before = core::mem::replace(&mut self.own.working_directory, place);
        self.release(before);
        Ok(())
    }

    /// Makes a directory the root of paths.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`; `EPERM`: only root may.
    pub fn change_root(&mut self, place: Place) -> Result<(), Errno> {
        self.check_enterable(place)?;
        if !self.own.who.is_capable(SYS_CHROOT) {
            return Err(Errno::EPERM);
        }
        let before = core::mem::replace(&mut self.own.root, place);
        self.release(before);
        Ok(())
    }

    fn check_enterable(&self, place: Place) -> Result<(), Errno> {
        if !self.status(place)?.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.check(place, crate::credentials::EXECUTE)
    }

    /// Who owns a place and what that means, to be changed.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `EPERM`: it is made up.
    pub fn owner_mut(&mut self, place: Place, now: Time) -> Result<&mut Owner, Errno> {
        let id = self.tree.own(place)?;
        let node = self.tree.node_mut(id)?;
        node.times.changed = now;
        Ok(&mut node.owner)
    }
}

/// A path seen from the working directory.
#[must_use]
pub fn here(path: &[u8]) -> At<'_> {
    At { directory: CURRENT, path }
}
