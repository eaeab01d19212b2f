// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user or a group in its three roles.

/// A user or a group in its three roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Who started it.
    pub real: u32,
    /// As whom it acts.
    pub effective: u32,
    /// As whom it may act again.
    pub saved: u32,
    /// As whom it asks for files: as whom it acts, unless it said otherwise.
    pub file: u32,
}

impl Roles {
    /// The same in all roles.
    #[must_use]
    pub const fn all(id: u32) -> Roles {
        Roles { real: id, effective: id, saved: id, file: id }
    }

    /// The same acting as another.
    #[must_use]
    pub const fn acting(self, effective: u32) -> Roles {
        Roles { effective, file: effective, ..self }
    }

    /// Whether one of the roles is this.
    #[must_use]
    pub const fn has(self, id: u32) -> bool {
        self.real == id || self.effective == id || self.saved == id
    }
}
