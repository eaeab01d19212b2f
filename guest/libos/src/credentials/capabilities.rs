// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities, the parts of root's privileges (`capabilities(7)`). They decide what a process may do.

use super::id_set::IdSet;
use crate::errno::Errno;
use crate::uapi::{
    CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_LAST_CAP, CAP_LINUX_IMMUTABLE, CAP_MAC_OVERRIDE,
    CAP_MKNOD, CAP_SETPCAP, SECBIT_KEEP_CAPS, SECBIT_NO_CAP_AMBIENT_RAISE, SECBIT_NO_SETUID_FIXUP, SECBIT_NOROOT, SECURE_ALL_BITS,
    SECURE_ALL_LOCKS,
};

/// The set of all capabilities.
const ALL: u64 = (1 << (CAP_LAST_CAP + 1)) - 1;
/// The capabilities that follow the file-system user (`CAP_FS_MASK` of `include/linux/capability.h`, with `CAP_LINUX_IMMUTABLE`).
const OF_FILES: u64 = 1 << CAP_CHOWN
    | 1 << CAP_DAC_OVERRIDE
    | 1 << CAP_DAC_READ_SEARCH
    | 1 << CAP_FOWNER
    | 1 << CAP_FSETID
    | 1 << CAP_LINUX_IMMUTABLE
    | 1 << CAP_MKNOD
    | 1 << CAP_MAC_OVERRIDE;

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
        let initial = if user == 0 { ALL } else { 0 };
        Capabilities { effective: initial, permitted: initial, inheritable: 0, bounding: ALL, ambient: 0, secure: 0 }
    }

    /// Whether a capability is effective.
    #[must_use]
    pub const fn has(&self, capability: u64) -> bool {
        self.effective & 1 << capability != 0
    }

    /// Whether permitted capabilities survive when the process stops being root.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.secure & SECBIT_KEEP_CAPS != 0
    }

    /// Sets [`keeps`](Self::keeps).
    ///
    /// # Errors
    /// `EPERM`: the bit is locked.
    pub fn set_keeps(&mut self, keeps: bool) -> Result<(), Errno> {
        if self.secure & SECBIT_KEEP_CAPS << 1 != 0 {
            return Err(Errno::EPERM);
        }
        self.secure = if keeps { self.secure | SECBIT_KEEP_CAPS } else { self.secure & !SECBIT_KEEP_CAPS };
        Ok(())
    }

    /// Sets the securebits.
    ///
    /// # Errors
    /// `EPERM`: the process may not, a bit of it is locked, or does not exist.
    pub fn set_secure(&mut self, secure: u64) -> Result<(), Errno> {
        let locked = self.secure & SECURE_ALL_LOCKS;
        let is_locked = locked >> 1 & (self.secure ^ secure) != 0 || locked & !secure != 0;
        if is_locked || secure & !(SECURE_ALL_BITS | SECURE_ALL_LOCKS) != 0 || !self.has(CAP_SETPCAP) {
            return Err(Errno::EPERM);
        }
        self.secure = secure;
        Ok(())
    }

    /// Adapts the sets to a change of users.
    pub fn user_changed(&mut self, before: IdSet, after: IdSet) {
        if self.secure & SECBIT_NO_SETUID_FIXUP != 0 {
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
        if self.secure & SECBIT_NO_SETUID_FIXUP != 0 {
            return;
        }
        match (before, after) {
            (0, 1..) => self.effective &= !OF_FILES,
            (1.., 0) => self.effective |= self.permitted & OF_FILES,
            _ => {}
        }
    }

    /// Computes the sets after this user has executed a program; `gains`: that may grant more than the process has.
    pub fn executed(&mut self, user: IdSet, gains: bool) {
        let counts = self.secure & SECBIT_NOROOT == 0;
        let by_root = if counts && (user.real == 0 || user.effective == 0) { self.bounding | self.inheritable } else { 0 };
        let most = if gains { ALL } else { self.permitted };
        self.permitted = by_root & most | self.ambient;
        self.effective = if counts && user.effective == 0 { self.permitted } else { self.ambient };
        self.secure &= !SECBIT_KEEP_CAPS;
    }

    /// Sets the effective, permitted and inheritable sets.
    ///
    /// # Errors
    /// `EPERM`: the process would get more than it may have.
    pub fn set(&mut self, [effective, permitted, inheritable]: [u64; 3]) -> Result<(), Errno> {
        let may_inherit = if !self.has(CAP_SETPCAP) { self.inheritable | self.permitted } else { ALL };
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
        if !self.has(CAP_SETPCAP) {
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
        if self.permitted & self.inheritable & bit == 0 || self.secure & SECBIT_NO_CAP_AMBIENT_RAISE != 0 {
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
    if number > CAP_LAST_CAP { Err(Errno::EINVAL) } else { Ok(1 << number) }
}

/// The existing capabilities of a 32-bit word.
#[must_use]
pub fn valid(set: u64) -> u64 {
    set & ALL
}

#[cfg(test)]
mod tests {
    use super::{ALL, Capabilities, IdSet};
    use crate::errno::Errno;
    use crate::uapi::{SECBIT_KEEP_CAPS, SECBIT_NO_SETUID_FIXUP, SECBIT_NOROOT};

    #[test]
    fn leaving_the_root_user_drops_capabilities_unless_they_are_kept() {
        let (root, user) = (IdSet::all(0), IdSet::all(5));
        let mut dropping = Capabilities::of(0);
        dropping.user_changed(root, user);
        assert_eq!(dropping, Capabilities::of(5));
        let mut keeping = Capabilities { secure: SECBIT_KEEP_CAPS, ..Capabilities::of(0) };
        keeping.user_changed(root, user);
        assert_eq!((keeping.permitted, keeping.effective), (ALL, 0));
        assert_eq!(
            (keeping.set([0, 0b110, 0b110]), keeping.raise_ambient(1), keeping.raise_ambient(3)),
            (Ok(()), Ok(()), Err(Errno::EPERM))
        );
        keeping.executed(user, true);
        assert_eq!((keeping.permitted, keeping.effective, keeping.secure), (0b10, 0b10, 0));
        assert_eq!(keeping.set([0, 0b1, 0]), Err(Errno::EPERM));
    }

    #[test]
    fn returning_to_the_root_user_restores_effective_capabilities() {
        let (root, acting) = (IdSet::all(0), IdSet::all(0).acting(5));
        let mut capabilities = Capabilities::of(0);
        capabilities.user_changed(root, acting);
        assert_eq!((capabilities.permitted, capabilities.effective), (ALL, 0));
        capabilities.user_changed(acting, root);
        assert_eq!(capabilities, Capabilities::of(0));
    }

    #[test]
    fn locked_secure_bits_stay() {
        let mut capabilities = Capabilities::of(0);
        assert_eq!(capabilities.set_secure(SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS << 1), Ok(()));
        assert_eq!(
            (capabilities.set_keeps(true), capabilities.set_secure(SECBIT_KEEP_CAPS << 1 | SECBIT_KEEP_CAPS)),
            (Err(Errno::EPERM), Err(Errno::EPERM))
        );
        assert_eq!(
            (capabilities.set_secure(0), capabilities.set_secure(1 << 8 | SECBIT_KEEP_CAPS << 1)),
            (Err(Errno::EPERM), Err(Errno::EPERM))
        );
        capabilities.user_changed(IdSet::all(0), IdSet::all(5));
        assert_eq!((capabilities.permitted, capabilities.effective), (ALL, ALL));
        capabilities.executed(IdSet::all(0), true);
        assert_eq!((capabilities.permitted, capabilities.effective), (0, 0));
        assert_eq!(capabilities.set_secure(SECBIT_KEEP_CAPS << 1), Err(Errno::EPERM));
    }

    #[test]
    fn root_gets_the_capabilities_of_the_bounding_set() {
        let mut capabilities = Capabilities::of(0);
        assert_eq!((capabilities.drop_bounding(0), capabilities.drop_bounding(41)), (Ok(()), Err(Errno::EINVAL)));
        assert_eq!(capabilities.permitted, ALL);
        capabilities.executed(IdSet::all(0), true);
        assert_eq!((capabilities.permitted, capabilities.effective), (ALL & !1, ALL & !1));
        assert_eq!(capabilities.set([0, 0, 0]), Ok(()));
        assert_eq!(capabilities.drop_bounding(1), Err(Errno::EPERM));
        let given_up = capabilities;
        capabilities.executed(IdSet::all(0), false);
        assert_eq!(capabilities, given_up);
        capabilities.executed(IdSet::all(0), true);
        assert_eq!((capabilities.permitted, capabilities.effective), (ALL & !1, ALL & !1));
    }
}
