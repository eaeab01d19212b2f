// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that make, remove and rename files.

use pando_rt::clock;

use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::files::change::{NewNode, PathAt};
use crate::files::status::time;
use crate::system::System;
use crate::uapi::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, S_IFMT};
use crate::user;

fn now() -> Time {
    time(clock::wall())
}

/// `mkdir(path, mode)`.
pub fn mkdir(system: &mut System, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    mkdirat(system, [AT_FDCWD, path, mode, 0, 0, 0])
}

/// `mkdirat(directory, path, mode)`.
pub fn mkdirat(system: &mut System, [directory, path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    let path = &*user::path(path)?;
    // Directories have no set-user-ID and set-group-ID bits here.
    system.files.make(PathAt { directory, path }, NewNode::Directory, mode & 0o1777, now())?;
    Ok(0)
}

/// `mknod(path, mode, device)`.
pub fn mknod(system: &mut System, [path, mode, device, ..]: [u64; 6]) -> Result<u64, Errno> {
    mknodat(system, [AT_FDCWD, path, mode, device, 0, 0])
}

/// `mknodat(directory, path, mode, device)`.
pub fn mknodat(system: &mut System, [directory, path, mode, device, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mode = mode as u32;
    let kind = match FileType::from_mode(mode) {
        None if mode & S_IFMT == 0 => FileType::Regular,
        Some(FileType::Directory) => return Err(Errno::EPERM),
        None | Some(FileType::Symlink) => return Err(Errno::EINVAL),
        Some(kind) => kind,
    };
    let path = &*user::path(path)?;
    let device = device as u32;
    let numbers = match kind {
        FileType::CharacterDevice | FileType::BlockDevice => (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00),
        _ => (0, 0),
    };
    system.files.make(PathAt { directory, path }, NewNode::File(kind, numbers), u64::from(mode & 0o7777), now())?;
    Ok(0)
}

/// `symlink(target, path)`.
pub fn symlink(system: &mut System, [target, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    symlinkat(system, [target, AT_FDCWD, path, 0, 0, 0])
}

/// `symlinkat(target, directory, path)`.
pub fn symlinkat(system: &mut System, [target, directory, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    let target = user::path(target)?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let path = &*user::path(path)?;
    system.files.make(PathAt { directory, path }, NewNode::Symlink(&target), 0o777, now())?;
    Ok(0)
}

/// `link(path, new path)`.
pub fn link(system: &mut System, [path, new_path, ..]: [u64; 6]) -> Result<u64, Errno> {
    linkat(system, [AT_FDCWD, path, AT_FDCWD, new_path, 0, 0])
}

/// `linkat(directory, path, new directory, new path, flags)`.
pub fn linkat(system: &mut System, [directory, path, new_directory, new_path, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (path, new_path) = (user::path(path)?, user::path(new_path)?);
    let (from, to) = (PathAt { directory, path: &path }, PathAt { directory: new_directory, path: &new_path });
    system.files.link(from, to, flags & AT_SYMLINK_FOLLOW != 0, flags & AT_EMPTY_PATH != 0, now())?;
    Ok(0)
}

/// `unlink(path)`.
pub fn unlink(system: &mut System, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    unlinkat(system, [AT_FDCWD, path, 0, 0, 0, 0])
}

/// `rmdir(path)`.
pub fn rmdir(system: &mut System, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    unlinkat(system, [AT_FDCWD, path, AT_REMOVEDIR, 0, 0, 0])
}

/// `unlinkat(directory, path, flags)`.
pub fn unlinkat(system: &mut System, [directory, path, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let path = &*user::path(path)?;
    let at = PathAt { directory, path };
    if flags & AT_REMOVEDIR != 0 { system.files.remove_directory(at, now()) } else { system.files.unlink(at, now()) }?;
    Ok(0)
}

/// `rename(path, new path)`.
pub fn rename(system: &mut System, [path, new_path, ..]: [u64; 6]) -> Result<u64, Errno> {
    renameat2(system, [AT_FDCWD, path, AT_FDCWD, new_path, 0, 0])
}

/// `renameat(directory, path, new directory, new path)`.
pub fn renameat(system: &mut System, [directory, path, new_directory, new_path, ..]: [u64; 6]) -> Result<u64, Errno> {
    renameat2(system, [directory, path, new_directory, new_path, 0, 0])
}

/// `renameat2(directory, path, new directory, new path, flags)`.
pub fn renameat2(system: &mut System, [directory, path, new_directory, new_path, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    let (path, new_path) = (user::path(path)?, user::path(new_path)?);
    let (from, to) = (PathAt { directory, path: &path }, PathAt { directory: new_directory, path: &new_path });
    system.files.rename(from, to, flags, now())?;
    Ok(0)
}
