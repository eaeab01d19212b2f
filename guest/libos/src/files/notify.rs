// SPDX-License-Identifier: MIT OR Apache-2.0
//! Telling those who watch files (`inotify`) what happens to them. Where nobody watches anything, this costs a look.

use super::inotify::{InotifyId, event};
use super::locks::FileKey;
use super::names::{AT_SYMLINK_NOFOLLOW, CURRENT, Found, Last, Way};
use super::tree::Place;
use super::{Files, Kind, OpenFile, OpenName, flag};
use crate::credentials::READ;
use crate::errno::Errno;
use crate::wait::Channel;

impl Files {
    /// Makes an instance of inotify. Returns its descriptor.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn create_inotify(&mut self, non_blocking: u64, close_on_exec: bool) -> Result<u64, Errno> {
        let id = self.inotifies.create();
        self.insert(OpenFile::new(Kind::Inotify(id), flag::READ_ONLY | non_blocking), close_on_exec)
    }

    /// The instance that a descriptor stands for.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: it is none.
    pub fn inotify(&self, fd: u64) -> Result<InotifyId, Errno> {
        match self.look(fd)?.kind {
            Kind::Inotify(id) => Ok(id),
            Kind::Name(_) => Err(Errno::EBADF),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Watches what a path names. Returns the watch's number.
    ///
    /// # Errors
    /// `EACCES`, `ENOTDIR`, `EEXIST`, `ENOSPC`; those of looking up paths.
    pub fn watch(&mut self, id: InotifyId, path: &[u8], mask: u32) -> Result<i32, Errno> {
        let way = if mask & event::DONT_FOLLOW != 0 { Way::KEEP } else { Way::FOLLOW };
        let place = self.find(CURRENT, path, way)?;
        let status = self.status(place)?;
        if mask & event::ONLY_DIRECTORY != 0 && !status.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.check(place, READ)?;
        self.inotifies.get_mut(id)?.watch((status.device, status.number), mask)
    }

    /// What a place is known by, and whether it is a directory. `None`: nobody watches anything, so that it does not matter.
    fn watched(&self, place: Place) -> Option<(FileKey, u32)> {
        if self.inotifies.is_empty() {
            return None;
        }
        let status = self.status(place).ok()?;
        Some(((status.device, status.number), if status.is_directory() { event::IS_DIRECTORY } else { 0 }))
    }

    /// Tells that something happened to what a name of a directory leads to: those who watch the directory, and those who watch the file.
    fn tell(&mut self, above: Option<(Place, &[u8])>, place: Place, mask: u32) {
        let Some((key, directory)) = self.watched(place) else { return };
        self.changed.push(Channel::Notes);
        if let Some((above, name)) = above
            && let Some((above, _)) = self.watched(above)
        {
            self.inotifies.happened(above, mask | directory, 0, name);
        }
        self.inotifies.happened(key, mask | directory, 0, &[]);
    }

    /// Tells that something happened to what a walk has found.
    pub(super) fn tell_opened(&mut self, found: &Found, place: Place, mask: u32) {
        match &found.last {
            Last::Name(name) => self.tell(Some((found.directory, name.bytes())), place, mask),
            _ => self.tell_directory(place, mask),
        }
    }

    /// Tells that something happened to an open file.
    pub fn tell_open(&mut self, fd: u64, mask: u32) {
        if self.inotifies.is_empty() {
            return;
        }
        let Ok(file) = self.look(fd) else { return };
        let Some(place) = self.place_of(file).filter(|_| !file.is_name()) else { return };
        match file.name.as_ref().map(|OpenName { directory, name }| (*directory, name.clone())) {
            Some((directory, name)) => self.tell(Some((directory, &name)), place, mask),
            None => self.tell_directory(place, mask),
        }
    }

    /// The same where the name is not known: of a directory it can be found.
    fn tell_directory(&mut self, place: Place, mask: u32) {
        let above = self.parent(place).ok().filter(|above| self.watched(*above).is_some_and(|(key, _)| self.inotifies.has(key)));
        let path = above.and_then(|_| self.path_of(place).ok().flatten()).unwrap_or_default();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.tell(above.map(|above| (above, name)), place, mask);
    }

    /// Tells that an open file is being closed.
    pub(super) fn tell_closed(&mut self, fd: u64) {
        let writes = self.look(fd).is_ok_and(OpenFile::writable);
        self.tell_open(fd, if writes { event::CLOSE_WRITE } else { event::CLOSE_NOWRITE });
    }

    /// Tells that something happened to what a path names, seen from a directory, with flags of the `at` calls.
    pub fn tell_at(&mut self, directory: u64, path: &[u8], flags: u64, mask: u32) {
        if self.inotifies.is_empty() {
            return;
        }
        if path.is_empty() {
            return self.tell_open(directory, mask);
        }
        let way = if flags & AT_SYMLINK_NOFOLLOW != 0 { Way::KEEP } else { Way::FOLLOW };
        let Ok(found) = self.walk(directory, path, way) else { return };
        if let Some(place) = found.place {
            self.tell_opened(&found, place, mask);
        }
    }

    /// Tells that a name appeared in a directory, or went.
    pub(super) fn tell_name(&mut self, directory: Place, name: &[u8], is_directory: bool, mask: u32) {
        if let Some((key, _)) = self.watched(directory) {
            self.changed.push(Channel::Notes);
            self.inotifies.happened(key, mask | if is_directory { event::IS_DIRECTORY } else { 0 }, 0, name);
        }
    }

    /// Tells that a file itself has changed.
    pub(super) fn tell_self(&mut self, place: Place, mask: u32) {
        if let Some((key, _)) = self.watched(place) {
            self.changed.push(Channel::Notes);
            self.inotifies.happened(key, mask, 0, &[]);
        }
    }

    /// Tells that a name has moved.
    pub(super) fn tell_moved(&mut self, from: (Place, &[u8]), to: (Place, &[u8]), is_directory: bool) {
        if let (Some((old, _)), Some((new, _))) = (self.watched(from.0), self.watched(to.0)) {
            let directory = if is_directory { event::IS_DIRECTORY } else { 0 };
            let cookie = self.inotifies.cookie();
            self.changed.push(Channel::Notes);
            self.inotifies.happened(old, event::MOVED_FROM | directory, cookie, from.1);
            self.inotifies.happened(new, event::MOVED_TO | directory, cookie, to.1);
        }
    }

    /// Tells that what had lost its last name is gone for good. `place` leads to it still.
    pub(super) fn tell_gone(&mut self, place: Place) {
        if let Some((key, _)) = self.watched(place) {
            self.inotifies.gone(key);
        }
    }
}
