// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real, effective, saved and file-system ID of a user or a group.

/// The real, effective, saved and file-system ID of a user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdSet {
    /// The user that started the process.
    pub real: u32,
    /// The user that it acts as.
    pub effective: u32,
    /// The user that it may act as again.
    pub saved: u32,
    /// The user that file permissions are checked for: the effective one unless set otherwise (`setfsuid`).
    pub file: u32,
}

impl IdSet {
    /// The same number for all.
    #[must_use]
    pub const fn all(id: u32) -> IdSet {
        IdSet { real: id, effective: id, saved: id, file: id }
    }

    /// The same, with another effective id.
    #[must_use]
    pub const fn acting(self, effective: u32) -> IdSet {
        IdSet { effective, file: effective, ..self }
    }

    /// Whether one of the roles is this id.
    #[must_use]
    pub const fn has(self, id: u32) -> bool {
        self.real == id || self.effective == id || self.saved == id
    }
}
