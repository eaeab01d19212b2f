// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that a process makes for itself (`man 2 prctl`). Most of them are only stored and reported.

use crate::signals::Signal;

/// Settings that a process makes for itself.
#[derive(Clone, Copy, Debug)]
pub struct PrctlSettings {
    /// Number of the signal that it gets when its parent ends; 0: none.
    pub death_signal: u32,
    /// It may be dumped.
    pub dumpable: bool,
    /// Executed programs gain no privileges.
    pub no_new_privileges: bool,
    /// It waits for orphaned descendants.
    pub is_subreaper: bool,
    /// It wants no large pages.
    pub no_huge_pages: bool,
}

impl PrctlSettings {
    /// The settings of a new child.
    #[must_use]
    pub fn inherited(self) -> PrctlSettings {
        PrctlSettings { death_signal: 0, is_subreaper: false, ..self }
    }

    /// The signal that the process gets when its parent ends.
    #[must_use]
    pub fn death_signal(&self) -> Option<Signal> {
        (self.death_signal != 0).then_some(Signal(self.death_signal as u8))
    }
}

impl Default for PrctlSettings {
    fn default() -> PrctlSettings {
        PrctlSettings { death_signal: 0, dumpable: true, no_new_privileges: false, is_subreaper: false, no_huge_pages: false }
    }
}
