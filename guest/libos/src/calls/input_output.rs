// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing.

use pando_rt::clock;
use pando_rt::user::UserRange;

use crate::calls::blocking::{files, forever, with_timeout};
use crate::calls::file_operations::{self, IoRequest, propagate_write};
use crate::errno::Errno;
use crate::system::System;
use crate::uapi::{O_APPEND, O_NONBLOCK, RWF_APPEND, RWF_DSYNC, RWF_HIPRI, RWF_NOAPPEND, RWF_NOWAIT, RWF_SYNC};
use crate::user::{RW_MAX, buffer, set_words, vectors, words};

/// `read(fd, buffer, length)`.
pub fn read(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    read_ranges(system, fd, &[buffer(address, length)?], None)
}

/// `readv(fd, vectors, count)`.
pub fn readv(system: &mut System, [fd, address, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    read_ranges(system, fd, &vectors(address, count)?, None)
}

/// `write(fd, buffer, length)`.
pub fn write(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    write_ranges(system, fd, &[buffer(address, length)?], None)
}

/// `writev(fd, vectors, count)`.
pub fn writev(system: &mut System, [fd, address, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    write_ranges(system, fd, &vectors(address, count)?, None)
}

/// `pread64(fd, buffer, length, offset)`.
pub fn pread64(system: &mut System, [fd, address, length, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked(offset)?;
    read_ranges(system, fd, &[buffer(address, length)?], Some(offset))
}

/// `pwrite64(fd, buffer, length, offset)`.
pub fn pwrite64(system: &mut System, [fd, address, length, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked(offset)?;
    write_ranges(system, fd, &[buffer(address, length)?], Some(offset))
}

/// `preadv(fd, vectors, count, offset)`.
pub fn preadv(system: &mut System, [fd, address, count, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked(offset)?;
    read_ranges(system, fd, &vectors(address, count)?, Some(offset))
}

/// `pwritev(fd, vectors, count, offset)`.
pub fn pwritev(system: &mut System, [fd, address, count, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked(offset)?;
    write_ranges(system, fd, &vectors(address, count)?, Some(offset))
}

/// `preadv2(fd, vectors, count, offset, unused, flags)`.
pub fn preadv2(system: &mut System, [fd, address, count, offset, _, flags]: [u64; 6]) -> Result<u64, Errno> {
    let (offset, ranges) = (checked2(offset, flags & !RWF_APPEND & !RWF_NOAPPEND)?, vectors(address, count)?);
    let added = if flags & RWF_NOWAIT != 0 { O_NONBLOCK } else { 0 };
    with_flags(system, fd, added, 0, |system| read_ranges(system, fd, &ranges, offset))
}

/// `pwritev2(fd, vectors, count, offset, unused, flags)`.
pub fn pwritev2(system: &mut System, [fd, address, count, offset, _, flags]: [u64; 6]) -> Result<u64, Errno> {
    let (offset, ranges) = (checked2(offset, flags)?, vectors(address, count)?);
    if flags & RWF_APPEND != 0 && flags & RWF_NOAPPEND != 0 {
        return Err(Errno::EINVAL);
    }
    let added = if flags & RWF_NOWAIT != 0 { O_NONBLOCK } else { 0 } | if flags & RWF_APPEND != 0 { O_APPEND } else { 0 };
    let removed = if flags & RWF_NOAPPEND != 0 { O_APPEND } else { 0 };
    with_flags(system, fd, added, removed, |system| write_ranges(system, fd, &ranges, offset))
}

/// An offset that is not negative.
fn checked(offset: u64) -> Result<u64, Errno> {
    if offset.cast_signed() < 0 { Err(Errno::EINVAL) } else { Ok(offset) }
}

/// Acts on an open file with some flags added and others removed.
///
/// # Errors
/// `EBADF`; those of `act`.
pub fn with_flags<T>(
    system: &mut System,
    fd: u64,
    added: u64,
    removed: u64,
    act: impl FnOnce(&mut System) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let file = system.files.get(fd)?;
    let before = file.flags;
    file.flags = before & !removed | added;
    let result = act(system);
    system.files.get(fd)?.flags = before;
    result
}

/// Checks an offset where -1 means the file's position, and the flags. Most flags only speed up the call or request the present
/// behaviour.
fn checked2(offset: u64, flags: u64) -> Result<Option<u64>, Errno> {
    const HARMLESS: u64 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC;
    if flags & !(HARMLESS | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if offset == u64::MAX { Ok(None) } else { checked(offset).map(Some) }
}

/// Reads. Waits if there is nothing yet, unless the file is non-blocking.
fn read_ranges(system: &mut System, fd: u64, ranges: &[UserRange], offset: Option<u64>) -> Result<u64, Errno> {
    let file = system.files.raw_file(fd)?;
    let (object, waits) = (file.object, file.waits());
    file_operations::of(&object).read(system, IoRequest { fd, ranges, offset, waits })
}

/// Writes. Waits for room unless the file is non-blocking.
fn write_ranges(system: &mut System, fd: u64, ranges: &[UserRange], offset: Option<u64>) -> Result<u64, Errno> {
    let file = system.files.raw_file(fd)?;
    let (object, waits) = (file.object, file.waits());
    file_operations::of(&object).write(system, IoRequest { fd, ranges, offset, waits })
}

/// `lseek(fd, offset, whence)`.
pub fn lseek(system: &mut System, [fd, offset, whence, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.seek(fd, offset.cast_signed(), whence)
}

/// `sendfile(out, in, offset, count)`.
pub fn sendfile(system: &mut System, [to, from, offset, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    let source = system.files.raw_file(from)?;
    let (readable, stands, has_offset) = (source.readable(), source.offset, source.has_offset());
    let start = if offset == 0 { stands } else { checked(words::<1>(offset)?[0])? };
    let target = system.files.raw_file(to)?;
    if !readable || !target.writable() {
        return Err(Errno::EBADF);
    }
    if !has_offset && offset != 0 {
        return Err(Errno::ESPIPE);
    }
    if target.flags & O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    let waits = target.waits();
    system.before_read(from, Some(start), count);
    let attempt = |system: &mut System| system.files.transfer(from, start, to, None, count.min(RW_MAX), clock::wall());
    let done = match with_timeout(system, files(&[to]), forever(waits), attempt) {
        Err(Errno::EPIPE) => return Err(system.broken_pipe()),
        done => done?,
    };
    propagate_write(system, to, None, done)?;
    if offset == 0 {
        system.files.get(from)?.offset = start + done;
    } else {
        set_words(offset, &[start + done])?;
    }
    Ok(done)
}

/// `copy_file_range(in, in_offset, out, out_offset, length, flags)`.
pub fn copy_file_range(system: &mut System, [from, from_offset, to, to_offset, length, flags]: [u64; 6]) -> Result<u64, Errno> {
    let offset_of = |address: u64, stands: u64| if address == 0 { Ok(stands) } else { words::<1>(address).map(|[offset]| offset) };
    let source = system.files.file(from)?;
    let (readable, start) = (source.readable(), offset_of(from_offset, source.offset)?);
    let target = system.files.file(to)?;
    let (writable, appends, end) = (target.writable(), target.flags & O_APPEND != 0, offset_of(to_offset, target.offset)?);
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    for fd in [from, to] {
        system.files.raw_file(fd)?.operations().check_copy_range()?;
    }
    if !readable || !writable || appends {
        return Err(Errno::EBADF);
    }
    if start.checked_add(length).is_none() || end.checked_add(length).is_none() {
        return Err(Errno::EOVERFLOW);
    }
    let (start, end) = (checked(start)?, checked(end)?);
    let length = length.min(RW_MAX);
    let same = system.files.inode(from)? == system.files.inode(to)?;
    if same && start < end.saturating_add(length) && end < start.saturating_add(length) {
        return Err(Errno::EINVAL);
    }
    system.before_read(from, Some(start), length);
    let done = system.files.transfer(from, start, to, Some(end), length, clock::wall())?;
    propagate_write(system, to, Some(end), done)?;
    for (fd, address, offset) in [(from, from_offset, start + done), (to, to_offset, end + done)] {
        if address == 0 {
            system.files.get(fd)?.offset = offset;
        } else {
            set_words(address, &[offset])?;
        }
    }
    Ok(done)
}
