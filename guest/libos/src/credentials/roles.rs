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
}

impl Roles {
    /// The same in all roles.
    #[must_use]
    pub const fn all(id: u32) -> Roles {
        Roles { real: id, effective: id, saved: id }
    }

    /// Whether one of the roles is this.
    #[must_use]
    pub const fn has(self, id: u32) -> bool {
        self.real == id || self.effective == id || self.saved == id
    }
}
