// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pidfd`: processes as open files. Each records the state of its process, so that a later process of the same number is never taken for
//! it.

use alloc::collections::BTreeMap;

use super::edge::Pulse;
use super::poll::READING;
use crate::errno::Errno;
use crate::process::ProcessNumber;

/// The identity of a pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PidFileId(u32);

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
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
    pub process: ProcessNumber,
    /// Its state.
    pub fate: Fate,
    /// When it ended.
    pub pulse: Pulse,
}

impl PidFile {
    /// Its `poll` events.
    #[must_use]
    pub fn ready(&self) -> u16 {
        if self.fate == Fate::Runs { 0 } else { READING }
    }
}

/// All pidfds.
#[derive(Debug, Default)]
pub struct PidFiles {
    all: BTreeMap<PidFileId, PidFile>,
    made: u32,
}

impl PidFiles {
    pub(super) fn create(&mut self, process: ProcessNumber, fate: Fate) -> PidFileId {
        // Numbers wrap around after 2^32 pidfds; those in use are skipped.
        while self.all.contains_key(&PidFileId(self.made)) {
            self.made = self.made.wrapping_add(1);
        }
        let id = PidFileId(self.made);
        self.made = self.made.wrapping_add(1);
        self.all.insert(id, PidFile { process, fate, pulse: Pulse::default() });
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
    use super::{Fate, PidFiles};

    #[test]
    fn who_has_the_number_later_is_another() {
        let mut all = PidFiles::default();
        let first = all.create(7, Fate::Runs);
        assert!(all.become_of(7, Fate::Ended) && all.become_of(7, Fate::Gone) && !all.become_of(7, Fate::Ended));
        let second = all.create(7, Fate::Runs);
        assert_eq!((all.get(first).map(|one| one.fate), all.get(second).map(|one| one.fate)), (Ok(Fate::Gone), Ok(Fate::Runs)));
        assert!(all.get(first).is_ok_and(|one| one.ready() != 0) && all.get(second).is_ok_and(|one| one.ready() == 0));
        all.remove(first);
        assert!(all.get(first).is_err());
    }
}
