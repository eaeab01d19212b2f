// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities and groups: all are dropped, except root's authority over files that the process continues to read or change for others.
//!
//! A user namespace would be no better. Only root can map all users into one, and the remaining capability here,
//! authority over files, is the same inside as outside. Other users can map only themselves; then every file of
//! another user, root's included, appears as owned by `nobody`, and cells would see that.

use crate::{ConfineError, Paths};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_capabilities_secure_bits, set_thread_groups,
};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The capabilities to read other users' private files.
const READING: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;
/// The capabilities to change other users' files and keep their owners.
const CHANGING: CapabilitySet = CapabilitySet::DAC_READ_SEARCH
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);
/// No user ID restores capabilities, and none can be passed on.
const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);
/// Bits of a mode, for one class of users.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// The part of root's authority over files that a process keeps. A process of another user has none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authority {
    /// Files may be read that only other users may read.
    pub read: bool,
    /// Files of other users may be changed.
    pub change: bool,
}

/// A file's owner, group and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// Its owner.
    pub user: u32,
    /// Its owner's group.
    pub group: u32,
    /// Its permissions.
    pub mode: u32,
    /// Whether it is a directory.
    pub is_directory: bool,
}

impl From<&Metadata> for FileOwner {
    fn from(found: &Metadata) -> FileOwner {
        FileOwner { user: found.uid(), group: found.gid(), mode: found.mode(), is_directory: found.is_dir() }
    }
}

impl Authority {
    /// Finds the authority needed to read these files and directories, and to replace them by others with the same
    /// owners. Without capabilities of this process, it checks nothing: the process needs none then for what it can do.
    #[must_use]
    pub fn over(files: impl IntoIterator<Item = FileOwner>) -> Authority {
        if capabilities(None).is_ok_and(|had| had.permitted.is_empty()) {
            return Authority::default();
        }
        let caller = Caller::this();
        let over =
            |file: FileOwner| Authority { read: !caller.may(&file, READ), change: (file.user, file.group) != (caller.user, caller.group) };
        files.into_iter().map(over).fold(Authority::default(), Authority::and)
    }

    /// The union of both.
    #[must_use]
    pub fn and(self, other: Authority) -> Authority {
        Authority { read: self.read || other.read, change: self.change || other.change }
    }
}

/// The user and group of this process, without capabilities and supplementary groups.
#[derive(Clone, Copy)]
struct Caller {
    user: u32,
    group: u32,
}

impl Caller {
    fn this() -> Caller {
        Caller { user: geteuid().as_raw(), group: getegid().as_raw() }
    }

    /// Whether a file's mode grants all of these bits; a directory must also be searchable.
    fn may(self, file: &FileOwner, bits: u32) -> bool {
        let bits = if file.is_directory { bits | SEARCH } else { bits };
        let class = match (file.user == self.user, file.group == self.group) {
            (true, _) => file.mode >> 6,
            (false, true) => file.mode >> 3,
            (false, false) => file.mode,
        };
        class & bits == bits
    }

    /// Whether a path grants these bits, and all directories above it can be searched. True for a missing path.
    fn reaches(self, path: &Path, bits: u32) -> bool {
        let may = |path: &Path, bits: u32| path.metadata().map_or(true, |found| self.may(&FileOwner::from(&found), bits));
        may(path, bits) && path.ancestors().skip(1).all(|above| may(above, SEARCH))
    }
}

/// Drops all capabilities and supplementary groups of the calling thread, and so of all that it will start, except root's authority
/// over files that these paths need. No program and no user ID restores any of them. Without the right to change groups or the bounding
/// set, which only root has, these stay: `no_new_privs` makes the bounding set void, and files may be readable by the groups alone.
///
/// # Errors
/// The host refuses.
pub fn drop_privileges(paths: &Paths) -> Result<(), ConfineError> {
    let had = capabilities(None).map_err(ConfineError::Privileges)?;
    let kept = if had.permitted.is_empty() { CapabilitySet::empty() } else { had.permitted & needed(paths) };
    let dropped = || -> Result<(), Errno> {
        if had.effective.contains(CapabilitySet::SETGID) {
            set_thread_groups(&[])?;
        }
        if had.effective.contains(CapabilitySet::SETPCAP) {
            set_capabilities_secure_bits(SECURE_BITS)?;
            drop_bounds()?;
        }
        clear_ambient_capability_set()?;
        set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })
    };
    dropped().map_err(ConfineError::Privileges)
}

/// Empties the bounding set.
fn drop_bounds() -> Result<(), Errno> {
    // Up to the first that this Linux does not know.
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Err(Errno::INVAL) => break,
            outcome => outcome?,
        }
    }
    Ok(())
}

/// The capabilities that are needed for these paths.
fn needed(paths: &Paths) -> CapabilitySet {
    let caller = Caller::this();
    let reads = paths.authority.read || paths.read.iter().any(|path| !caller.reaches(path, READ));
    let changes = paths.authority.change || paths.change.iter().any(|path| !caller.reaches(path, READ | WRITE));
    match (reads, changes) {
        (_, true) => CHANGING,
        (true, false) => READING,
        (false, false) => CapabilitySet::empty(),
    }
}
