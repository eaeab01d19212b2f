// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities, the parts of root's privileges (`capabilities(7)`). They decide what a process may do.

use super::roles::Roles;
use crate::errno::Errno;

/// The highest capability number that Linux knows.
pub const LAST: u64 = 40;
/// The set of all capabilities.
const ALL: u64 = (1 << (LAST + 1)) - 1;
/// `CAP_SETGID`: may change its groups.
pub const SETGID: u64 = 1 << 6;
/// `CAP_SETUID`: may change its users.
pub const SETUID: u64 = 1 << 7;
/// `CAP_SETPCAP`: may change the bounding and inheritable sets, and the securebits.
const SETPCAP: u64 = 1 << 8;
/// `CAP_NET_BIND_SERVICE`: may bind ports below 1024.
pub const NET_BIND_SERVICE: u64 = 1 << 10;
/// `CAP_NET_ADMIN`: may change interfaces, and give sockets larger buffers than the limits allow.
pub const NET_ADMIN: u64 = 1 << 12;
/// `CAP_NET_RAW`: may use raw and packet sockets.
pub const NET_RAW: u64 = 1 << 13;
/// `CAP_AUDIT_CONTROL`: may set the login user again.
pub const AUDIT_CONTROL: u64 = 1 << 30;
/// `CAP_SYS_RESOURCE`: may raise its hard limits.
pub const SYS_RESOURCE: u64 = 1 << 24;

/// `CAP_CHOWN`: may change a file's owner.
pub const CHOWN: u64 = 1 << 0;
/// `CAP_DAC_OVERRIDE`: may read, write and search regardless of permissions.
pub const DAC_OVERRIDE: u64 = 1 << 1;
/// `CAP_DAC_READ_SEARCH`: may read and search regardless of permissions.
pub const DAC_READ_SEARCH: u64 = 1 << 2;
/// `CAP_FOWNER`: may act as the owner of any file.
pub const FOWNER: u64 = 1 << 3;
/// `CAP_FSETID`: files keep their set-id bits when it writes to them.
pub const FSETID: u64 = 1 << 4;
/// `CAP_KILL`: may send signals to any process.
pub const KILL: u64 = 1 << 5;
/// `CAP_IPC_LOCK`: may lock any amount of memory.
pub const IPC_LOCK: u64 = 1 << 14;
/// `CAP_IPC_OWNER`: may use System V objects regardless of permissions.
pub const IPC_OWNER: u64 = 1 << 15;
/// `CAP_SYS_CHROOT`: may change the root directory.
pub const SYS_CHROOT: u64 = 1 << 18;
/// `CAP_SYS_PTRACE`: may inspect other processes.
pub const SYS_PTRACE: u64 = 1 << 19;
/// `CAP_SYS_ADMIN`: may manage the system.
pub const SYS_ADMIN: u64 = 1 << 21;
/// The one that lets it turn the accounting of processes on.
pub const SYS_PACCT: u64 = 1 << 20;
/// The one that lets it restart the machine.
pub const SYS_BOOT: u64 = 1 << 22;
/// The one that lets it hang up terminals.
pub const SYS_TTY_CONFIG: u64 = 1 << 26;
/// The one that lets it read the kernel's messages.
pub const SYSLOG: u64 = 1 << 34;
/// The one that lets it be scheduled before others.
pub const SYS_NICE: u64 = 1 << 23;
/// `CAP_CHECKPOINT_RESTORE`: may choose process numbers.
pub const CHECKPOINT_RESTORE: u64 = 1 << 40;
/// `CAP_MKNOD`: may make devices.
pub const MKNOD: u64 = 1 << 27;
/// Capabilities that follow the file-system user. Bits 9 and 32 are `CAP_LINUX_IMMUTABLE` and `CAP_MAC_OVERRIDE`.
const OF_FILES: u64 = CHOWN | DAC_OVERRIDE | DAC_READ_SEARCH | FOWNER | FSETID | 1 << 9 | MKNOD | 1 << 32;

/// `SECBIT_NOROOT`: root gains nothing by executing a program. Each of these bits has its lock bit one above.
const NO_ROOT: u64 = 1 << 0;
/// `SECBIT_NO_SETUID_FIXUP`: a change of users changes no capabilities.
const NO_FIXUP: u64 = 1 << 2;
/// `SECBIT_KEEP_CAPS`: permitted capabilities survive when the process stops being root, until it executes a program.
const KEEPS: u64 = 1 << 4;
/// `SECBIT_NO_CAP_AMBIENT_RAISE`: nothing becomes ambient.
const NO_AMBIENT: u64 = 1 << 6;
const LOCKS: u64 = (NO_ROOT | NO_FIXUP | KEEPS | NO_AMBIENT) << 1;

/// The capabilities of a process: sets of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Capabilities that permission checks use.
    pub effective: u64,
    /// Capabilities that may be made effective.
    pub permitted: u64,
    /// Capabilities that executed programs may be given.
    pub inheritable: u64,
    /// The most capabilities that executed programs may gain.
    pub bounding: u64,
    /// Capabilities that programs keep which a user other than root executes.
    pub ambient: u64,
    /// How they interact with users: the bits of `PR_SET_SECUREBITS`.
    pub secure: u64,
}

impl Capabilities {
    /// The capabilities that a user starts with.
    #[must_use]
    pub const fn of(user: u32) -> Capabilities {
        let own = if user == 0 { ALL } else { 0 };
        Capabilities { effective: own, permitted: own, inheritable: 0, bounding: ALL, ambient: 0, secure: 0 }
    }

    /// Whether permitted capabilities survive when the process stops being root.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.secure & KEEPS != 0
    }

    /// Sets [`keeps`](Self::keeps).
    ///
    /// # Errors
    /// `EPERM`: the bit is locked.
    pub fn set_keeps(&mut self, keeps: bool) -> Result<(), Errno> {
        if self.secure & KEEPS << 1 != 0 {
            return Err(Errno::EPERM);
        }
        self.secure = if keeps { self.secure | KEEPS } else { self.secure & !KEEPS };
        Ok(())
    }

    /// Sets the securebits.
    ///
    /// # Errors
    /// `EPERM`: the process may not, a bit of it is locked, or does not exist.
    pub fn set_secure(&mut self, secure: u64) -> Result<(), Errno> {
        let locked = self.secure & LOCKS;
        let is_locked = locked >> 1 & (self.secure ^ secure) != 0 || locked & !secure != 0;
        if is_locked || secure & !(LOCKS | LOCKS >> 1) != 0 || self.effective & SETPCAP == 0 {
            return Err(Errno::EPERM);
        }
        self.secure = secure;
        Ok(())
    }

    /// Adapts the sets to a change of users.
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

    /// Adapts the sets to a change of the file-system user.
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

    /// Computes the sets after this user has executed a program; `gains`: that may grant more than the process has.
    pub fn executed(&mut self, user: Roles, gains: bool) {
        let counts = self.secure & NO_ROOT == 0;
        let by_root = if counts && (user.real == 0 || user.effective == 0) { self.bounding | self.inheritable } else { 0 };
        let most = if gains { ALL } else { self.permitted };
        self.permitted = by_root & most | self.ambient;
        self.effective = if counts && user.effective == 0 { self.permitted } else { self.ambient };
        self.secure &= !KEEPS;
    }

    /// Sets the effective, permitted and inheritable sets.
    ///
    /// # Errors
    /// `EPERM`: the process would get more than it may have.
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

    /// Removes a capability from the bounding set for good.
    ///
    /// # Errors
    /// `EPERM`: the process may not; `EINVAL`: there is no such capability.
    pub fn drop_bounding(&mut self, number: u64) -> Result<(), Errno> {
        if self.effective & SETPCAP == 0 {
            return Err(Errno::EPERM);
        }
        self.bounding &= !bit(number)?;
        Ok(())
    }

    /// Adds a capability to the ambient set.
    ///
    /// # Errors
    /// `EPERM`: it is not both permitted and inheritable, or nothing may become ambient; `EINVAL`: there is no such capability.
    pub fn raise_ambient(&mut self, number: u64) -> Result<(), Errno> {
        let bit = bit(number)?;
        if self.permitted & self.inheritable & bit == 0 || self.secure & NO_AMBIENT != 0 {
            return Err(Errno::EPERM);
        }
        self.ambient |= bit;
        Ok(())
    }
}

/// The set of one capability.
///
/// # Errors
/// `EINVAL`: there is no such capability.
pub fn bit(number: u64) -> Result<u64, Errno> {
    if number > LAST { Err(Errno::EINVAL) } else { Ok(1 << number) }
}

/// The existing capabilities of a 32-bit word.
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
