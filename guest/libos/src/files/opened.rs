// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of what has no name among the files: processes and queues of messages.

use super::mqueue::MessageQueueId;
use super::watched::{Fate, Watched};
use super::{Descriptor, Files, Kind, OpenFile, flag};
use crate::errno::Errno;
use crate::process::ProcessNumber;
use crate::wait::Channel;

impl Files {
    /// Opens a process. Returns the descriptor, which is not for programs that are executed.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn open_process(&mut self, process: ProcessNumber, has_ended: bool, flags: u64) -> Result<u64, Errno> {
        let id = self.watched.create(process, if has_ended { Fate::Ended } else { Fate::Runs });
        self.insert(OpenFile::new(Kind::Process(id), flag::READ_WRITE | flags & flag::NON_BLOCKING), true)
    }

    /// The process that a descriptor stands for.
    ///
    /// # Errors
    /// `EBADF`: it stands for none.
    pub fn watched_process(&self, fd: u64) -> Result<Watched, Errno> {
        match self.look(fd)?.kind {
            Kind::Process(id) => self.watched.get(id).copied(),
            _ => Err(Errno::EBADF),
        }
    }

    /// Takes note of what has become of a process.
    pub fn tell_fate(&mut self, process: ProcessNumber, fate: Fate) {
        if self.watched.become_of(process, fate) {
            self.changed.push(Channel::Ended(process));
        }
    }

    /// Gives the running process what another has open. Returns the descriptor.
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

    /// The queue of messages that a descriptor stands for.
    ///
    /// # Errors
    /// `EBADF`: it stands for none.
    pub fn message_queue(&self, fd: u64) -> Result<MessageQueueId, Errno> {
        match self.look(fd)?.kind {
            Kind::Messages(id) => Ok(id),
            _ => Err(Errno::EBADF),
        }
    }
}
