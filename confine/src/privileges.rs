// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities and groups: all are dropped, except root's authority over files that the process continues to read or change for others.
//!
//! A user namespace would be no better. Only root can map all users into one, and the remaining capability here,
//! authority over files, is the same inside as outside. Other users can map only themselves; then every file of
//! another user, root's included, appears as owned by `nobody`, and cells would see that.

use crate::authority::{Caller, READ, WRITE};
use crate::{ConfineError, Paths};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_capabilities_secure_bits, set_thread_groups,
};

/// The capabilities to read other users' private files.
const READING: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;
/// The capabilities to change other users' files and keep their owners.
const CHANGING: CapabilitySet = CapabilitySet::DAC_READ_SEARCH
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);
/// The capabilities to serve other users' files. Without `CAP_FSETID`, a write to a file clears its set-user-ID bit, and without
/// `CAP_CHOWN`, each file keeps its owner. To link a file by its descriptor needs `CAP_DAC_READ_SEARCH` before Linux 6.10.
const SERVING: CapabilitySet = CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER);
/// No user ID restores capabilities, and none can be passed on.
const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

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
    // The owners of served files are not known.
    let serves = !paths.serve.is_empty();
    match (reads, serves, changes) {
        (_, _, true) => CHANGING,
        (_, true, false) => SERVING,
        (true, false, false) => READING,
        (false, false, false) => CapabilitySet::empty(),
    }
}
