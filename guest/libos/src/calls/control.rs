// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors: duplicating them and changing what they say about themselves; `ioctl`.

use pando_abi::PAGE_SIZE;
use pando_rt::user::{read, write};

use crate::calls::terminal;
use crate::errno::Errno;
use crate::files::pipe::CAPACITY_MAX;
use crate::files::{Kind, Target, flag};
use crate::process::Process;
use crate::user::{set_word32, word32};

/// Flags that `F_SETFL` may change.
const CHANGEABLE: u64 = flag::APPEND | flag::NON_BLOCKING | flag::NO_ACCESS_TIME;
/// Files may be larger than 2 GiB: `F_GETFL` shows it on 64-bit machines.
const LARGE_FILE: u64 = 0o100_000;

/// `dup(fd)`.
pub fn dup(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.duplicate(fd, Target::From(0), false)
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
    process.files.duplicate(fd, Target::At(u64::from(to as u32)), flags & flag::CLOSE_ON_EXEC != 0)
}

/// `fcntl(fd, command, argument)`.
pub fn fcntl(process: &mut Process, [fd, command, argument, ..]: [u64; 6]) -> Result<u64, Errno> {
    const DUPFD: u64 = 0;
    const GETFD: u64 = 1;
    const SETFD: u64 = 2;
    const GETFL: u64 = 3;
    const SETFL: u64 = 4;
    const DUPFD_CLOEXEC: u64 = 1030;
    let files = &mut process.files;
    match u64::from(command as u32) {
        DUPFD => files.duplicate(fd, Target::From(u64::from(argument as u32)), false),
        DUPFD_CLOEXEC => files.duplicate(fd, Target::From(u64::from(argument as u32)), true),
        GETFD => Ok(files.descriptor(fd)?.close_on_exec.into()),
        SETFD => {
            files.descriptor(fd)?.close_on_exec = argument & 1 != 0;
            Ok(0)
        }
        GETFL => Ok(files.get(fd)?.flags | if files.get(fd)?.is_name() { 0 } else { LARGE_FILE }),
        SETFL => {
            let owns = files.who.owns(files.status_of(files.look(fd)?)?.owner());
            let file = files.file(fd)?;
            if argument & !file.flags & flag::NO_ACCESS_TIME != 0 && !owns {
                return Err(Errno::EPERM);
            }
            file.flags = file.flags & !CHANGEABLE | argument & CHANGEABLE;
            Ok(0)
        }
        command => {
            files.file(fd)?;
            lock_or_size(process, fd, command, argument)
        }
    }
}

/// Locks, which nobody else could hold, and the sizes of pipes.
fn lock_or_size(process: &mut Process, fd: u64, command: u64, argument: u64) -> Result<u64, Errno> {
    const GETLK: u64 = 5;
    const SETLK: u64 = 6;
    const SETLKW: u64 = 7;
    /// The same for locks of open files.
    const OFD_GETLK: u64 = 36;
    const OFD_SETLK: u64 = 37;
    const OFD_SETLKW: u64 = 38;
    const SET_PIPE_SIZE: u64 = 1031;
    const GET_PIPE_SIZE: u64 = 1032;
    const READ: u16 = 0;
    const WRITE: u16 = 1;
    const UNLOCKED: u16 = 2;
    const WHENCE_MAX: u16 = 2;
    let files = &mut process.files;
    match command {
        GETLK | SETLK | SETLKW | OFD_GETLK | OFD_SETLK | OFD_SETLKW => {
            let mut start = [0; 4];
            read(argument, &mut start)?;
            let (kind, whence) = (u16::from_le_bytes([start[0], start[1]]), u16::from_le_bytes([start[2], start[3]]));
            let file = files.get(fd)?;
            if whence > WHENCE_MAX || kind > UNLOCKED {
                return Err(Errno::EINVAL);
            }
            if matches!(command, GETLK | OFD_GETLK) {
                write(argument, &UNLOCKED.to_le_bytes())?;
            } else if kind == READ && !file.readable() || kind == WRITE && !file.writable() {
                return Err(Errno::EBADF);
            }
            Ok(0)
        }
        SET_PIPE_SIZE | GET_PIPE_SIZE => {
            let Kind::Pipe(id) = files.get(fd)?.kind else { return Err(Errno::EBADF) };
            let pipe = files.pipes.get_mut(id)?;
            if command == SET_PIPE_SIZE {
                let wanted = (argument as u32 as usize).max(PAGE_SIZE as usize).next_power_of_two();
                if wanted > CAPACITY_MAX {
                    return Err(Errno::EPERM);
                }
                if wanted < pipe.length() {
                    return Err(Errno::EBUSY);
                }
                pipe.capacity = wanted;
            }
            Ok(pipe.capacity as u64)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `flock(fd, operation)`: nobody else could hold a lock.
pub fn flock(process: &mut Process, [fd, operation, ..]: [u64; 6]) -> Result<u64, Errno> {
    const WITHOUT_WAITING: u64 = 4;
    process.files.file(fd)?;
    // Shared, exclusive, none.
    if matches!(operation & !WITHOUT_WAITING, 1 | 2 | 8) { Ok(0) } else { Err(Errno::EINVAL) }
}

/// `fadvise64(fd, offset, length, advice)`.
pub fn fadvise64(process: &mut Process, [fd, _, length, advice, ..]: [u64; 6]) -> Result<u64, Errno> {
    match process.files.file(fd)?.kind {
        Kind::Console { terminal: false, .. } | Kind::Pipe(_) => Err(Errno::ESPIPE),
        _ if advice > 5 || length.cast_signed() < 0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

/// `readahead(fd, offset, count)`.
pub fn readahead(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    let file = process.files.file(fd)?;
    match file.kind {
        _ if !file.readable() => Err(Errno::EBADF),
        Kind::Image(..) | Kind::Node(_) => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `fsync`, `fdatasync`: what was written is where it will be, or goes back to the host.
pub fn fsync(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    match process.files.file(fd)?.kind {
        Kind::Image(..) | Kind::Node(_) | Kind::Directory(_) => process.files.sync_open(fd).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sync()`.
pub fn sync(process: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    // Nobody is told of failures here; whoever started the cell is.
    let _ = process.files.sync_all();
    Ok(0)
}

/// `syncfs(fd)`.
pub fn syncfs(process: &mut Process, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.file(fd)?;
    process.files.sync_all().map(|()| 0)
}

/// `sync_file_range(fd, offset, bytes, flags)`.
pub fn sync_file_range(process: &mut Process, [fd, offset, bytes, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let file = process.files.file(fd)?;
    if offset.cast_signed() < 0 || bytes.cast_signed() < 0 || flags & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    match file.kind {
        Kind::Image(..) | Kind::Node(_) | Kind::Directory(_) => Ok(0),
        _ => Err(Errno::ESPIPE),
    }
}

/// `ioctl(fd, request, argument)`.
pub fn ioctl(process: &mut Process, [fd, request, argument, ..]: [u64; 6]) -> Result<u64, Errno> {
    const FIONREAD: u32 = 0x541b;
    const FIONBIO: u32 = 0x5421;
    const FIONCLEX: u32 = 0x5450;
    const FIOCLEX: u32 = 0x5451;
    let request = request as u32;
    let files = &mut process.files;
    files.file(fd)?;
    match request {
        FIOCLEX | FIONCLEX => files.descriptor(fd)?.close_on_exec = request == FIOCLEX,
        FIONBIO => {
            let on = word32(argument)? != 0;
            let file = files.get(fd)?;
            file.flags = file.flags & !flag::NON_BLOCKING | if on { flag::NON_BLOCKING } else { 0 };
        }
        _ => {
            let file = files.look(fd)?;
            let waiting = match &file.kind {
                Kind::Console { terminal: true, .. } => return terminal::ioctl(request, argument),
                Kind::Pipe(id) => files.pipes.get(*id)?.length() as u64,
                Kind::Image(..) | Kind::Node(_) => files.status_of(file)?.size.wrapping_sub(file.offset),
                _ => return Err(Errno::ENOTTY),
            };
            if request != FIONREAD {
                return Err(Errno::ENOTTY);
            }
            // A 32-bit number, cut as Linux cuts it.
            set_word32(argument, waiting as u32)?;
        }
    }
    Ok(0)
}
