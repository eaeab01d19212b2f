// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of objects without a file name: processes and message queues.

use super::mqueue::MessageQueueId;
use super::pidfd::{Fate, PidFile};
use super::{Descriptor, Files, Kind, OpenFile};
use crate::errno::Errno;
use crate::process::ProcessNumber;
use crate::uapi::{O_NONBLOCK, O_RDWR};
use crate::wait::Channel;

impl Files {
    /// Opens a process (`pidfd`). Returns the descriptor, which is closed on `execve`.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn open_process(&mut self, process: ProcessNumber, has_ended: bool, flags: u64) -> Result<u64, Errno> {
        let id = self.watched.create(process, if has_ended { Fate::Ended } else { Fate::Runs });
        self.insert(OpenFile::new(Kind::Process(id), O_RDWR | flags & O_NONBLOCK), true)
    }

    /// The process of a pidfd.
    ///
    /// # Errors
    /// `EBADF`: the descriptor is none.
    pub fn watched_process(&self, fd: u64) -> Result<PidFile, Errno> {
        match self.look(fd)?.kind {
            Kind::Process(id) => self.watched.get(id).copied(),
            _ => Err(Errno::EBADF),
        }
    }

    /// Records a state change of a process in its pidfds.
    pub fn notify_exit(&mut self, process: ProcessNumber, fate: Fate) {
        if self.watched.become_of(process, fate) {
            self.changed.push(Channel::Ended(process));
        }
    }

    /// Duplicates a descriptor of another process into the running one. Returns the new descriptor.
    ///
    /// # Errors
    /// `EBADF`: it has no such descriptor. `EMFILE`.
    pub fn take_descriptor(&mut self, process: ProcessNumber, fd: u64) -> Result<u64, Errno> {
        let file = u32::try_from(fd).ok().and_then(|fd| self.of(process)?.open_file(fd)).ok_or(Errno::EBADF)?;
        let fd = self.free_from(0)?;
        let (_, references) = self.open.get_mut(file).ok_or(Errno::EBADF)?;
        *references += 1;
        self.set(fd, Descriptor { file, close_on_exec: true });
        Ok(fd)
    }

    /// The message queue of a descriptor.
    ///
    /// # Errors
    /// `EBADF`: the descriptor is none.
    pub fn message_queue(&self, fd: u64) -> Result<MessageQueueId, Errno> {
        match self.look(fd)?.kind {
            Kind::Messages(id) => Ok(id),
            _ => Err(Errno::EBADF),
        }
    }
}
