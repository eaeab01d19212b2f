// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that are files: `pidfd`. Each open file knows what has become of its process, so that nobody takes another for it that has its number later.

use alloc::collections::BTreeMap;

use super::poll::READING;
use super::pulse::Pulse;
use crate::errno::Errno;
use crate::process::ProcessNumber;

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
    pub(super) fn create(&mut self, process: ProcessNumber, fate: Fate) -> WatchedId {
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

    pub(super) fn become_of(&mut self, process: ProcessNumber, fate: Fate) -> bool {
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
