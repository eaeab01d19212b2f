// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that would change files: the root image never changes, so each ends in an error, the one that a read-only Linux file system gives.

use crate::erofs::LastLink;
use crate::errno::Errno;
use crate::files::Kind;
use crate::files::names::CURRENT;
use crate::process::Process;
use crate::user;

/// Refuses to change what a path names: `EROFS`, or why it names nothing.
fn refuse_change(process: &mut Process, directory: u64, path: u64) -> Result<u64, Errno> {
    let path = user::path(path)?;
    process.files.resolve(directory, &path, LastLink::Keep)?;
    Err(Errno::EROFS)
}

/// Refuses to make a name: `EEXIST`, `EROFS`, or why its directory is none.
fn refuse_new(process: &mut Process, directory: u64, path: u64) -> Result<u64, Errno> {
    let path = user::path(path)?;
    match process.files.resolve(directory, &path, LastLink::Keep) {
        Ok(_) => Err(Errno::EEXIST),
        Err(Errno::ENOENT) if !path.is_empty() => Err(process.files.no_new_name(directory, &path)),
        Err(error) => Err(error),
    }
}

/// `unlink`, `rmdir`, `rename`, `chmod`, `chown`, `lchown`, `truncate`, `utime`: the first argument is the path.
pub fn change(process: &mut Process, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    refuse_change(process, CURRENT, path)
}

/// The same calls with a directory in front.
pub fn change_at(process: &mut Process, [directory, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    if path == 0 {
        process.files.get(directory)?;
        return Err(Errno::EROFS);
    }
    refuse_change(process, directory, path)
}

/// `mkdir`, `mknod`: the first argument is the new path.
pub fn make(process: &mut Process, [path, ..]: [u64; 6]) -> Result<u64, Errno> {
    refuse_new(process, CURRENT, path)
}

/// `mkdirat`, `mknodat`.
pub fn make_at(process: &mut Process, [directory, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    refuse_new(process, directory, path)
}

/// `link`, `symlink`: the second argument is the new path.
pub fn link(process: &mut Process, [_, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    refuse_new(process, CURRENT, path)
}

/// `symlinkat(target, directory, path)`.
pub fn symlinkat(process: &mut Process, [_, directory, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    refuse_new(process, directory, path)
}

/// `linkat(directory, path, new directory, new path, flags)`.
pub fn linkat(process: &mut Process, [_, _, directory, path, ..]: [u64; 6]) -> Result<u64, Errno> {
    refuse_new(process, directory, path)
}

/// `fchmod`, `fchown`: by descriptor.
pub fn change_open(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    match process.files.get(fd)?.kind {
        Kind::Regular(..) | Kind::Directory(_) => Err(Errno::EROFS),
        Kind::Name(_) => Err(Errno::EBADF),
        Kind::Console { .. } | Kind::Device(_) => Ok(0),
    }
}

/// `ftruncate`, `fallocate`: nothing that is open for writing has a length.
pub fn resize_open(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.get(fd).and(Err(Errno::EINVAL))
}

/// Extended attributes: the image has none that can be read, and none can be set.
pub fn attributes(_: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    Err(Errno::EOPNOTSUPP)
}
