// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users and groups: a process's credentials, and what they permit it to do with a file.

pub mod capabilities;
mod id_set;
mod owner;

use alloc::vec::Vec;

use crate::uapi::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_SYS_PTRACE};
use capabilities::Capabilities;
pub use id_set::IdSet;
pub use owner::Owner;

/// Permission to execute, or to look up names in a directory.
pub const EXECUTE: u64 = 1;
/// Permission to write.
pub const WRITE: u64 = 2;
/// Permission to read.
pub const READ: u64 = 4;

/// A process's credentials (`credentials(7)`).
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Its user.
    pub user: IdSet,
    /// Its group.
    pub group: IdSet,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

impl Credentials {
    /// The credentials of a user with one group and no supplementary ones.
    #[must_use]
    pub const fn new(user: u32, group: u32) -> Credentials {
        Credentials { user: IdSet::all(user), group: IdSet::all(group), groups: Vec::new(), capabilities: Capabilities::of(user) }
    }

    /// Whether it has a capability, such as [`CAP_CHOWN`](crate::uapi::CAP_CHOWN).
    #[must_use]
    pub fn is_capable(&self, capability: u64) -> bool {
        self.capabilities.has(capability)
    }

    /// Whether it owns a file, or may act as its owner.
    #[must_use]
    pub fn owns(&self, owner: Owner) -> bool {
        self.user.file == owner.uid || self.is_capable(CAP_FOWNER)
    }

    /// Whether it is a member of a group.
    #[must_use]
    pub fn is_in(&self, group: u32) -> bool {
        self.group.file == group || self.groups.contains(&group)
    }

    /// Whether files of a group may keep the set-group-ID bit when it changes them.
    #[must_use]
    pub fn keeps_group_id(&self, group: u32) -> bool {
        self.is_in(group) || self.is_capable(CAP_FSETID)
    }

    /// Whether it may see what only a process with these credentials should see: Linux's `PTRACE_MODE_READ_FSCREDS`.
    #[must_use]
    pub fn may_inspect(&self, other: &Credentials) -> bool {
        self.may_trace_as(self.user.file, self.group.file, self.capabilities.effective, other)
    }

    /// Whether it may take what a process with these credentials has: Linux's `PTRACE_MODE_ATTACH_REALCREDS`.
    #[must_use]
    pub fn may_attach(&self, other: &Credentials) -> bool {
        self.may_trace_as(self.user.real, self.group.real, self.capabilities.permitted, other)
    }

    fn may_trace_as(&self, user: u32, group: u32, capabilities: u64, other: &Credentials) -> bool {
        let is = |roles: IdSet, id: u32| [roles.real, roles.effective, roles.saved] == [id; 3];
        let has_all = other.capabilities.permitted & !capabilities == 0;
        is(other.user, user) && is(other.group, group) && has_all || self.is_capable(CAP_SYS_PTRACE)
    }

    /// Whether it may do all of `wanted` ([`READ`], [`WRITE`], [`EXECUTE`]) with a file.
    #[must_use]
    pub fn may(&self, owner: Owner, is_directory: bool, wanted: u64) -> bool {
        self.may_as(self.user.file, self.group.file, self.capabilities.effective, (owner, is_directory), wanted)
    }

    /// As [`may`](Self::may), with the real user and group (`access`).
    #[must_use]
    pub fn may_really(&self, owner: Owner, is_directory: bool, wanted: u64) -> bool {
        // A real root has all permitted capabilities.
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
        // Even root may only execute a file that somebody may execute.
        let overrides = is_directory || wanted & EXECUTE == 0 || bits & 0o111 != 0;
        let only_reads = wanted & WRITE == 0 && (is_directory || wanted & EXECUTE == 0);
        wanted & !granted & 7 == 0
            || capabilities & 1 << CAP_DAC_OVERRIDE != 0 && overrides
            || capabilities & 1 << CAP_DAC_READ_SEARCH != 0 && only_reads
    }
}

#[cfg(test)]
mod tests {
    use super::Owner;
    use super::{Credentials, EXECUTE, READ, WRITE};
    use crate::uapi::{CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE};

    #[test]
    fn a_process_is_inspected_by_its_own_user_with_all_its_capabilities() {
        let (user, root) = (Credentials::new(5, 6), Credentials::new(0, 0));
        let mut weaker = Credentials::new(0, 0);
        assert!(root.may_inspect(&user) && root.may_inspect(&weaker) && root.may_attach(&user));
        weaker.capabilities.effective &= !(1 << CAP_SYS_PTRACE);
        weaker.capabilities.permitted &= !(1 << CAP_SYS_PTRACE);
        assert!(!weaker.may_inspect(&user) && !weaker.may_inspect(&root) && !weaker.may_attach(&root));
        assert!(weaker.may_inspect(&weaker.clone()) && user.may_inspect(&user.clone()));
        assert!(!user.may_inspect(&Credentials::new(5, 7)) && !user.may_attach(&Credentials::new(5, 7)));
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let owner = Owner { uid: 5, gid: 6, permissions: 0o047 };
        let may = |user, group, wanted| Credentials::new(user, group).may(owner, false, wanted);
        assert!(!may(5, 6, READ), "the owner has nothing, whatever its group has");
        assert!(may(1, 6, READ) && !may(1, 6, WRITE));
        assert!(may(1, 1, READ | WRITE | EXECUTE));
        assert!(may(0, 0, READ | WRITE | EXECUTE));
        let mut reader = Credentials::new(1, 1);
        reader.capabilities.effective = 1 << CAP_DAC_READ_SEARCH;
        assert!(reader.may(owner, false, READ) && !reader.may(Owner { permissions: 0, ..owner }, false, WRITE));
        assert!(reader.may(Owner { permissions: 0, ..owner }, true, READ | EXECUTE));
        let mut powerless = Credentials::new(0, 0);
        powerless.capabilities.effective = 0;
        assert!(!powerless.may(Owner { permissions: 0, ..owner }, false, READ) && !powerless.owns(owner));
        let owner = Owner { permissions: 0o600, ..owner };
        assert!(!Credentials::new(0, 0).may(owner, false, EXECUTE) && Credentials::new(0, 0).may(owner, true, EXECUTE));
    }
}
