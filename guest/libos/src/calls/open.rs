// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening, closing, and asking whether one may.

use crate::erofs::{FileType, LastLink};
use crate::errno::Errno;
use crate::files::names::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, CURRENT, Special, special};
use crate::files::{OPEN_MAX, flag};
use crate::process::Process;
use crate::user;

/// `open(path, flags, mode)`.
pub fn open(process: &mut Process, [path, flags, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    openat(process, [CURRENT, path, flags, mode, 0, 0])
}

/// `creat(path, mode)`.
pub fn creat(process: &mut Process, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    openat(process, [CURRENT, path, flag::CREATE | flag::WRITE_ONLY | flag::TRUNCATE, mode, 0, 0])
}

/// `openat(directory, path, flags, mode)`.
pub fn openat(process: &mut Process, [directory, path, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let path = user::path(path)?;
    let file = process.files.open_path(directory, &path, flags)?;
    process.files.insert(file, flags & flag::CLOSE_ON_EXEC != 0)
}

/// `close(fd)`.
pub fn close(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.close(fd)?;
    Ok(0)
}

/// `close_range(first, last, flags)`.
pub fn close_range(process: &mut Process, [first, last, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    const ON_EXEC_ONLY: u64 = 4;
    if first > last {
        return Err(Errno::EINVAL);
    }
    for fd in first..=last.min(OPEN_MAX) {
        if flags & ON_EXEC_ONLY == 0 {
            // Holes are no error.
            let _ = process.files.close(fd);
        }
    }
    Ok(0)
}

/// `access(path, mode)`.
pub fn access(process: &mut Process, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    faccessat(process, [CURRENT, path, mode, 0, 0, 0])
}

/// `faccessat(directory, path, mode)`, and `faccessat2` with flags.
pub fn faccessat(process: &mut Process, [directory, path, mode, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    const EXECUTE: u64 = 1;
    const WRITE: u64 = 2;
    if mode & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    if path.is_empty() && flags & AT_EMPTY_PATH != 0 {
        process.files.get(directory)?;
        return Ok(0);
    }
    let inode = match special(&path) {
        Some(Special::Program) => {
            let program = process.files.program.clone();
            process.files.resolve(CURRENT, &program, LastLink::Follow)?
        }
        Some(Special::Descriptor(fd)) => return process.files.get(fd).map(|_| 0).map_err(|_| Errno::ENOENT),
        Some(_) => return if mode & EXECUTE == 0 { Ok(0) } else { Err(Errno::EACCES) },
        None => {
            let last_link = if flags & AT_SYMLINK_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
            process.files.resolve(directory, &path, last_link)?
        }
    };
    if mode & WRITE != 0 {
        return Err(Errno::EROFS);
    }
    // Root may read everything, and execute what anybody may.
    if mode & EXECUTE != 0 && inode.kind == FileType::Regular && inode.permissions & 0o111 == 0 {
        return Err(Errno::EACCES);
    }
    Ok(0)
}
