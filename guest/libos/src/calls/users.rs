// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on users and groups.

use crate::credentials::{Credentials, IdSet};
use crate::errno::Errno;
use crate::system::System;
use crate::uapi::{CAP_SETGID, CAP_SETUID};
use crate::user::{set_word32, word32};

/// Leaves an id unchanged.
const SAME: u32 = u32::MAX;
/// Most supplementary groups of a process.
const GROUPS_MAX: u64 = 65_536;

/// `getuid()`.
pub fn getuid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.current.credentials.user.real.into())
}

/// `geteuid()`.
pub fn geteuid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.current.credentials.user.effective.into())
}

/// `getgid()`.
pub fn getgid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.current.credentials.group.real.into())
}

/// `getegid()`.
pub fn getegid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.current.credentials.group.effective.into())
}

/// `getresuid(real, effective, saved)`.
pub fn getresuid(system: &mut System, arguments: [u64; 6]) -> Result<u64, Errno> {
    write_ids(system.files.current.credentials.user, arguments)
}

/// `getresgid(real, effective, saved)`.
pub fn getresgid(system: &mut System, arguments: [u64; 6]) -> Result<u64, Errno> {
    write_ids(system.files.current.credentials.group, arguments)
}

fn write_ids(ids: IdSet, [real, effective, saved, ..]: [u64; 6]) -> Result<u64, Errno> {
    for (address, id) in [(real, ids.real), (effective, ids.effective), (saved, ids.saved)] {
        set_word32(address, id)?;
    }
    Ok(0)
}

/// Selects the user's or group's roles, with the capability that permits any id.
type IdKind = (fn(&mut Credentials) -> &mut IdSet, u64);

const USER: IdKind = (|credentials| &mut credentials.user, CAP_SETUID);
const GROUP: IdKind = (|credentials| &mut credentials.group, CAP_SETGID);

/// `setuid(user)`.
pub fn setuid(system: &mut System, [id, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_one(system, USER, id as u32)
}

/// `setgid(group)`.
pub fn setgid(system: &mut System, [id, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_one(system, GROUP, id as u32)
}

/// Changes roles, and capabilities with them. `new` gets the present roles and whether the process may take any id.
fn change(system: &mut System, (which, needed): IdKind, new: impl FnOnce(IdSet, bool) -> Result<IdSet, Errno>) -> Result<u64, Errno> {
    let credentials = system.own_credentials();
    let (before, may) = (credentials.user, credentials.is_capable(needed));
    let ids = which(credentials);
    *ids = new(*ids, may)?;
    credentials.capabilities.user_changed(before, credentials.user);
    Ok(0)
}

/// `setuid`, `setgid`: sets all roles if the process may take any id, the effective one otherwise.
fn set_one(system: &mut System, which: IdKind, id: u32) -> Result<u64, Errno> {
    change(system, which, |old, may_any| match id {
        SAME => Err(Errno::EINVAL),
        _ if may_any => Ok(IdSet::all(id)),
        _ if old.real == id || old.saved == id => Ok(old.acting(id)),
        _ => Err(Errno::EPERM),
    })
}

/// `setreuid(real, effective)`.
pub fn setreuid(system: &mut System, [real, effective, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_two(system, USER, real as u32, effective as u32)
}

/// `setregid(real, effective)`.
pub fn setregid(system: &mut System, [real, effective, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_two(system, GROUP, real as u32, effective as u32)
}

fn set_two(system: &mut System, which: IdKind, real: u32, effective: u32) -> Result<u64, Errno> {
    change(system, which, |old, may_any| {
        let may_be_real = real == SAME || may_any || real == old.real || real == old.effective;
        let may_be_effective = effective == SAME || may_any || old.has(effective);
        if !may_be_real || !may_be_effective {
            return Err(Errno::EPERM);
        }
        let or_old = |id, old| if id == SAME { old } else { id };
        let mut new = IdSet { real: or_old(real, old.real), ..old }.acting(or_old(effective, old.effective));
        if real != SAME || effective != SAME && effective != old.real {
            new.saved = new.effective;
        }
        Ok(new)
    })
}

/// `setresuid(real, effective, saved)`.
pub fn setresuid(system: &mut System, [real, effective, saved, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_three(system, USER, [real, effective, saved])
}

/// `setresgid(real, effective, saved)`.
pub fn setresgid(system: &mut System, [real, effective, saved, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_three(system, GROUP, [real, effective, saved])
}

fn set_three(system: &mut System, which: IdKind, ids: [u64; 3]) -> Result<u64, Errno> {
    let ids @ [real, effective, saved] = ids.map(|id| id as u32);
    change(system, which, |old, may_any| {
        if ids.into_iter().any(|id| id != SAME && !may_any && !old.has(id)) {
            return Err(Errno::EPERM);
        }
        let or_old = |id, old| if id == SAME { old } else { id };
        let new = IdSet { real: or_old(real, old.real), saved: or_old(saved, old.saved), ..old };
        Ok(new.acting(or_old(effective, old.effective)))
    })
}

/// `setfsuid(user)`: returns the former file-system user, even if the change is refused.
pub fn setfsuid(system: &mut System, [id, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_fs_id(system, USER, id as u32)
}

/// `setfsgid(group)`.
pub fn setfsgid(system: &mut System, [id, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_fs_id(system, GROUP, id as u32)
}

fn set_fs_id(system: &mut System, (which, needed): IdKind, id: u32) -> Result<u64, Errno> {
    let credentials = system.own_credentials();
    let may_any = credentials.is_capable(needed);
    let (user, ids) = (credentials.user.file, which(credentials));
    let before = ids.file;
    if id != SAME && (may_any || ids.has(id) || before == id) {
        ids.file = id;
    }
    credentials.capabilities.file_user_changed(user, credentials.user.file);
    Ok(before.into())
}

/// `getgroups(size, list)`.
pub fn getgroups(system: &mut System, [size, list, ..]: [u64; 6]) -> Result<u64, Errno> {
    let groups = &system.files.current.credentials.groups;
    let count = groups.len() as u64;
    if (size as i32) < 0 || size as u32 != 0 && u64::from(size as u32) < count {
        return Err(Errno::EINVAL);
    }
    if size as u32 != 0 {
        for (index, group) in (0..).zip(groups) {
            set_word32(list.wrapping_add(index * 4), *group)?;
        }
    }
    Ok(count)
}

/// `setgroups(size, list)`.
pub fn setgroups(system: &mut System, [size, list, ..]: [u64; 6]) -> Result<u64, Errno> {
    if !system.files.current.credentials.is_capable(CAP_SETGID) {
        return Err(Errno::EPERM);
    }
    if size > GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let groups = (0..size).map(|index| word32(list.wrapping_add(index * 4))).collect::<Result<_, _>>()?;
    system.own_credentials().groups = groups;
    Ok(0)
}
