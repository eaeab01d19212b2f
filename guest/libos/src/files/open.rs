// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the file at a path, and creates it if requested.

use super::cells_file::{CELLS, CellsFile};
use super::char_device::{MemoryDevice, MemoryDeviceKind};
use super::console_file::ConsoleFile;
use super::directory_file::{DirectoryFile, PathFile};
use super::namei::{LastComponent, LookupFlags, LookupResult};
use super::pando_file::{PANDO, PandoFile};
use super::pipe_file::PipeFile;
use super::proc::file::ProcFile;
use super::pty;
use super::pty_file::PtyMaster;
use super::regular_file::RegularFile;
use super::tree::content::Content;
use super::tree::node::{Body, NodeId};
use super::tree::{InodeRef, NameAt};
use super::{FileObject, Files, OpenFile, OpenName};
use crate::credentials::Owner;
use crate::credentials::{EXECUTE, READ, WRITE};
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::terminal::PtyId;
use crate::terminal::TerminalName;
use crate::uapi::{
    __O_TMPFILE, AT_FDCWD, IN_CREATE, IN_MODIFY, IN_OPEN, O_ACCMODE, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOATIME,
    O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_TRUNC, O_WRONLY, S_ISGID, S_ISVTX, S_IXGRP,
};
use crate::wait::Channel;

/// Mode bits that a new file may get.
const MODE: u64 = 0o7777;

impl Files {
    /// Opens the file at a path.
    ///
    /// # Errors
    /// Those of `openat2`, except those of its argument checks.
    pub fn open_path(&mut self, directory: u64, path: &[u8], flags: u64, mode: u64, resolve: u64, now: Time) -> Result<OpenFile, Errno> {
        let flags = if flags & O_PATH != 0 { flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) } else { flags };
        if flags & __O_TMPFILE != 0 {
            return self.open_temporary(directory, path, flags, mode, now);
        }
        if flags & O_CREAT != 0 && flags & O_DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        let create = flags & O_CREAT != 0;
        let follow = flags & O_NOFOLLOW == 0 && !(create && flags & O_EXCL != 0);
        let found = self.walk(directory, path, LookupFlags { follow, strict: !create, resolve })?;
        if create && found.slash && matches!(found.last, LastComponent::Name(_)) {
            return Err(Errno::EISDIR);
        }
        let Some(inode) = found.inode else {
            if !create {
                return Err(Errno::ENOENT);
            }
            let id = self.create(&found, mode, flags & O_EXCL != 0, now)?;
            self.notify_opened(&found, InodeRef::Node(id), IN_OPEN);
            return Ok(self.named(OpenFile::new(RegularFile::Node(id), file_flags(flags)), &found));
        };
        if create {
            match self.status(inode)?.kind() {
                _ if flags & O_EXCL != 0 => return Err(Errno::EEXIST),
                Some(FileType::Directory) => return Err(Errno::EISDIR),
                _ => {}
            }
        }
        let object = self.open_inode(inode, flags, now)?;
        if flags & O_PATH == 0 {
            self.notify_opened(&found, inode, IN_OPEN);
            if flags & O_TRUNC != 0 {
                self.notify_opened(&found, inode, IN_MODIFY);
            }
        }
        Ok(self.named(OpenFile::new(object, file_flags(flags)), &found))
    }

    /// Adds the name by which it was found to an open file.
    fn named(&self, mut file: OpenFile, found: &LookupResult) -> OpenFile {
        if let (LastComponent::Name(name), false) = (&found.last, file.downcast::<DirectoryFile>().is_some()) {
            file.name = Some(OpenName { directory: found.directory, name: name.bytes().into() });
        }
        file
    }

    /// Creates a file at an unused name.
    ///
    /// # Errors
    /// `EISDIR`: the last component is no name. `EACCES`, `ENOENT`, `ENOSPC`, `EIO`.
    fn create(&mut self, found: &LookupResult, mode: u64, exclusive: bool, now: Time) -> Result<NodeId, Errno> {
        let LastComponent::Name(name) = &found.last else { return Err(Errno::EISDIR) };
        self.check_change(found.directory)?;
        let owner = self.new_owner(found.directory, mode, false)?;
        let (at, body) = (NameAt { directory: found.directory, name: name.bytes() }, Body::Regular(Content::default()));
        let id = match self.create_live(at, &body, owner.permissions, exclusive)? {
            Some(id) => id,
            None => self.tree.create(at, body, owner, now)?,
        };
        self.notify_name(found.directory, name.bytes(), false, IN_CREATE);
        Ok(id)
    }

    /// The owner and permissions of a new file of the process in a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    pub fn new_owner(&self, directory: InodeRef, mode: u64, is_directory: bool) -> Result<Owner, Errno> {
        let above = self.status(directory)?.owner();
        let inherits = above.permissions & S_ISGID != 0;
        let mut permissions = (mode & !self.current.umask & MODE) as u16 | if inherits && is_directory { S_ISGID } else { 0 };
        // No program of a group that the process is not of.
        let of_program = u64::from(S_ISGID | S_IXGRP);
        let is_program = mode & of_program == of_program;
        if inherits && !is_directory && is_program && !self.current.credentials.keeps_group_id(above.gid) {
            permissions &= !S_ISGID;
        }
        let gid = if inherits { above.gid } else { self.current.credentials.group.file };
        Ok(Owner { uid: self.current.credentials.user.file, gid, permissions })
    }

    /// Checks that the process may add and remove names in a directory.
    ///
    /// # Errors
    /// `EACCES`; `ENOENT`: the directory was removed; `EPERM`: it is in a pseudo filesystem.
    pub fn check_change(&self, directory: InodeRef) -> Result<(), Errno> {
        if matches!(directory, InodeRef::Proc(_)) {
            return Err(Errno::ENOENT);
        }
        self.check(directory, WRITE | EXECUTE)
    }

    /// Checks that the process may remove a name, which leads to `inode`, from a directory.
    ///
    /// # Errors
    /// `EACCES`; `EPERM`: the directory is sticky, and the process owns neither it nor the file.
    pub fn check_removal(&self, directory: InodeRef, inode: InodeRef) -> Result<(), Errno> {
        self.check_change(directory)?;
        let above = self.status(directory)?.owner();
        let owns = self.current.credentials.owns(above) || self.current.credentials.owns(self.status(inode)?.owner());
        if above.permissions & S_ISVTX != 0 && !owns { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Checks that the process has all permissions of `wanted` on an inode.
    ///
    /// # Errors
    /// `EACCES`, `ENOENT`, `EIO`.
    pub fn check(&self, inode: InodeRef, wanted: u64) -> Result<(), Errno> {
        let status = self.status(inode)?;
        if self.current.credentials.may(status.owner(), status.is_directory(), wanted) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Makes a directory a file system of its own.
    ///
    /// # Errors
    /// Those of path lookup and of [`Tree::mount_tmpfs`](super::tree::Tree::mount_tmpfs).
    pub fn mount_tmpfs(&mut self, path: &[u8]) -> Result<(), Errno> {
        let inode = self.find(AT_FDCWD, path, LookupFlags::FOLLOW)?;
        self.tree.mount_tmpfs(inode, path)
    }

    /// Forbids changes of a volume, by its mount point, or of a file of a volume.
    ///
    /// # Errors
    /// `EINVAL`: the path leads to neither; those of path lookup.
    pub fn protect(&mut self, path: &[u8]) -> Result<(), Errno> {
        let inode = self.find(AT_FDCWD, path, LookupFlags::FOLLOW)?;
        self.tree.protect(inode)
    }

    /// Opens the file of an inode.
    fn open_inode(&mut self, inode: InodeRef, flags: u64, now: Time) -> Result<FileObject, Errno> {
        let status = self.status(inode)?;
        let kind = status.kind();
        if flags & O_DIRECTORY != 0 && kind != Some(FileType::Directory) {
            return Err(Errno::ENOTDIR);
        }
        if flags & O_PATH != 0 {
            return Ok(PathFile(inode).into());
        }
        let (reads, writes) = wants(flags);
        let writes = writes || flags & O_TRUNC != 0;
        match kind {
            Some(FileType::Symlink) => return Err(Errno::ELOOP),
            Some(FileType::Directory) if writes => return Err(Errno::EISDIR),
            _ => {}
        }
        let wanted = if reads { READ } else { 0 } | if writes { WRITE } else { 0 };
        if !self.current.credentials.may(status.owner(), status.is_directory(), wanted) {
            return Err(Errno::EACCES);
        }
        if flags & O_NOATIME != 0 && !self.current.credentials.owns(status.owner()) {
            return Err(Errno::EPERM);
        }
        if writes {
            // A device or FIFO is no part of its file system.
            if kind == Some(FileType::Regular) && self.tree.is_read_only(inode) {
                return Err(Errno::EROFS);
            }
            self.check_not_running(inode)?;
        }
        match (inode, kind) {
            (InodeRef::Proc(entry), Some(FileType::Regular)) => match entry.text() {
                Some(text) if !writes || entry.is_writable() => Ok(ProcFile::new(entry, text).into()),
                _ => Err(Errno::EACCES),
            },
            (InodeRef::Descriptor(fd), _) => self.open_again(fd, flags),
            (InodeRef::Proc(entry), Some(FileType::Directory)) if entry.lists_descriptors() => {
                self.inspected(entry.subject()).map(|_| DirectoryFile(inode).into())
            }
            (_, Some(FileType::Directory)) => Ok(DirectoryFile(inode).into()),
            (_, Some(FileType::Regular)) => self.open_regular(inode, flags, now),
            (_, Some(FileType::CharacterDevice)) => self.open_device(inode, status.numbers, now),
            (_, Some(FileType::Fifo)) => self.open_fifo(inode, flags),
            _ => Err(Errno::ENXIO),
        }
    }

    fn open_regular(&mut self, inode: InodeRef, flags: u64, now: Time) -> Result<FileObject, Errno> {
        if let InodeRef::Node(id) = self.tree.real_inode(inode)
            && (wants(flags).1 || flags & O_TRUNC != 0)
        {
            self.check_handle(id)?;
        }
        if flags & O_TRUNC != 0 {
            let id = self.tree.copy_up(inode)?;
            let node = self.tree.node_mut(id)?;
            node.content_mut()?.resize(0)?;
            node.touch(now);
        }
        match self.tree.real_inode(inode) {
            InodeRef::Image(image) => Ok(RegularFile::Image(image, self.tree.image_file(image)?).into()),
            InodeRef::Node(id) => Ok(RegularFile::Node(id).into()),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::ENXIO),
        }
    }

    /// Opens a device by its number.
    fn open_device(&mut self, inode: InodeRef, numbers: (u32, u32), now: Time) -> Result<FileObject, Errno> {
        let kind = match numbers {
            (1, 3) => MemoryDeviceKind::Null,
            (1, 5) => MemoryDeviceKind::Zero,
            (1, 7) => MemoryDeviceKind::Full,
            (1, 8 | 9) => MemoryDeviceKind::Random,
            PANDO => return Ok(PandoFile::open(inode).into()),
            CELLS => return Ok(CellsFile::open(&mut self.cells_files, inode).into()),
            (5, 0) => match self.controlling {
                Some(TerminalName::Operator) => return Ok(ConsoleFile::terminal(inode).into()),
                Some(TerminalName::Pseudo(id)) => return self.open_peer(id).map(FileObject::from),
                None => return Err(Errno::ENXIO),
            },
            (5, 2) => return self.create_pty(now).map(|pty| PtyMaster { pty, inode }.into()),
            (pty::MAJOR, number) if self.ptys.get(PtyId(number)).is_ok() => {
                return self.open_pty(PtyId(number), inode).map(FileObject::from);
            }
            (5, 1) | (pty::MAJOR, 0) if self.has_terminal() => {
                return Ok(ConsoleFile::terminal(inode).into());
            }
            _ => return Err(Errno::ENXIO),
        };
        Ok(MemoryDevice { kind, inode }.into())
    }

    fn open_fifo(&mut self, inode: InodeRef, flags: u64) -> Result<FileObject, Errno> {
        let (reads, writes) = wants(flags);
        let (has_reader, _) = self.pipes.ends(inode);
        if writes && !reads && !has_reader && flags & O_NONBLOCK != 0 {
            return Err(Errno::ENXIO);
        }
        let id = self.pipes.open(Some(inode), reads, writes)?;
        self.changed.push(Channel::Pipe(id.0));
        Ok(PipeFile::new(id).into())
    }

    /// Opens the nameless file of a descriptor again.
    fn open_again(&mut self, fd: u32, flags: u64) -> Result<FileObject, Errno> {
        let (reads, writes) = wants(flags);
        let object = self.raw_file(fd.into())?.object;
        object.operations().reopen(self, reads, writes).map(|()| object)
    }

    /// Whether the open of a FIFO still waits for its other end.
    #[must_use]
    pub fn awaits_other_end(&self, file: &OpenFile) -> bool {
        file.downcast::<PipeFile>().is_some_and(|pipe| pipe.awaits_other_end(self, file))
    }

    /// Records that the open of a FIFO begins to wait for its other end.
    pub fn start_to_wait(&mut self, fd: u64) {
        let Ok(file) = self.raw_file(fd) else { return };
        let (reads, pipe) = (file.readable(), file.downcast::<PipeFile>());
        if let (Some(pipe), Ok(number)) = (pipe, self.index(fd)) {
            self.replace_object(number, pipe.begin_open(self, reads));
        }
    }

    /// Opens an unnamed file in a directory (`O_TMPFILE`).
    fn open_temporary(&mut self, directory: u64, path: &[u8], flags: u64, mode: u64, now: Time) -> Result<OpenFile, Errno> {
        if flags & O_DIRECTORY == 0 || !wants(flags).1 {
            return Err(Errno::EINVAL);
        }
        let inode = self.find(directory, path, LookupFlags::FOLLOW)?;
        if !self.status(inode)?.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.check_change(inode)?;
        let owner = self.new_owner(inode, mode, false)?;
        let id = self.nameless(inode, owner, now)?;
        self.tree.node_mut(id)?.temporary = flags & O_EXCL == 0;
        Ok(OpenFile::new(RegularFile::Node(id), file_flags(flags)))
    }

    /// Creates an unnamed regular file, on the volume of an inode.
    ///
    /// # Errors
    /// `ENOSPC`; `EOPNOTSUPP`: the inode is in a pseudo filesystem.
    pub fn nameless(&mut self, inode: InodeRef, owner: Owner, now: Time) -> Result<NodeId, Errno> {
        let volume = self.tree.volume_of(inode).filter(|_| !self.is_live(inode)).ok_or(Errno::EOPNOTSUPP)?;
        self.tree.make(volume, Body::Regular(Content::default()), owner, now)
    }
}

/// Whether flags request reading, and writing.
fn wants(flags: u64) -> (bool, bool) {
    match flags & O_ACCMODE {
        O_RDONLY => (true, false),
        O_WRONLY => (false, true),
        // Linux checks both permissions, and then allows neither access.
        _ => (true, true),
    }
}

/// The flags that an open file keeps.
fn file_flags(flags: u64) -> u64 {
    let large = if flags & O_PATH == 0 { O_LARGEFILE } else { 0 };
    flags & !(O_CLOEXEC | O_CREAT | O_EXCL | O_TRUNC) & 0xffff_ffff | large
}
