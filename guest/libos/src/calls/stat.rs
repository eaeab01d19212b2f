// SPDX-License-Identifier: MIT OR Apache-2.0
//! What files say about themselves: `stat` in its versions, `statx`, `statfs`.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::user::write;

use crate::erofs::BLOCK_SIZE;
use crate::errno::Errno;
use crate::files::names::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, CURRENT};
use crate::files::status::Status;
use crate::process::Process;
use crate::user;

/// How fresh `statx` wants its answer: of files that never change all are the same.
const AT_STATX_SYNC_TYPE: u64 = 0x6000;
/// Whether mounts may be triggered, of which there are none.
const AT_NO_AUTOMOUNT: u64 = 0x800;

/// Refuses flags that Linux does not know either.
fn check(flags: u64) -> Result<(), Errno> {
    let known = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    if flags as u32 & !(known as u32) == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// `stat(path, status)`.
pub fn stat(process: &mut Process, [path, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    newfstatat(process, [CURRENT, path, status, 0, 0, 0])
}

/// `lstat(path, status)`.
pub fn lstat(process: &mut Process, [path, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    newfstatat(process, [CURRENT, path, status, AT_SYMLINK_NOFOLLOW, 0, 0])
}

/// `fstat(fd, status)`.
pub fn fstat(process: &mut Process, [fd, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    let known = Status::of_kind(&process.files.get(fd)?.kind, clock::wall());
    write(status, &known.to_stat())?;
    Ok(0)
}

/// `newfstatat(directory, path, status, flags)`.
pub fn newfstatat(process: &mut Process, [directory, path, status, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    check(flags)?;
    let path = user::path(path)?;
    let known = process.files.status(directory, &path, flags)?;
    write(status, &known.to_stat())?;
    Ok(0)
}

/// `statx(directory, path, flags, mask, status)`.
pub fn statx(process: &mut Process, [directory, path, flags, _, status, _]: [u64; 6]) -> Result<u64, Errno> {
    check(flags & !AT_STATX_SYNC_TYPE)?;
    // A null path is an empty one.
    let path = if path == 0 && flags & AT_EMPTY_PATH != 0 { Vec::new() } else { user::path(path)? };
    let known = process.files.status(directory, &path, flags)?;
    write(status, &known.to_statx())?;
    Ok(0)
}

/// `statfs(path, status)`: everything is the image.
pub fn statfs(process: &mut Process, [path, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    let path = user::path(path)?;
    process.files.status(CURRENT, &path, 0)?;
    write_statfs(process, status)
}

/// `fstatfs(fd, status)`.
pub fn fstatfs(process: &mut Process, [fd, status, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.get(fd)?;
    write_statfs(process, status)
}

fn write_statfs(process: &Process, address: u64) -> Result<u64, Errno> {
    const EROFS_MAGIC: u64 = 0xe0f5_e1e2;
    const NAME_MAX: u64 = 255;
    const READ_ONLY: u64 = 1;
    let blocks = process.files.root.image.size() / BLOCK_SIZE;
    // Type, block size, blocks, free, available, files, free files, id, name length, fragment size, flags.
    user::set_words(address, &[EROFS_MAGIC, BLOCK_SIZE, blocks, 0, 0, 0, 0, 0, NAME_MAX, BLOCK_SIZE, READ_ONLY, 0, 0, 0, 0])?;
    Ok(0)
}
