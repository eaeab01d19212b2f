// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two tables: descriptors, and the open files that they stand for.

use alloc::vec::Vec;

use pando_rt::clock;

use super::locks::Owner;
use super::pty::End;
use super::status::time;
use super::{Files, Kind, OpenFile};
use crate::errno::Errno;
use crate::wait::Channel;

/// What a number of the process stands for.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    pub(super) file: usize,
    /// Close when another program is executed.
    pub close_on_exec: bool,
}

/// Where a duplicate goes.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The lowest free descriptor from here on.
    From(u64),
    /// Here.
    At(u64),
}

impl Files {
    /// What a number stands for.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn descriptor(&mut self, fd: u64) -> Result<&mut Descriptor, Errno> {
        // File descriptors are ints: the upper half of the register says nothing.
        self.own.descriptors.get_mut(fd as u32 as usize).ok_or(Errno::EBADF)
    }

    /// The number of the open file that a descriptor stands for.
    pub(super) fn index(&self, fd: u64) -> Result<usize, Errno> {
        self.own.open_file(fd as u32).ok_or(Errno::EBADF)
    }

    /// The number of the open file that a descriptor stands for: as long as it is open, no other has it.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn number(&self, fd: u64) -> Result<usize, Errno> {
        self.index(fd)
    }

    /// The open file that a descriptor stands for, to look at.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn look(&self, fd: u64) -> Result<&OpenFile, Errno> {
        self.open.get(self.index(fd)?).map(|(file, _)| file).ok_or(Errno::EBADF)
    }

    /// The open file that a descriptor stands for.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&mut self, fd: u64) -> Result<&mut OpenFile, Errno> {
        let index = self.index(fd)?;
        self.open.get_mut(index).map(|(file, _)| file).ok_or(Errno::EBADF)
    }

    /// The same, unless it is a name only.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn file(&mut self, fd: u64) -> Result<&mut OpenFile, Errno> {
        self.get(fd).and_then(|file| if file.is_name() { Err(Errno::EBADF) } else { Ok(file) })
    }

    /// Adds a file that the process starts with, at the next descriptor.
    pub(super) fn start_with(&mut self, file: OpenFile) {
        let place = self.open.free_from(0);
        self.open.put(place, (file, 1));
        self.own.descriptors.put(self.own.descriptors.end(), Descriptor { file: place, close_on_exec: false });
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
        let place = self.open.free_from(0);
        self.open.put(place, (file, 1));
        self.set(fd, Descriptor { file: place, close_on_exec });
        Ok(fd)
    }

    /// The lowest free descriptor that is not below `minimum`.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn free_from(&self, minimum: u64) -> Result<u64, Errno> {
        let fd = self.own.descriptors.free_from(minimum as usize) as u64;
        if fd < self.own.descriptors_max { Ok(fd) } else { Err(Errno::EMFILE) }
    }

    pub(super) fn set(&mut self, fd: u64, descriptor: Descriptor) {
        self.own.descriptors.put(fd as usize, descriptor);
    }

    /// Where descriptors end: none from here on is open.
    #[must_use]
    pub fn descriptors_end(&self) -> u64 {
        self.own.descriptors.end() as u64
    }

    /// Closes a descriptor, and its file with its last one.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, fd: u64) -> Result<(), Errno> {
        let index = self.index(fd)?;
        self.before_close(fd, index);
        self.own.descriptors.take(fd as u32 as usize);
        if let Some(file) = self.drop_reference(index) {
            self.end(file);
        }
        Ok(())
    }

    /// Tells that an open file is being closed, and gives up the locks that go with a descriptor: the process's own on its file, and with the last descriptor the open file's.
    fn before_close(&mut self, fd: u64, index: usize) {
        let references = self.open.get(index).map_or(0, |(_, references)| *references);
        if references == 1 {
            self.tell_closed(fd);
        }
        if let Ok(&OpenFile { kind: Kind::Messages(id), .. }) = self.look(fd) {
            self.stop_listening(id, self.own.process);
        }
        let key = if self.locks.is_empty() { None } else { self.lock_key(fd).ok() };
        if let (Some(key), Ok(false)) = (key, self.look(fd).map(OpenFile::is_name)) {
            self.changed.push(Channel::Locks);
            self.locks.release(key, Owner::Process(self.own.process));
            if references == 1 {
                self.locks.release(key, Owner::OpenFile(index));
            }
        }
    }

    /// Counts an open file once less. Returns it if that was the last time.
    pub(super) fn drop_reference(&mut self, index: usize) -> Option<OpenFile> {
        let (_, references) = self.open.get_mut(index)?;
        *references -= 1;
        if *references > 0 {
            return None;
        }
        self.epolls.forget(index);
        self.open.take(index).map(|(file, _)| file)
    }

    /// Lets go of what a file holds that nobody has open any more.
    pub(super) fn end(&mut self, file: OpenFile) {
        // One may hold others, and these others again.
        let mut ended = Vec::from([file]);
        while let Some(file) = ended.pop() {
            let place = self.place_of(&file);
            match file.kind {
                Kind::Pipe(id) => {
                    self.pipes.close(id, file.readable(), file.writable());
                    self.changed.push(Channel::Pipe(id.0));
                }
                Kind::Timer(id) => self.timers.remove(id),
                Kind::Process(id) => self.watched.remove(id),
                Kind::Messages(id) => self.queues.close(id),
                Kind::Master(id, _) => self.close_pty(id, End::Master, time(clock::wall())),
                Kind::Slave(id, _) => self.close_pty(id, End::Slave, time(clock::wall())),
                Kind::Epoll(id) => self.epolls.remove(id),
                Kind::Inotify(id) => self.inotifies.remove(id),
                Kind::Socket(id) => {
                    let held = self.sockets.close(id);
                    self.changed.push(Channel::Sockets);
                    ended.extend(held.into_iter().filter_map(|index| self.drop_reference(index)));
                }
                _ => {}
            }
            if let Some(place) = place {
                self.release(place);
            }
        }
    }

    /// Makes another descriptor for the file of `fd`; what stood where it goes is closed first.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`, `EMFILE`.
    pub fn duplicate(&mut self, fd: u64, target: Target, close_on_exec: bool) -> Result<u64, Errno> {
        let file = self.index(fd)?;
        let to = match target {
            Target::From(minimum) if minimum >= self.own.descriptors_max => return Err(Errno::EINVAL),
            Target::From(minimum) => self.free_from(minimum)?,
            Target::At(to) if to >= self.own.descriptors_max => return Err(Errno::EBADF),
            Target::At(to) => {
                // That nothing was open there is no error.
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
        self.own.open_descriptors()
    }
}
