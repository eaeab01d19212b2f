// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two tables: descriptors, and the open files to which they refer.

use alloc::vec::Vec;

use super::locks::LockOwner;
use super::{FileObject, Files, OpenFile};
use crate::errno::Errno;
use crate::wait::Channel;

/// An entry of the process's descriptor table.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    pub(super) file: usize,
    /// Close on `execve`.
    pub close_on_exec: bool,
}

/// The target of a duplicate.
#[derive(Clone, Copy, Debug)]
pub enum DescriptorTarget {
    /// The lowest free descriptor from this number on.
    From(u64),
    /// This descriptor.
    At(u64),
}

impl Files {
    /// The entry of a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn descriptor(&mut self, fd: u64) -> Result<&mut Descriptor, Errno> {
        // File descriptors are ints: the upper half of the register is ignored.
        self.current.descriptors.get_mut(fd as u32 as usize).ok_or(Errno::EBADF)
    }

    /// The number of a descriptor's open file.
    pub(super) fn index(&self, fd: u64) -> Result<usize, Errno> {
        self.current.open_file(fd as u32).ok_or(Errno::EBADF)
    }

    /// The number of a descriptor's open file, which is unique while it is open.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn number(&self, fd: u64) -> Result<usize, Errno> {
        self.index(fd)
    }

    /// The open file of this number.
    pub(super) fn file_at(&self, number: usize) -> Result<&OpenFile, Errno> {
        self.open.get(number).map(|(file, _)| file).ok_or(Errno::EBADF)
    }

    /// The open file of this number, mutably.
    pub(super) fn file_at_mut(&mut self, number: usize) -> Result<&mut OpenFile, Errno> {
        self.open.get_mut(number).map(|(file, _)| file).ok_or(Errno::EBADF)
    }

    /// Replaces the object behind an open file.
    pub(super) fn replace_object(&mut self, number: usize, object: impl Into<FileObject>) {
        if let Some((file, _)) = self.open.get_mut(number) {
            file.object = object.into();
        }
    }

    /// A descriptor's open file (Linux's `fget_raw`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn raw_file(&self, fd: u64) -> Result<&OpenFile, Errno> {
        self.open.get(self.index(fd)?).map(|(file, _)| file).ok_or(Errno::EBADF)
    }

    /// A descriptor's open file, mutably.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&mut self, fd: u64) -> Result<&mut OpenFile, Errno> {
        let index = self.index(fd)?;
        self.open.get_mut(index).map(|(file, _)| file).ok_or(Errno::EBADF)
    }

    /// A descriptor's open file, unless it was opened with `O_PATH`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn opened(&self, fd: u64) -> Result<&OpenFile, Errno> {
        self.raw_file(fd).and_then(|file| if file.is_path() { Err(Errno::EBADF) } else { Ok(file) })
    }

    /// A descriptor's open file, mutably, unless it was opened with `O_PATH`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn file(&mut self, fd: u64) -> Result<&mut OpenFile, Errno> {
        self.get(fd).and_then(|file| if file.is_path() { Err(Errno::EBADF) } else { Ok(file) })
    }

    /// Adds an initial file of the process at the next descriptor.
    pub(super) fn start_with(&mut self, file: OpenFile) {
        let slot = self.open.free_from(0);
        self.open.put(slot, (file, 1));
        self.current.descriptors.put(self.current.descriptors.end(), Descriptor { file: slot, close_on_exec: false });
    }

    /// Opens a file at the lowest free descriptor.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn insert(&mut self, file: OpenFile, close_on_exec: bool) -> Result<u64, Errno> {
        let fd = match self.free_from(0) {
            Ok(fd) => fd,
            Err(error) => {
                self.end(file);
                return Err(error);
            }
        };
        let slot = self.open.free_from(0);
        self.open.put(slot, (file, 1));
        self.set(fd, Descriptor { file: slot, close_on_exec });
        Ok(fd)
    }

    /// The lowest free descriptor that is not below `minimum`.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn free_from(&self, minimum: u64) -> Result<u64, Errno> {
        let fd = self.current.descriptors.free_from(minimum as usize) as u64;
        if fd < self.current.descriptors_max { Ok(fd) } else { Err(Errno::EMFILE) }
    }

    pub(super) fn set(&mut self, fd: u64, descriptor: Descriptor) {
        self.current.descriptors.put(fd as usize, descriptor);
    }

    /// The end of the descriptor table: no descriptor from here on is open.
    #[must_use]
    pub fn descriptors_end(&self) -> u64 {
        self.current.descriptors.end() as u64
    }

    /// Closes a descriptor, and its open file if it was the last one.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, fd: u64) -> Result<(), Errno> {
        let index = self.index(fd)?;
        self.before_close(fd, index);
        self.current.descriptors.take(fd as u32 as usize);
        if let Some(file) = self.drop_reference(index) {
            self.end(file);
        }
        Ok(())
    }

    /// Notifies watchers of the close, and releases locks: the process's own on the file, and with the last descriptor those of the open
    /// file.
    fn before_close(&mut self, fd: u64, index: usize) {
        let references = self.open.get(index).map_or(0, |(_, references)| *references);
        if references == 1 {
            self.notify_closed(fd);
        }
        if let Ok(object) = self.file_at(index).map(|file| file.object) {
            object.operations().flush(self);
        }
        let key = if self.locks.is_empty() { None } else { self.lock_key(fd).ok() };
        if let (Some(key), Ok(false)) = (key, self.raw_file(fd).map(OpenFile::is_path)) {
            self.changed.push(Channel::Locks);
            self.locks.release(key, LockOwner::Process(self.current.process));
            if references == 1 {
                self.locks.release(key, LockOwner::OpenFile(index));
            }
        }
    }

    /// Decrements the reference count of an open file. Returns the file if the count reaches 0.
    pub(super) fn drop_reference(&mut self, index: usize) -> Option<OpenFile> {
        let (_, references) = self.open.get_mut(index)?;
        *references -= 1;
        if *references > 0 {
            return None;
        }
        self.epolls.forget(index);
        self.open.take(index).map(|(file, _)| file)
    }

    /// Releases the resources of an open file without references.
    pub(super) fn end(&mut self, file: OpenFile) {
        // Its resources may include other open files, recursively.
        let mut ended = Vec::from([file]);
        while let Some(file) = ended.pop() {
            let inode = self.inode_of(&file);
            let object = file.object;
            ended.extend(object.operations().release(self, &file));
            if let Some(inode) = inode {
                self.release(inode);
            }
        }
    }

    /// Duplicates the descriptor `fd`; a previous file at the target is closed first.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`, `EMFILE`.
    pub fn duplicate(&mut self, fd: u64, target: DescriptorTarget, close_on_exec: bool) -> Result<u64, Errno> {
        let file = self.index(fd)?;
        let to = match target {
            DescriptorTarget::From(minimum) if minimum >= self.current.descriptors_max => return Err(Errno::EINVAL),
            DescriptorTarget::From(minimum) => self.free_from(minimum)?,
            DescriptorTarget::At(to) if to >= self.current.descriptors_max => return Err(Errno::EBADF),
            DescriptorTarget::At(to) => {
                // It is no error if the target was not open.
                let _ = self.close(to);
                to
            }
        };
        if let Some((_, references)) = self.open.get_mut(file) {
            *references += 1;
        }
        self.set(to, Descriptor { file, close_on_exec });
        Ok(to)
    }

    /// The numbers of all descriptors.
    pub fn open_descriptors(&self) -> impl Iterator<Item = u32> {
        self.current.open_descriptors()
    }
}
