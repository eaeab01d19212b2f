// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users and groups: who the process is, and becoming somebody else.

use crate::credentials::{Credentials, Roles};
use crate::errno::Errno;
use crate::system::System;
use crate::user::{set_word32, word32};

/// In place of an id: leave it as it is.
const SAME: u32 = u32::MAX;
/// Groups that a process may be in besides its own.
const GROUPS_MAX: u64 = 65_536;

/// `getuid()`.
pub fn getuid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.own.who.user.real.into())
}

/// `geteuid()`.
pub fn geteuid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.own.who.user.effective.into())
}

/// `getgid()`.
pub fn getgid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.own.who.group.real.into())
}

/// `getegid()`.
pub fn getegid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.own.who.group.effective.into())
}

/// `getresuid(real, effective, saved)`.
pub fn getresuid(system: &mut System, arguments: [u64; 6]) -> Result<u64, Errno> {
    write_roles(system.files.own.who.user, arguments)
}

/// `getresgid(real, effective, saved)`.
pub fn getresgid(system: &mut System, arguments: [u64; 6]) -> Result<u64, Errno> {
    write_roles(system.files.own.who.group, arguments)
}

fn write_roles(roles: Roles, [real, effective, saved, ..]: [u64; 6]) -> Result<u64, Errno> {
    for (address, id) in [(real, roles.real), (effective, roles.effective), (saved, roles.saved)] {
        set_word32(address, id)?;
    }
    Ok(0)
}

/// The roles of the user, or of the group.
type Which = fn(&mut Credentials) -> &mut Roles;

fn user(who: &mut Credentials) -> &mut Roles {
    &mut who.user
}

fn group(who: &mut Credentials) -> &mut Roles {
    &mut who.group
}

/// `setuid(user)`.
pub fn setuid(system: &mut System, [id, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_one(system, user, id as u32)
}

/// `setgid(group)`.
pub fn setgid(system: &mut System, [id, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_one(system, group, id as u32)
}

/// Root takes all roles of an id, others only act as somebody else.
fn set_one(system: &mut System, which: Which, id: u32) -> Result<u64, Errno> {
    let who = &mut system.files.own.who;
    let is_root = who.is_root();
    let roles = which(who);
    match id {
        SAME => return Err(Errno::EINVAL),
        _ if is_root => *roles = Roles::all(id),
        _ if roles.real == id || roles.saved == id => roles.effective = id,
        _ => return Err(Errno::EPERM),
    }
    Ok(0)
}

/// `setreuid(real, effective)`.
pub fn setreuid(system: &mut System, [real, effective, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_two(system, user, real as u32, effective as u32)
}

/// `setregid(real, effective)`.
pub fn setregid(system: &mut System, [real, effective, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_two(system, group, real as u32, effective as u32)
}

fn set_two(system: &mut System, which: Which, real: u32, effective: u32) -> Result<u64, Errno> {
    let who = &mut system.files.own.who;
    let is_root = who.is_root();
    let roles = which(who);
    let old = *roles;
    let may_be_real = real == SAME || is_root || real == old.real || real == old.effective;
    let may_be_effective = effective == SAME || is_root || old.has(effective);
    if !may_be_real || !may_be_effective {
        return Err(Errno::EPERM);
    }
    roles.real = if real == SAME { old.real } else { real };
    roles.effective = if effective == SAME { old.effective } else { effective };
    if real != SAME || effective != SAME && effective != old.real {
        roles.saved = roles.effective;
    }
    Ok(0)
}

/// `setresuid(real, effective, saved)`.
pub fn setresuid(system: &mut System, [real, effective, saved, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_three(system, user, [real, effective, saved])
}

/// `setresgid(real, effective, saved)`.
pub fn setresgid(system: &mut System, [real, effective, saved, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_three(system, group, [real, effective, saved])
}

fn set_three(system: &mut System, which: Which, ids: [u64; 3]) -> Result<u64, Errno> {
    let who = &mut system.files.own.who;
    let is_root = who.is_root();
    let roles = which(who);
    let [real, effective, saved] = ids.map(|id| id as u32);
    if [real, effective, saved].into_iter().any(|id| id != SAME && !is_root && !roles.has(id)) {
        return Err(Errno::EPERM);
    }
    for (role, id) in [(&mut roles.real, real), (&mut roles.effective, effective), (&mut roles.saved, saved)] {
        if id != SAME {
            *role = id;
        }
    }
    Ok(0)
}

/// `setfsuid(user)`: files are asked as whom the process acts; the answer is who that is.
pub fn setfsuid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.own.who.user.effective.into())
}

/// `setfsgid(group)`.
pub fn setfsgid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.files.own.who.group.effective.into())
}

/// `getgroups(size, list)`.
pub fn getgroups(system: &mut System, [size, list, ..]: [u64; 6]) -> Result<u64, Errno> {
    let groups = &system.files.own.who.groups;
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
    if !system.files.own.who.is_root() {
        return Err(Errno::EPERM);
    }
    if size > GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    system.files.own.who.groups = (0..size).map(|index| word32(list.wrapping_add(index * 4))).collect::<Result<_, _>>()?;
    Ok(0)
}
