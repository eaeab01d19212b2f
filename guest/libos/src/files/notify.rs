// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notifies inotify watches of file events. Without watches this costs one check.

use alloc::vec::Vec;

use pando_rt::user;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, Transfer};
use super::inotify::{BY_NAME, Inotify, InotifyId, OPEN_FILE_EVENTS};
use super::locks::FileKey;
use super::namei::{LastComponent, LookupFlags, LookupResult};
use super::tree::InodeRef;
use super::user_copy::each;
use super::{Files, OpenFile, OpenName};
use crate::credentials::READ;
use crate::errno::Errno;
use crate::random::Random;
use crate::uapi::{
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, IN_ATTRIB, IN_CLOSE_NOWRITE, IN_CLOSE_WRITE, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_DONT_FOLLOW,
    IN_EXCL_UNLINK, IN_ISDIR, IN_MODIFY, IN_MOVE_SELF, IN_MOVED_FROM, IN_MOVED_TO, IN_ONLYDIR, O_RDONLY,
};
use crate::wait::Channel;

/// The events that the host reports of files of mounts: changes.
const OUTSIDE_EVENTS: u32 =
    IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF;

impl FileOperations for InotifyId {
    fn link_text(&self, _files: &Files, _file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(b"anon_inode:inotify".to_vec())
    }

    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        let inotify = files.inotifies.get_mut(*self)?;
        each(transfer.ranges, |range, _| {
            let events = inotify.take(range.length() as usize)?;
            user::write(range.start(), &events)?;
            Ok(events.len() as u64)
        })
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        files.inotifies.get(*self).map_or(0, Inotify::ready)
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Notes);
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.inotifies.get(*self).map_or_else(EventTimes::default, |inotify| inotify.event_times)
    }

    fn readable_bytes(&self, files: &Files, _file: &OpenFile) -> Result<u64, Errno> {
        Ok(files.inotifies.get(*self).map_or(0, Inotify::waiting) as u64)
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        files.inotifies.remove(*self);
        Vec::new()
    }
}

impl Files {
    /// Creates an inotify instance. Returns its descriptor.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn create_inotify(&mut self, non_blocking: u64, close_on_exec: bool) -> Result<u64, Errno> {
        let id = self.inotifies.create();
        self.insert(OpenFile::new(id, O_RDONLY | non_blocking), close_on_exec)
    }

    /// The inotify instance of a descriptor.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: it is none.
    pub fn inotify(&self, fd: u64) -> Result<InotifyId, Errno> {
        self.opened(fd)?.downcast().ok_or(Errno::EINVAL)
    }

    /// Watches the file at a path. Returns the watch's number.
    ///
    /// # Errors
    /// `EACCES`, `ENOTDIR`, `EEXIST`, `ENOSPC`; those of looking up paths.
    pub fn watch(&mut self, id: InotifyId, path: &[u8], mask: u32) -> Result<i32, Errno> {
        let way = if mask & IN_DONT_FOLLOW != 0 { LookupFlags::KEEP } else { LookupFlags::FOLLOW };
        let inode = self.find(AT_FDCWD, path, way)?;
        let status = self.status(inode)?;
        if mask & IN_ONLYDIR != 0 && !status.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.check(inode, READ)?;
        self.watch_live(inode, OUTSIDE_EVENTS)?;
        self.inotifies.get_mut(id)?.watch((status.device, status.number), mask)
    }

    /// The key of an inode for watches, and whether it is a directory. `None`: there are no watches.
    fn watched(&self, inode: InodeRef) -> Option<(FileKey, u32)> {
        if self.inotifies.is_empty() {
            return None;
        }
        let status = self.status(inode).ok()?;
        Some(((status.device, status.number), if status.is_directory() { IN_ISDIR } else { 0 }))
    }

    /// Whether an inode is the file of this key.
    fn is_same(&self, inode: InodeRef, key: FileKey) -> bool {
        self.status(inode).is_ok_and(|status| (status.device, status.number) == key)
    }

    /// Tells that something happened to what a name of a directory leads to: those who watch the directory, and those who watch the file.
    fn report(&mut self, above: Option<(InodeRef, &[u8])>, inode: InodeRef, mask: u32) {
        let Some((key, directory)) = self.watched(inode) else { return };
        let is_named = |(above, name): (InodeRef, &[u8])| self.lookup(above, name).is_ok_and(|there| self.is_same(there, key));
        let is_excluded = mask & OPEN_FILE_EVENTS != 0 && mask & BY_NAME == 0 && !above.is_none_or(is_named);
        let mask = mask & !BY_NAME | if is_excluded { IN_EXCL_UNLINK } else { 0 };
        self.changed.push(Channel::Notes);
        if let Some((above, name)) = above
            && let Some((above, _)) = self.watched(above)
        {
            self.inotifies.happened(above, mask | directory, 0, name);
        }
        self.inotifies.happened(key, mask | directory, 0, &[]);
    }

    /// Notifies watches of an event of a looked-up file.
    pub(super) fn notify_opened(&mut self, found: &LookupResult, inode: InodeRef, mask: u32) {
        match &found.last {
            LastComponent::Name(name) => self.report(Some((found.directory, name.bytes())), inode, mask),
            _ => self.notify_directory(inode, mask),
        }
    }

    /// Notifies watches of an event of an open file.
    pub fn notify_open(&mut self, fd: u64, mask: u32) {
        if self.inotifies.is_empty() {
            return;
        }
        let Ok(file) = self.raw_file(fd) else { return };
        let Some(inode) = self.inode_of(file).filter(|_| !file.is_path()) else { return };
        match file.name.as_ref().map(|OpenName { directory, name }| (*directory, name.clone())) {
            Some((directory, name)) => self.report(Some((directory, &name)), inode, mask),
            None => self.notify_directory(inode, mask),
        }
    }

    /// Notifies watches of an event of an inode without a known name; a directory's name can be determined.
    fn notify_directory(&mut self, inode: InodeRef, mask: u32) {
        let above = self.parent(inode).ok().filter(|above| self.watched(*above).is_some_and(|(key, _)| self.inotifies.has(key)));
        let path = above.and_then(|_| self.path_of(inode).ok().flatten()).unwrap_or_default();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.report(above.map(|above| (above, name)), inode, mask);
    }

    /// Notifies watches of the close of an open file.
    pub(super) fn notify_closed(&mut self, fd: u64) {
        let writes = self.raw_file(fd).is_ok_and(OpenFile::writable);
        self.notify_open(fd, if writes { IN_CLOSE_WRITE } else { IN_CLOSE_NOWRITE });
    }

    /// Notifies watches of an event of the file at a path, by flags of the `at` calls.
    pub fn notify_at(&mut self, directory: u64, path: &[u8], flags: u64, mask: u32) {
        if self.inotifies.is_empty() {
            return;
        }
        if path.is_empty() {
            return self.notify_open(directory, mask);
        }
        let way = if flags & AT_SYMLINK_NOFOLLOW != 0 { LookupFlags::KEEP } else { LookupFlags::FOLLOW };
        let Ok(found) = self.walk(directory, path, way) else { return };
        if let Some(inode) = found.inode {
            self.notify_opened(&found, inode, mask);
        }
    }

    /// Notifies the watches of a directory that a name was added or removed.
    pub(super) fn notify_name(&mut self, directory: InodeRef, name: &[u8], is_directory: bool, mask: u32) {
        if let Some((key, _)) = self.watched(directory) {
            self.changed.push(Channel::Notes);
            self.inotifies.happened(key, mask | if is_directory { IN_ISDIR } else { 0 }, 0, name);
        }
    }

    /// Notifies the watches of a file of a change of the file itself.
    pub(super) fn notify_self(&mut self, inode: InodeRef, mask: u32) {
        if let Some((key, _)) = self.watched(inode) {
            self.changed.push(Channel::Notes);
            self.inotifies.happened(key, mask, 0, &[]);
        }
    }

    /// Notifies watches that a name was moved.
    pub(super) fn notify_moved(&mut self, from: (InodeRef, &[u8]), to: (InodeRef, &[u8]), is_directory: bool) {
        if let (Some((old, _)), Some((new, _))) = (self.watched(from.0), self.watched(to.0)) {
            let directory = if is_directory { IN_ISDIR } else { 0 };
            let cookie = self.inotifies.cookie();
            self.changed.push(Channel::Notes);
            self.inotifies.happened(old, IN_MOVED_FROM | directory, cookie, from.1);
            self.inotifies.happened(new, IN_MOVED_TO | directory, cookie, to.1);
        }
    }

    /// Notifies the watches of a file of a mount of a change that the host has reported.
    pub(super) fn notify_outside(&mut self, inode: InodeRef, name: &[u8], mask: u32, cookie: u32) {
        if let Some((key, _)) = self.watched(inode) {
            self.changed.push(Channel::Notes);
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            self.inotifies.happened(key, mask, cookie, name);
        }
    }

    /// Notifies watches that events of a file server were lost.
    pub(super) fn notify_overflow(&mut self) {
        self.changed.push(Channel::Notes);
        self.inotifies.note_overflow();
    }

    /// Notifies watches that a file without names was freed. `inode` is still valid.
    pub(super) fn notify_gone(&mut self, inode: InodeRef) {
        if let Some((key, _)) = self.watched(inode) {
            self.inotifies.note_deletion(key);
        }
    }
}
