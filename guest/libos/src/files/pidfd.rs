// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pidfd`: processes as open files. Each records the state of its process, so that a later process of the same number is never taken for
//! it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, OffsetUse};
use super::poll::READING;
use super::{Descriptor, Files, OpenFile};
use crate::errno::Errno;
use crate::pid::Pid;
use crate::uapi::{O_NONBLOCK, O_RDWR};
use crate::wait::Channel;

/// The identity of a pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PidFileId(u32);

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidState {
    /// It runs.
    Runs,
    /// It has ended.
    Ended,
    /// It has ended and was waited for.
    Gone,
}

/// The process of a pidfd.
#[derive(Clone, Copy, Debug)]
pub struct PidFile {
    /// Its number.
    pub process: Pid,
    /// Its state.
    pub state: PidState,
    /// When it ended.
    pub event_times: EventTimes,
}

impl PidFile {
    /// Its `poll` events.
    #[must_use]
    pub fn ready(&self) -> u16 {
        if self.state == PidState::Runs { 0 } else { READING }
    }
}

/// All pidfds.
#[derive(Debug, Default)]
pub struct PidFiles {
    all: BTreeMap<PidFileId, PidFile>,
    next_id: u32,
}

impl PidFiles {
    pub(super) fn create(&mut self, process: Pid, state: PidState) -> PidFileId {
        // Numbers wrap around after 2^32 pidfds; those in use are skipped.
        while self.all.contains_key(&PidFileId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = PidFileId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.all.insert(id, PidFile { process, state, event_times: EventTimes::default() });
        id
    }

    /// Removes a closed pidfd.
    pub(super) fn remove(&mut self, id: PidFileId) {
        self.all.remove(&id);
    }

    /// The process of a pidfd.
    ///
    /// # Errors
    /// `EBADF`: it does not exist, which cannot happen for an open file.
    pub fn get(&self, id: PidFileId) -> Result<&PidFile, Errno> {
        self.all.get(&id).ok_or(Errno::EBADF)
    }

    pub(super) fn set_state(&mut self, process: Pid, state: PidState) -> bool {
        let mut is_watched = false;
        for watched in self.all.values_mut().filter(|watched| watched.process == process && watched.state != PidState::Gone) {
            if watched.state == PidState::Runs {
                watched.event_times.input();
            }
            watched.state = state;
            is_watched = true;
        }
        is_watched
    }
}

impl FileOperations for PidFileId {
    fn link_text(&self, _files: &Files, _file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(b"anon_inode:[pidfd]".to_vec())
    }

    fn show_fdinfo(&self, files: &Files, text: &mut String) {
        if let Ok(PidFile { process, state, .. }) = files.pidfds.get(*self) {
            let process = if *state == PidState::Gone { -1 } else { process.cast_signed() };
            // A string takes everything.
            let _ = write!(text, "Pid:\t{process}\nNSpid:\t{process}\n");
        }
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Position
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        files.pidfds.get(*self).map_or(0, PidFile::ready)
    }

    fn add_channels(&self, files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.extend(files.pidfds.get(*self).map(|watched| Channel::Ended(watched.process)));
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.pidfds.get(*self).map_or_else(|_| EventTimes::default(), |watched| watched.event_times)
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        files.pidfds.remove(*self);
        Vec::new()
    }
}

impl Files {
    /// Opens a process (`pidfd`). Returns the descriptor, which is closed on `execve`.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn open_process(&mut self, process: Pid, has_ended: bool, flags: u64) -> Result<u64, Errno> {
        let id = self.pidfds.create(process, if has_ended { PidState::Ended } else { PidState::Runs });
        self.insert(OpenFile::new(id, O_RDWR | flags & O_NONBLOCK), true)
    }

    /// The process of a pidfd.
    ///
    /// # Errors
    /// `EBADF`: the descriptor is none.
    pub fn watched_process(&self, fd: u64) -> Result<PidFile, Errno> {
        self.pidfds.get(self.raw_file(fd)?.downcast::<PidFileId>().ok_or(Errno::EBADF)?).copied()
    }

    /// Records a state change of a process in its pidfds.
    pub fn notify_exit(&mut self, process: Pid, state: PidState) {
        if self.pidfds.set_state(process, state) {
            self.changed.push(Channel::Ended(process));
        }
    }

    /// Duplicates a descriptor of another process into the running one. Returns the new descriptor.
    ///
    /// # Errors
    /// `EBADF`: it has no such descriptor. `EMFILE`.
    pub fn take_descriptor(&mut self, process: Pid, fd: u64) -> Result<u64, Errno> {
        let file = u32::try_from(fd).ok().and_then(|fd| self.of(process)?.open_file(fd)).ok_or(Errno::EBADF)?;
        let fd = self.free_from(0)?;
        let (_, references) = self.open.get_mut(file).ok_or(Errno::EBADF)?;
        *references += 1;
        self.set(fd, Descriptor { file, close_on_exec: true });
        Ok(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::{PidFiles, PidState};

    #[test]
    fn a_reused_process_id_names_another_process() {
        let mut all = PidFiles::default();
        let first = all.create(7, PidState::Runs);
        assert!(all.set_state(7, PidState::Ended) && all.set_state(7, PidState::Gone) && !all.set_state(7, PidState::Ended));
        let second = all.create(7, PidState::Runs);
        assert_eq!((all.get(first).map(|one| one.state), all.get(second).map(|one| one.state)), (Ok(PidState::Gone), Ok(PidState::Runs)));
        assert!(all.get(first).is_ok_and(|one| one.ready() != 0) && all.get(second).is_ok_and(|one| one.ready() == 0));
        all.remove(first);
        assert!(all.get(first).is_err());
    }
}
