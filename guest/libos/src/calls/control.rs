// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors: duplicating them and changing what they say about themselves; `ioctl`.

use crate::calls::terminal;
use crate::errno::Errno;
use crate::files::{Kind, Place, flag};
use crate::process::Process;

/// Flags that `F_SETFL` may change.
const CHANGEABLE: u64 = flag::APPEND | flag::NON_BLOCKING;
/// Files may be larger than 2 GiB: `F_GETFL` shows it on 64-bit machines.
const LARGE_FILE: u64 = 0o100_000;

/// `dup(fd)`.
pub fn dup(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.duplicate(fd, Place::From(0), false)
}

/// `dup2(fd, to)`.
pub fn dup2(process: &mut Process, [fd, to, ..]: [u64; 6]) -> Result<u64, Errno> {
    if fd as u32 == to as u32 {
        process.files.get(fd)?;
        return Ok(to);
    }
    dup3(process, [fd, to, 0, 0, 0, 0])
}

/// `dup3(fd, to, flags)`.
pub fn dup3(process: &mut Process, [fd, to, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if fd as u32 == to as u32 || flags & !flag::CLOSE_ON_EXEC != 0 {
        return Err(Errno::EINVAL);
    }
    process.files.duplicate(fd, Place::At(u64::from(to as u32)), flags & flag::CLOSE_ON_EXEC != 0)
}

/// `fcntl(fd, command, argument)`.
pub fn fcntl(process: &mut Process, [fd, command, argument, ..]: [u64; 6]) -> Result<u64, Errno> {
    const DUPFD: u64 = 0;
    const GETFD: u64 = 1;
    const SETFD: u64 = 2;
    const GETFL: u64 = 3;
    const SETFL: u64 = 4;
    const GETLK: u64 = 5;
    const SETLK: u64 = 6;
    const SETLKW: u64 = 7;
    const DUPFD_CLOEXEC: u64 = 1030;
    const UNLOCKED: u16 = 2;
    let files = &mut process.files;
    match command {
        DUPFD => files.duplicate(fd, Place::From(argument), false),
        DUPFD_CLOEXEC => files.duplicate(fd, Place::From(argument), true),
        GETFD => Ok(files.descriptor(fd)?.close_on_exec.into()),
        SETFD => {
            files.descriptor(fd)?.close_on_exec = argument & 1 != 0;
            Ok(0)
        }
        GETFL => Ok(files.get(fd)?.flags | LARGE_FILE),
        SETFL => {
            let file = files.get(fd)?;
            file.flags = file.flags & !CHANGEABLE | argument & CHANGEABLE;
            Ok(0)
        }
        // Nobody else could hold a lock.
        SETLK | SETLKW => files.get(fd).map(|_| 0),
        GETLK => {
            files.get(fd)?;
            pando_rt::user::write(argument, &UNLOCKED.to_le_bytes())?;
            Ok(0)
        }
        _ => files.get(fd).and(Err(Errno::EINVAL)),
    }
}

/// `flock(fd, operation)`: nobody else could hold a lock.
pub fn flock(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.get(fd).map(|_| 0)
}

/// `fadvise64(fd, offset, length, advice)`.
pub fn fadvise64(process: &mut Process, [fd, _, _, advice, ..]: [u64; 6]) -> Result<u64, Errno> {
    match process.files.get(fd)?.kind {
        Kind::Console { .. } => Err(Errno::ESPIPE),
        _ if advice > 5 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

/// `fsync`, `fdatasync`: the image never changes, and streams have nothing to sync.
pub fn fsync(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    match process.files.get(fd)?.kind {
        Kind::Regular(..) | Kind::Directory(_) => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `ioctl(fd, request, argument)`.
pub fn ioctl(process: &mut Process, [fd, request, argument, ..]: [u64; 6]) -> Result<u64, Errno> {
    const FIONREAD: u32 = 0x541b;
    const FIONBIO: u32 = 0x5421;
    const FIONCLEX: u32 = 0x5450;
    const FIOCLEX: u32 = 0x5451;
    let request = request as u32;
    let close_on_exec = match request {
        FIOCLEX => true,
        FIONCLEX => false,
        FIONBIO => {
            let on = crate::user::word32(argument)? != 0;
            let file = process.files.get(fd)?;
            file.flags = file.flags & !flag::NON_BLOCKING | if on { flag::NON_BLOCKING } else { 0 };
            return Ok(0);
        }
        _ => {
            let file = process.files.get(fd)?;
            return match &file.kind {
                Kind::Console { terminal: true, .. } => terminal::ioctl(request, argument),
                // A 32-bit number, cut as Linux cuts it.
                Kind::Regular(_, image) if request == FIONREAD => {
                    crate::user::set_word32(argument, image.size().wrapping_sub(file.offset) as u32).map(|()| 0)
                }
                _ => Err(Errno::ENOTTY),
            };
        }
    };
    process.files.descriptor(fd)?.close_on_exec = close_on_exec;
    Ok(0)
}
