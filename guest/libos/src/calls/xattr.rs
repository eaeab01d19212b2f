// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on extended attributes.

use alloc::vec;
use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::user::{UserRange, read};

use crate::credentials::{READ, WRITE};
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::files::namei::LookupFlags;
use crate::files::status::time;
use crate::files::tree::{InodeRef, VALUE_MAX, XattrCondition};
use crate::files::user_copy::deliver;
use crate::system::System;
use crate::uapi::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, CAP_SYS_ADMIN, IN_ATTRIB};
use crate::user::{self, Path};

/// Most bytes of an attribute's name.
const NAME_MAX: usize = 255;

fn now() -> Time {
    time(clock::wall())
}

/// Reads the name of an attribute.
fn name(address: u64) -> Result<Path, Errno> {
    let name = user::path(address).map_err(|error| if error == Errno::ENAMETOOLONG { Errno::ERANGE } else { error })?;
    if name.is_empty() || name.len() > NAME_MAX { Err(Errno::ERANGE) } else { Ok(name) }
}

/// The file at a path; `way` decides whether a link at its end is followed.
fn find(system: &System, path: u64, way: LookupFlags) -> Result<InodeRef, Errno> {
    system.files.find(AT_FDCWD, &user::path(path)?, way)
}

/// The file of a descriptor.
fn opened(system: &mut System, fd: u64) -> Result<InodeRef, Errno> {
    system.files.file(fd)?;
    system.files.inode(fd)
}

/// Notifies watches of a change of the attributes of the file at a path.
fn notify_at(system: &mut System, path: u64, flags: u64) -> Result<u64, Errno> {
    system.files.notify_at(AT_FDCWD, &user::path(path)?, flags, IN_ATTRIB);
    Ok(0)
}

/// Whether an attribute of this name may be read or written, as `wanted` says.
fn check(system: &System, inode: InodeRef, name: &[u8], wanted: u64) -> Result<(), Errno> {
    let status = system.files.status(inode)?;
    let credentials = &system.files.current.credentials;
    if name.starts_with(b"user.") && name.len() > 5 {
        if !matches!(status.kind(), Some(FileType::Regular | FileType::Directory)) {
            return Err(if wanted == WRITE { Errno::EPERM } else { Errno::ENODATA });
        }
        return system.files.check(inode, wanted);
    }
    let rest = |prefix: &[u8]| name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
    if matches!(name, b"user." | b"trusted." | b"security.") {
        return Err(Errno::EINVAL);
    }
    match (rest(b"trusted."), rest(b"security.")) {
        (true, _) if credentials.is_capable(CAP_SYS_ADMIN) => Ok(()),
        (true, _) => Err(if wanted == WRITE { Errno::EPERM } else { Errno::ENODATA }),
        (_, true) if wanted == READ || credentials.is_capable(CAP_SYS_ADMIN) => Ok(()),
        (_, true) => Err(Errno::EPERM),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Writes an attribute's value; returns only its length if there is no room at all.
fn copy_value(bytes: &[u8], address: u64, room: u64) -> Result<u64, Errno> {
    let length = bytes.len() as u64;
    if room == 0 {
        return Ok(length);
    }
    if length > room {
        return Err(Errno::ERANGE);
    }
    let done = deliver(UserRange::new(address, length)?, bytes)? as u64;
    if done < length { Err(Errno::EFAULT) } else { Ok(length) }
}

fn get(system: &mut System, inode: InodeRef, [attribute, value, size]: [u64; 3]) -> Result<u64, Errno> {
    let name = name(attribute)?;
    check(system, inode, &name, READ)?;
    if let Some(bytes) = system.files.attribute_live(inode, &name)? {
        return copy_value(&bytes, value, size);
    }
    copy_value(system.files.tree.attribute(inode, &name)?, value, size)
}

fn set(system: &mut System, inode: InodeRef, [attribute, value, size, flags]: [u64; 4]) -> Result<u64, Errno> {
    let how = match flags as u32 {
        0 => XattrCondition::Always,
        1 => XattrCondition::New,
        2 => XattrCondition::Replace,
        _ => return Err(Errno::EINVAL),
    };
    let name = name(attribute)?;
    let size = usize::try_from(size).ok().filter(|size| *size <= VALUE_MAX).ok_or(Errno::E2BIG)?;
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(size, 0);
    read(value, &mut bytes)?;
    check(system, inode, &name, WRITE)?;
    if !system.files.set_attribute_live(inode, &name, Some((&bytes, how)))? {
        system.files.tree.set_attribute(inode, &name, bytes.into(), how, now())?;
    }
    Ok(0)
}

fn list(system: &mut System, inode: InodeRef, [address, size]: [u64; 2]) -> Result<u64, Errno> {
    if let Some(names) = system.files.attribute_names_live(inode)? {
        return copy_value(&names, address, size);
    }
    let is_root = system.files.current.credentials.is_capable(CAP_SYS_ADMIN);
    let mut names = vec![];
    system.files.tree.attribute_names(inode, |prefix, rest| {
        if is_root || !prefix.starts_with(b"trusted.") {
            names.extend_from_slice(prefix);
            names.extend_from_slice(rest);
            names.push(0);
        }
        Ok(())
    })?;
    copy_value(&names, address, size)
}

fn remove(system: &mut System, inode: InodeRef, attribute: u64) -> Result<u64, Errno> {
    let name = name(attribute)?;
    check(system, inode, &name, WRITE)?;
    if !system.files.set_attribute_live(inode, &name, None)? {
        system.files.tree.remove_attribute(inode, &name, now())?;
    }
    Ok(0)
}

/// `getxattr(path, name, value, size)`.
pub fn getxattr(system: &mut System, [path, name, value, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    get(system, find(system, path, LookupFlags::FOLLOW)?, [name, value, size])
}

/// `lgetxattr(path, name, value, size)`.
pub fn lgetxattr(system: &mut System, [path, name, value, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    get(system, find(system, path, LookupFlags::KEEP)?, [name, value, size])
}

/// `fgetxattr(fd, name, value, size)`.
pub fn fgetxattr(system: &mut System, [fd, name, value, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = opened(system, fd)?;
    get(system, inode, [name, value, size])
}

/// `setxattr(path, name, value, size, flags)`.
pub fn setxattr(system: &mut System, [path, name, value, size, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    let inode = find(system, path, LookupFlags::FOLLOW)?;
    set(system, inode, [name, value, size, flags])?;
    notify_at(system, path, 0)
}

/// `lsetxattr(path, name, value, size, flags)`.
pub fn lsetxattr(system: &mut System, [path, name, value, size, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    let inode = find(system, path, LookupFlags::KEEP)?;
    set(system, inode, [name, value, size, flags])?;
    notify_at(system, path, AT_SYMLINK_NOFOLLOW)
}

/// `fsetxattr(fd, name, value, size, flags)`.
pub fn fsetxattr(system: &mut System, [fd, name, value, size, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    let inode = opened(system, fd)?;
    set(system, inode, [name, value, size, flags])?;
    system.files.notify_open(fd, IN_ATTRIB);
    Ok(0)
}

/// `listxattr(path, list, size)`.
pub fn listxattr(system: &mut System, [path, address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    list(system, find(system, path, LookupFlags::FOLLOW)?, [address, size])
}

/// `llistxattr(path, list, size)`.
pub fn llistxattr(system: &mut System, [path, address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    list(system, find(system, path, LookupFlags::KEEP)?, [address, size])
}

/// `flistxattr(fd, list, size)`.
pub fn flistxattr(system: &mut System, [fd, address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = opened(system, fd)?;
    list(system, inode, [address, size])
}

/// `removexattr(path, name)`.
pub fn removexattr(system: &mut System, [path, name, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = find(system, path, LookupFlags::FOLLOW)?;
    remove(system, inode, name)?;
    notify_at(system, path, 0)
}

/// `lremovexattr(path, name)`.
pub fn lremovexattr(system: &mut System, [path, name, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = find(system, path, LookupFlags::KEEP)?;
    remove(system, inode, name)?;
    notify_at(system, path, AT_SYMLINK_NOFOLLOW)
}

/// `fremovexattr(fd, name)`.
pub fn fremovexattr(system: &mut System, [fd, name, ..]: [u64; 6]) -> Result<u64, Errno> {
    let inode = opened(system, fd)?;
    remove(system, inode, name)?;
    system.files.notify_open(fd, IN_ATTRIB);
    Ok(0)
}
