// SPDX-License-Identifier: MIT OR Apache-2.0
//! Duplicating descriptors and changing their flags; `ioctl`.

use pando_abi::PAGE_SIZE;

use crate::calls::{file_operations, locks, seals};
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::DescriptorTarget;
use crate::files::pipe::CAPACITY_MAX;
use crate::files::pipe_file::PipeFile;
use crate::system::System;
use crate::uapi::{
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_GETOWN, F_GETPIPE_SZ, F_NOTIFY, F_SETFD, F_SETFL, F_SETOWN, F_SETPIPE_SZ, FASYNC,
    FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, O_APPEND, O_CLOEXEC, O_NOATIME, O_NONBLOCK,
};
use crate::user::word32;

/// Flags that `F_SETFL` may change.
const CHANGEABLE: u64 = O_APPEND | FASYNC | O_NONBLOCK | O_NOATIME;

/// `dup(fd)`.
pub fn dup(system: &mut System, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.duplicate(fd, DescriptorTarget::From(0), false)
}

/// `dup2(fd, to)`.
pub fn dup2(system: &mut System, [fd, to, ..]: [u64; 6]) -> Result<u64, Errno> {
    if fd as u32 == to as u32 {
        system.files.get(fd)?;
        return Ok(to);
    }
    dup3(system, [fd, to, 0, 0, 0, 0])
}

/// `dup3(fd, to, flags)`.
pub fn dup3(system: &mut System, [fd, to, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if fd as u32 == to as u32 || flags & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    system.files.await_writes_of_replaced(to)?;
    system.files.duplicate(fd, DescriptorTarget::At(u64::from(to as u32)), flags & O_CLOEXEC != 0)
}

/// `fcntl(fd, command, argument)`.
pub fn fcntl(system: &mut System, [fd, command, argument, ..]: [u64; 6]) -> Result<u64, Errno> {
    let files = &mut system.files;
    match u64::from(command as u32) {
        F_DUPFD => files.duplicate(fd, DescriptorTarget::From(u64::from(argument as u32)), false),
        F_DUPFD_CLOEXEC => files.duplicate(fd, DescriptorTarget::From(u64::from(argument as u32)), true),
        F_GETFD => Ok(files.descriptor(fd)?.close_on_exec.into()),
        F_SETFD => {
            files.descriptor(fd)?.close_on_exec = argument & 1 != 0;
            Ok(0)
        }
        F_GETFL => Ok(files.get(fd)?.flags),
        F_SETFL => {
            let owns = files.current.credentials.owns(files.status_of(files.raw_file(fd)?)?.owner());
            let file = files.file(fd)?;
            if argument & !file.flags & O_NOATIME != 0 && !owns {
                return Err(Errno::EPERM);
            }
            file.flags = file.flags & !CHANGEABLE | argument & CHANGEABLE;
            Ok(0)
        }
        command => {
            files.file(fd)?;
            lock_or_size(system, fd, command, argument)
        }
    }
}

/// Commands of `fcntl` for locks, seals, owners of signals, and sizes of pipes.
fn lock_or_size(system: &mut System, fd: u64, command: u64, argument: u64) -> Result<u64, Errno> {
    if let Some(result) = locks::control(system, fd, command, argument) {
        return result;
    }
    if let Some(result) = seals::control(system, fd, command, argument) {
        return result;
    }
    let files = &mut system.files;
    match command {
        F_SETOWN => {
            files.file(fd)?.owner = argument as i32;
            Ok(0)
        }
        F_GETOWN => Ok(i64::from(files.file(fd)?.owner).cast_unsigned()),
        F_SETPIPE_SZ | F_GETPIPE_SZ => {
            let id = files.raw_file(fd)?.downcast::<PipeFile>().ok_or(Errno::EBADF)?.pipe;
            let pipe = files.pipes.get_mut(id)?;
            if command == F_SETPIPE_SZ {
                let wanted = (argument as u32 as usize).max(PAGE_SIZE as usize).next_power_of_two();
                if wanted > CAPACITY_MAX {
                    return Err(Errno::EPERM);
                }
                if wanted < pipe.used() {
                    return Err(Errno::EBUSY);
                }
                pipe.capacity = wanted;
            }
            Ok(pipe.capacity as u64)
        }
        // Directory notifications are accepted, but no signals are sent.
        F_NOTIFY => files.raw_file(fd)?.operations().check_dnotify().map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// `fadvise64(fd, offset, length, advice)`.
pub fn fadvise64(system: &mut System, [fd, _, length, advice, ..]: [u64; 6]) -> Result<u64, Errno> {
    let file = system.files.opened(fd)?;
    match system.files.status_of(file)?.kind() {
        Some(FileType::Fifo | FileType::Socket) => Err(Errno::ESPIPE),
        _ if advice > 5 || length.cast_signed() < 0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

/// `readahead(fd, offset, count)`.
pub fn readahead(system: &mut System, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    let file = system.files.file(fd)?;
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    file.operations().check_readahead().map(|()| 0)
}

/// `fsync`, `fdatasync`: written data is in its place already, or is written back to the host.
pub fn fsync(system: &mut System, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    if !system.files.file(fd)?.operations().is_synced() {
        return Err(Errno::EINVAL);
    }
    system.sync_mappings();
    system.files.sync_live(fd)?;
    system.files.sync_open(fd).map(|()| 0)
}

/// `sync()`.
pub fn sync(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    // The call cannot fail; errors are reported to the operator.
    system.sync_mappings();
    let _ = system.files.sync_all();
    Ok(0)
}

/// `syncfs(fd)`.
pub fn syncfs(system: &mut System, [fd, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.file(fd)?;
    system.sync_mappings();
    system.files.sync_all().map(|()| 0)
}

/// `sync_file_range(fd, offset, bytes, flags)`.
pub fn sync_file_range(system: &mut System, [fd, offset, bytes, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let file = system.files.file(fd)?;
    if offset.cast_signed() < 0 || bytes.cast_signed() < 0 || flags & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    if file.operations().is_synced() { Ok(0) } else { Err(Errno::ESPIPE) }
}

/// `ioctl(fd, request, argument)`.
pub fn ioctl(system: &mut System, [fd, request, argument, ..]: [u64; 6]) -> Result<u64, Errno> {
    let request = request as u32;
    let files = &mut system.files;
    files.file(fd)?;
    match request {
        FIOCLEX | FIONCLEX => files.descriptor(fd)?.close_on_exec = request == FIOCLEX,
        FIOASYNC => {
            let on = word32(argument)? != 0;
            let file = files.get(fd)?;
            file.operations().check_fasync()?;
            file.flags = file.flags & !FASYNC | if on { FASYNC } else { 0 };
        }
        FIONBIO => {
            let on = word32(argument)? != 0;
            let file = files.get(fd)?;
            file.flags = file.flags & !O_NONBLOCK | if on { O_NONBLOCK } else { 0 };
        }
        _ => {
            let object = files.raw_file(fd)?.object;
            return file_operations::of(&object).ioctl(system, fd, request, argument);
        }
    }
    Ok(0)
}
