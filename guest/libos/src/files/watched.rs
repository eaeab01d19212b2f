// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that are files: `pidfd`. Each open file knows what has become of its process, so that nobody takes another for it that has its number later.

use alloc::collections::BTreeMap;

use super::poll::READING;
use super::pulse::Pulse;
use super::{Files, Kind, OpenFile, flag};
use crate::errno::Errno;
use crate::process::ProcessNumber;
use crate::wait::Channel;

/// Which open file of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchedId(u32);

/// What has become of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Runs,
    /// It has ended.
    Ended,
    /// It has ended, and was waited for.
    Gone,
}

/// A process that is a file.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// Its number.
    pub process: ProcessNumber,
    /// What has become of it.
    pub fate: Fate,
    /// When it ended.
    pub pulse: Pulse,
}

impl Watched {
    /// What need not wait.
    #[must_use]
    pub fn ready(&self) -> u16 {
        if self.fate == Fate::Runs { 0 } else { READING }
    }
}

/// All processes that are files.
#[derive(Debug, Default)]
pub struct WatchedProcesses {
    all: BTreeMap<WatchedId, Watched>,
    made: u32,
}

impl WatchedProcesses {
    fn create(&mut self, process: ProcessNumber, fate: Fate) -> WatchedId {
        // Numbers come round after 2^32 files; those that live on are passed over.
        while self.all.contains_key(&WatchedId(self.made)) {
            self.made = self.made.wrapping_add(1);
        }
        let id = WatchedId(self.made);
        self.made = self.made.wrapping_add(1);
        self.all.insert(id, Watched { process, fate, pulse: Pulse::default() });
        id
    }

    /// Removes one that nobody has open any more.
    pub(super) fn remove(&mut self, id: WatchedId) {
        self.all.remove(&id);
    }

    /// One of them.
    ///
    /// # Errors
    /// `EBADF`: there is none, which no open file should say.
    pub fn get(&self, id: WatchedId) -> Result<&Watched, Errno> {
        self.all.get(&id).ok_or(Errno::EBADF)
    }

    fn become_of(&mut self, process: ProcessNumber, fate: Fate) -> bool {
        let mut is_watched = false;
        for watched in self.all.values_mut().filter(|watched| watched.process == process && watched.fate != Fate::Gone) {
            if watched.fate == Fate::Runs {
                watched.pulse.input();
            }
            watched.fate = fate;
            is_watched = true;
        }
        is_watched
    }
}

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
        self.set(fd, super::Descriptor { file, close_on_exec: true });
        Ok(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, WatchedProcesses};

    #[test]
    fn who_has_the_number_later_is_another() {
        let mut all = WatchedProcesses::default();
        let first = all.create(7, Fate::Runs);
        assert!(all.become_of(7, Fate::Ended) && all.become_of(7, Fate::Gone) && !all.become_of(7, Fate::Ended));
        let second = all.create(7, Fate::Runs);
        assert_eq!((all.get(first).map(|one| one.fate), all.get(second).map(|one| one.fate)), (Ok(Fate::Gone), Ok(Fate::Runs)));
        assert!(all.get(first).is_ok_and(|one| one.ready() != 0) && all.get(second).is_ok_and(|one| one.ready() == 0));
        all.remove(first);
        assert!(all.get(first).is_err());
    }
}
