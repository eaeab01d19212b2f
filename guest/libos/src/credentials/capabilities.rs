// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities, the parts of root's privileges: who has which, as `capabilities(7)` says. What a process may do goes by them.

use super::roles::Roles;
use crate::errno::Errno;

/// The last one that Linux knows.
pub const LAST: u64 = 40;
/// A set of all.
const ALL: u64 = (1 << (LAST + 1)) - 1;
/// The one that lets a process become other groups.
pub const SETGID: u64 = 1 << 6;
/// The one that lets it become other users.
pub const SETUID: u64 = 1 << 7;
/// The one that lets it change what it and its children may ever have.
const SETPCAP: u64 = 1 << 8;
/// The one that lets it have ports below 1024.
pub const NET_BIND_SERVICE: u64 = 1 << 10;
/// The one that lets it change interfaces, and give sockets more room than others may have.
pub const NET_ADMIN: u64 = 1 << 12;
/// The one that lets it send and hear packets as they are.
pub const NET_RAW: u64 = 1 << 13;
/// The one that lets it say again as whom somebody logged in.
pub const AUDIT_CONTROL: u64 = 1 << 30;
/// The one that lets it raise what it may use.
pub const SYS_RESOURCE: u64 = 1 << 24;

/// The one that lets it give files away.
pub const CHOWN: u64 = 1 << 0;
/// The one that lets it read, write and search whatever permissions say.
pub const DAC_OVERRIDE: u64 = 1 << 1;
/// The one that lets it read and search whatever permissions say.
pub const DAC_READ_SEARCH: u64 = 1 << 2;
/// The one that lets it do what the owner of a file may.
pub const FOWNER: u64 = 1 << 3;
/// The one that lets files keep their set-id bits when it writes to them.
pub const FSETID: u64 = 1 << 4;
/// The one that lets it send signals to anybody.
pub const KILL: u64 = 1 << 5;
/// The one that lets it lock as much memory as it likes.
pub const IPC_LOCK: u64 = 1 << 14;
/// The one that lets it use objects of System V whatever permissions say.
pub const IPC_OWNER: u64 = 1 << 15;
/// The one that lets it change the root directory.
pub const SYS_CHROOT: u64 = 1 << 18;
/// The one that lets it look into other processes.
pub const SYS_PTRACE: u64 = 1 << 19;
/// The one that lets it manage the system.
pub const SYS_ADMIN: u64 = 1 << 21;
/// The one that lets it be scheduled before others.
pub const SYS_NICE: u64 = 1 << 23;
/// The one that lets it choose the numbers of processes.
pub const CHECKPOINT_RESTORE: u64 = 1 << 40;
/// The one that lets it make devices.
pub const MKNOD: u64 = 1 << 27;
/// Those that go with the user as whom files are asked for: with the ones above, those of immutable files and of labels.
const OF_FILES: u64 = CHOWN | DAC_OVERRIDE | DAC_READ_SEARCH | FOWNER | FSETID | 1 << 9 | MKNOD | 1 << 32;

/// How users and capabilities go together: bits that can be set, each with its lock one above. Root is given nothing when it executes a program.
const NO_ROOT: u64 = 1 << 0;
/// Nothing changes with the user.
const NO_FIXUP: u64 = 1 << 2;
/// Who stops being root keeps what is permitted, until a program is executed.
const KEEPS: u64 = 1 << 4;
/// Nothing becomes ambient.
const NO_AMBIENT: u64 = 1 << 6;
const LOCKS: u64 = (NO_ROOT | NO_FIXUP | KEEPS | NO_AMBIENT) << 1;

/// Those of a process: sets of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Those that count.
    pub effective: u64,
    /// Those that may be made to count.
    pub permitted: u64,
    /// Those that programs may be given which it executes.
    pub inheritable: u64,
    /// Those that root may be given at most.
    pub bounding: u64,
    /// Those that programs keep which are executed by who is not root.
    pub ambient: u64,
    /// How they go together with users: the bits of `PR_SET_SECUREBITS`.
    pub secure: u64,
}

impl Capabilities {
    /// Those that a user starts with.
    #[must_use]
    pub const fn of(user: u32) -> Capabilities {
        let own = if user == 0 { ALL } else { 0 };
        Capabilities { effective: own, permitted: own, inheritable: 0, bounding: ALL, ambient: 0, secure: 0 }
    }

    /// Whether who stops being root keeps what is permitted.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.secure & KEEPS != 0
    }

    /// Says whether to keep them.
    ///
    /// # Errors
    /// `EPERM`: that is locked.
    pub fn set_keeps(&mut self, keeps: bool) -> Result<(), Errno> {
        if self.secure & KEEPS << 1 != 0 {
            return Err(Errno::EPERM);
        }
        self.secure = if keeps { self.secure | KEEPS } else { self.secure & !KEEPS };
        Ok(())
    }

    /// Sets how they go together with users.
    ///
    /// # Errors
    /// `EPERM`: it may not, something of it is locked, or does not exist.
    pub fn set_secure(&mut self, secure: u64) -> Result<(), Errno> {
        let locked = self.secure & LOCKS;
        let is_locked = locked >> 1 & (self.secure ^ secure) != 0 || locked & !secure != 0;
        if is_locked || secure & !(LOCKS | LOCKS >> 1) != 0 || self.effective & SETPCAP == 0 {
            return Err(Errno::EPERM);
        }
        self.secure = secure;
        Ok(())
    }

    /// The process is another user from now on.
    pub fn user_changed(&mut self, before: Roles, after: Roles) {
        if self.secure & NO_FIXUP != 0 {
            return;
        }
        if before.has(0) && !after.has(0) {
            self.ambient = 0;
            if !self.keeps() {
                (self.permitted, self.effective) = (0, 0);
            }
        }
        match (before.effective, after.effective) {
            (0, 1..) => self.effective = 0,
            (1.., 0) => self.effective = self.permitted,
            _ => {}
        }
    }

    /// The process asks for files as another user from now on.
    pub fn file_user_changed(&mut self, before: u32, after: u32) {
        if self.secure & NO_FIXUP != 0 {
            return;
        }
        match (before, after) {
            (0, 1..) => self.effective &= !OF_FILES,
            (1.., 0) => self.effective |= self.permitted & OF_FILES,
            _ => {}
        }
    }

    /// The process executes a program as this user; `gains`: that may give it more than it has.
    pub fn executed(&mut self, user: Roles, gains: bool) {
        let counts = self.secure & NO_ROOT == 0;
        let by_root = if counts && (user.real == 0 || user.effective == 0) { self.bounding | self.inheritable } else { 0 };
        let most = if gains { ALL } else { self.permitted };
        self.permitted = by_root & most | self.ambient;
        self.effective = if counts && user.effective == 0 { self.permitted } else { self.ambient };
        self.secure &= !KEEPS;
    }

    /// Sets what is effective, permitted and inheritable.
    ///
    /// # Errors
    /// `EPERM`: it would have more than it may.
    pub fn set(&mut self, [effective, permitted, inheritable]: [u64; 3]) -> Result<(), Errno> {
        let may_inherit = if self.effective & SETPCAP == 0 { self.inheritable | self.permitted } else { ALL };
        let is_more = inheritable & !(may_inherit & (self.inheritable | self.bounding)) != 0;
        if is_more || permitted & !self.permitted != 0 || effective & !permitted != 0 {
            return Err(Errno::EPERM);
        }
        (self.effective, self.permitted, self.inheritable) = (effective, permitted, inheritable);
        self.ambient &= permitted & inheritable;
        Ok(())
    }

    /// Gives one up for good.
    ///
    /// # Errors
    /// `EPERM`: it may not; `EINVAL`: there is no such capability.
    pub fn drop_bounding(&mut self, number: u64) -> Result<(), Errno> {
        if self.effective & SETPCAP == 0 {
            return Err(Errno::EPERM);
        }
        self.bounding &= !bit(number)?;
        Ok(())
    }

    /// Keeps one for programs that are executed.
    ///
    /// # Errors
    /// `EPERM`: it is not both permitted and inheritable, or nothing becomes ambient; `EINVAL`: there is no such capability.
    pub fn raise_ambient(&mut self, number: u64) -> Result<(), Errno> {
        let bit = bit(number)?;
        if self.permitted & self.inheritable & bit == 0 || self.secure & NO_AMBIENT != 0 {
            return Err(Errno::EPERM);
        }
        self.ambient |= bit;
        Ok(())
    }
}

/// The set of one.
///
/// # Errors
/// `EINVAL`: there is no such capability.
pub fn bit(number: u64) -> Result<u64, Errno> {
    if number > LAST { Err(Errno::EINVAL) } else { Ok(1 << number) }
}

/// Those of a word of 32 bits that exist.
#[must_use]
pub fn known(set: u64) -> u64 {
    set & ALL
}

#[cfg(test)]
mod tests {
    use super::{ALL, Capabilities, KEEPS, NO_FIXUP, NO_ROOT, Roles};
    use crate::errno::Errno;

    #[test]
    fn who_stops_being_root_loses_them_unless_they_are_kept() {
        let (root, user) = (Roles::all(0), Roles::all(5));
        let mut lost = Capabilities::of(0);
        lost.user_changed(root, user);
        assert_eq!(lost, Capabilities::of(5));
        let mut kept = Capabilities { secure: KEEPS, ..Capabilities::of(0) };
        kept.user_changed(root, user);
        assert_eq!((kept.permitted, kept.effective), (ALL, 0));
        assert_eq!((kept.set([0, 0b110, 0b110]), kept.raise_ambient(1), kept.raise_ambient(3)), (Ok(()), Ok(()), Err(Errno::EPERM)));
        kept.executed(user, true);
        assert_eq!((kept.permitted, kept.effective, kept.secure), (0b10, 0b10, 0));
        assert_eq!(kept.set([0, 0b1, 0]), Err(Errno::EPERM));
    }

    #[test]
    fn who_acts_as_another_has_them_again_as_root() {
        let (root, acting) = (Roles::all(0), Roles::all(0).acting(5));
        let mut capabilities = Capabilities::of(0);
        capabilities.user_changed(root, acting);
        assert_eq!((capabilities.permitted, capabilities.effective), (ALL, 0));
        capabilities.user_changed(acting, root);
        assert_eq!(capabilities, Capabilities::of(0));
    }

    #[test]
    fn what_is_locked_stays() {
        let mut capabilities = Capabilities::of(0);
        assert_eq!(capabilities.set_secure(NO_ROOT | NO_FIXUP | KEEPS << 1), Ok(()));
        assert_eq!((capabilities.set_keeps(true), capabilities.set_secure(KEEPS << 1 | KEEPS)), (Err(Errno::EPERM), Err(Errno::EPERM)));
        assert_eq!((capabilities.set_secure(0), capabilities.set_secure(1 << 8 | KEEPS << 1)), (Err(Errno::EPERM), Err(Errno::EPERM)));
        capabilities.user_changed(Roles::all(0), Roles::all(5));
        assert_eq!((capabilities.permitted, capabilities.effective), (ALL, ALL));
        capabilities.executed(Roles::all(0), true);
        assert_eq!((capabilities.permitted, capabilities.effective), (0, 0));
        assert_eq!(capabilities.set_secure(KEEPS << 1), Err(Errno::EPERM));
    }

    #[test]
    fn root_is_given_what_is_bounded() {
        let mut capabilities = Capabilities::of(0);
        assert_eq!((capabilities.drop_bounding(0), capabilities.drop_bounding(41)), (Ok(()), Err(Errno::EINVAL)));
        assert_eq!(capabilities.permitted, ALL);
        capabilities.executed(Roles::all(0), true);
        assert_eq!((capabilities.permitted, capabilities.effective), (ALL & !1, ALL & !1));
        assert_eq!(capabilities.set([0, 0, 0]), Ok(()));
        assert_eq!(capabilities.drop_bounding(1), Err(Errno::EPERM));
        let given_up = capabilities;
        capabilities.executed(Roles::all(0), false);
        assert_eq!(capabilities, given_up);
        capabilities.executed(Roles::all(0), true);
        assert_eq!((capabilities.permitted, capabilities.effective), (ALL & !1, ALL & !1));
    }
}
