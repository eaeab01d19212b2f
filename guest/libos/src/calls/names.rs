// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making, removing and moving names.

use pando_rt::clock;

use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::files::change::{At, New};
use crate::files::names::{AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, CURRENT};
use crate::files::status::{S_IFMT, time};
use crate::process::Process;
use crate::user;

/// Remove a directory.
const AT_REMOVEDIR: u64 = 0x200;

fn now() -> Time {
    time(clock::wall())
}

/// `mkdir(path, mode)`.
pub fn mkdir(process: &mut Process, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    mkdirat(process, [CURRENT, path, mode, 0, 0, 0])
}

/// `mkdirat(directory, path, mode)`.
pub fn mkdirat(process: &mut Process, [directory, path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    let path = &*user::path(path)?;
    // The bits that let programs run as somebody else mean nothing here.
    process.files.make(At { directory, path }, New::Directory, mode & 0o1777, now())?;
    Ok(0)
}

/// `mknod(path, mode, device)`.
pub fn mknod(process: &mut Process, [path, mode, device, ..]: [u64; 6]) -> Result<u64, Errno> {
    mknodat(process, [CURRENT, path, mode, device, 0, 0])
}

/// `mknodat(directory, path, mode, device)`.
pub fn mknodat(process: &mut Process, [directory, path, mode, device, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mode = mode as u32;
    let kind = match FileType::of_mode(mode) {
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
    process.files.make(At { directory, path }, New::File(kind, numbers), u64::from(mode & 0o7777), now())?;
    Ok(0)
}

/// `symlink(target, path)`.
pub fn symlink(process: &mut Process, [target, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    symlinkat(process, [target, CURRENT, path, 0, 0, 0])
}

/// `symlinkat(target, directory, path)`.
pub fn symlinkat(process: &mut Process, [target, directory, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    let target = user::path(target)?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let path = &*user::path(path)?;
    process.files.make(At { directory, path }, New::Symlink(&target), 0o777, now())?;
    Ok(0)
}

/// `link(path, new path)`.
pub fn link(process: &mut Process, [path, new_path, ..]: [u64; 6]) -> Result<u64, Errno> {
    linkat(process, [CURRENT, path, CURRENT, new_path, 0, 0])
}

/// `linkat(directory, path, new directory, new path, flags)`.
pub fn linkat(process: &mut Process, [directory, path, new_directory, new_path, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (path, new_path) = (user::path(path)?, user::path(new_path)?);
    let (from, to) = (At { directory, path: &path }, At { directory: new_directory, path: &new_path });
    process.files.link(from, to, flags & AT_SYMLINK_FOLLOW != 0, flags & AT_EMPTY_PATH != 0, now())?;
    Ok(0)
}

/// `unlink(path)`.
pub fn unlink(process: &mut Process, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    unlinkat(process, [CURRENT, path, 0, 0, 0, 0])
}

/// `rmdir(path)`.
pub fn rmdir(process: &mut Process, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    unlinkat(process, [CURRENT, path, AT_REMOVEDIR, 0, 0, 0])
}

/// `unlinkat(directory, path, flags)`.
pub fn unlinkat(process: &mut Process, [directory, path, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let path = &*user::path(path)?;
    let at = At { directory, path };
    if flags & AT_REMOVEDIR != 0 { process.files.remove_directory(at, now()) } else { process.files.unlink(at, now()) }?;
    Ok(0)
}

/// `rename(path, new path)`.
pub fn rename(process: &mut Process, [path, new_path, ..]: [u64; 6]) -> Result<u64, Errno> {
    renameat2(process, [CURRENT, path, CURRENT, new_path, 0, 0])
}

/// `renameat(directory, path, new directory, new path)`.
pub fn renameat(process: &mut Process, [directory, path, new_directory, new_path, ..]: [u64; 6]) -> Result<u64, Errno> {
    renameat2(process, [directory, path, new_directory, new_path, 0, 0])
}

/// `renameat2(directory, path, new directory, new path, flags)`.
pub fn renameat2(process: &mut Process, [directory, path, new_directory, new_path, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    let (path, new_path) = (user::path(path)?, user::path(new_path)?);
    let (from, to) = (At { directory, path: &path }, At { directory: new_directory, path: &new_path });
    process.files.rename(from, to, flags, now())?;
    Ok(0)
}
