// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users and groups: who the process is, and what that lets it do with a file.

pub mod capabilities;
mod roles;

use alloc::vec::Vec;

use crate::files::tree::node::Owner;
use capabilities::{Capabilities, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER};
pub use roles::Roles;

/// Permission to execute, or to look up names in a directory.
pub const EXECUTE: u64 = 1;
/// Permission to write.
pub const WRITE: u64 = 2;
/// Permission to read.
pub const READ: u64 = 4;

/// Who the process is.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Its user.
    pub user: Roles,
    /// Its group.
    pub group: Roles,
    /// Its other groups.
    pub groups: Vec<u32>,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

impl Credentials {
    /// A user of one group.
    #[must_use]
    pub const fn new(user: u32, group: u32) -> Credentials {
        Credentials { user: Roles::all(user), group: Roles::all(group), groups: Vec::new(), capabilities: Capabilities::of(user) }
    }

    /// Whether it has a capability, one of the bits of [`capabilities`].
    #[must_use]
    pub fn is_capable(&self, capability: u64) -> bool {
        self.capabilities.effective & capability != 0
    }

    /// Whether it owns a file, or may act as if it did.
    #[must_use]
    pub fn owns(&self, owner: Owner) -> bool {
        self.user.file == owner.uid || self.is_capable(FOWNER)
    }

    /// Whether it is of a group.
    #[must_use]
    pub fn is_in(&self, group: u32) -> bool {
        self.group.file == group || self.groups.contains(&group)
    }

    /// Whether it may do all of `wanted` ([`READ`], [`WRITE`], [`EXECUTE`]) with a file.
    #[must_use]
    pub fn may(&self, owner: Owner, is_directory: bool, wanted: u64) -> bool {
        self.may_as(self.user.file, self.group.file, self.capabilities.effective, (owner, is_directory), wanted)
    }

    /// The same with the real user and group, as `access` asks.
    #[must_use]
    pub fn may_really(&self, owner: Owner, is_directory: bool, wanted: u64) -> bool {
        // Who is root really asks with all that root may.
        let capabilities = if self.user.real == 0 { self.capabilities.permitted } else { 0 };
        self.may_as(self.user.real, self.group.real, capabilities, (owner, is_directory), wanted)
    }

    fn may_as(&self, user: u32, group: u32, capabilities: u64, (owner, is_directory): (Owner, bool), wanted: u64) -> bool {
        let bits = u64::from(owner.permissions);
        let granted = match owner {
            Owner { uid, .. } if uid == user => bits >> 6,
            Owner { gid, .. } if gid == group || self.groups.contains(&gid) => bits >> 3,
            _ => bits,
        };
        // What may be executed is a program to somebody.
        let overrides = is_directory || wanted & EXECUTE == 0 || bits & 0o111 != 0;
        let only_reads = wanted & WRITE == 0 && (is_directory || wanted & EXECUTE == 0);
        wanted & !granted & 7 == 0 || capabilities & DAC_OVERRIDE != 0 && overrides || capabilities & DAC_READ_SEARCH != 0 && only_reads
    }
}

#[cfg(test)]
mod tests {
    use super::capabilities::DAC_READ_SEARCH;
    use super::{Credentials, EXECUTE, READ, WRITE};
    use crate::files::tree::node::Owner;

    #[test]
    fn the_first_class_that_fits_decides() {
        let owner = Owner { uid: 5, gid: 6, permissions: 0o047 };
        let may = |user, group, wanted| Credentials::new(user, group).may(owner, false, wanted);
        assert!(!may(5, 6, READ), "the owner has nothing, whatever its group has");
        assert!(may(1, 6, READ) && !may(1, 6, WRITE));
        assert!(may(1, 1, READ | WRITE | EXECUTE));
        assert!(may(0, 0, READ | WRITE | EXECUTE));
        let mut reader = Credentials::new(1, 1);
        reader.capabilities.effective = DAC_READ_SEARCH;
        assert!(reader.may(owner, false, READ) && !reader.may(Owner { permissions: 0, ..owner }, false, WRITE));
        assert!(reader.may(Owner { permissions: 0, ..owner }, true, READ | EXECUTE));
        let mut powerless = Credentials::new(0, 0);
        powerless.capabilities.effective = 0;
        assert!(!powerless.may(Owner { permissions: 0, ..owner }, false, READ) && !powerless.owns(owner));
        let owner = Owner { permissions: 0o600, ..owner };
        assert!(!Credentials::new(0, 0).may(owner, false, EXECUTE) && Credentials::new(0, 0).may(owner, true, EXECUTE));
    }
}
