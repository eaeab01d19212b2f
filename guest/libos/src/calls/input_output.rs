// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user::UserRange;

use crate::errno::Errno;
use crate::files::{Kind, flag};
use crate::process::Process;
use crate::user::{RW_MAX, buffer, set_words, vectors, words};

/// `read(fd, buffer, length)`.
pub fn read(process: &mut Process, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    read_ranges(process, fd, &[buffer(address, length)?], None)
}

/// `readv(fd, vectors, count)`.
pub fn readv(process: &mut Process, [fd, address, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    read_ranges(process, fd, &vectors(address, count)?, None)
}

/// `write(fd, buffer, length)`.
pub fn write(process: &mut Process, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    write_ranges(process, fd, &[buffer(address, length)?], None)
}

/// `writev(fd, vectors, count)`.
pub fn writev(process: &mut Process, [fd, address, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    write_ranges(process, fd, &vectors(address, count)?, None)
}

/// `pread64(fd, buffer, length, offset)`.
pub fn pread64(process: &mut Process, [fd, address, length, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked(offset)?;
    read_ranges(process, fd, &[buffer(address, length)?], Some(offset))
}

/// `pwrite64(fd, buffer, length, offset)`.
pub fn pwrite64(process: &mut Process, [fd, address, length, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked(offset)?;
    write_ranges(process, fd, &[buffer(address, length)?], Some(offset))
}

/// `preadv(fd, vectors, count, offset)`.
pub fn preadv(process: &mut Process, [fd, address, count, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked(offset)?;
    read_ranges(process, fd, &vectors(address, count)?, Some(offset))
}

/// `pwritev(fd, vectors, count, offset)`.
pub fn pwritev(process: &mut Process, [fd, address, count, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked(offset)?;
    write_ranges(process, fd, &vectors(address, count)?, Some(offset))
}

/// `preadv2(fd, vectors, count, offset, unused, flags)`.
pub fn preadv2(process: &mut Process, [fd, address, count, offset, _, flags]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked2(offset, flags)?;
    read_ranges(process, fd, &vectors(address, count)?, offset)
}

/// `pwritev2(fd, vectors, count, offset, unused, flags)`.
pub fn pwritev2(process: &mut Process, [fd, address, count, offset, _, flags]: [u64; 6]) -> Result<u64, Errno> {
    let offset = checked2(offset, flags)?;
    write_ranges(process, fd, &vectors(address, count)?, offset)
}

/// An offset that is not negative.
fn checked(offset: u64) -> Result<u64, Errno> {
    if offset.cast_signed() < 0 { Err(Errno::EINVAL) } else { Ok(offset) }
}

/// The same for calls where -1 means where the file stands; their flags only speed things up or ask for what is so anyway.
fn checked2(offset: u64, flags: u64) -> Result<Option<u64>, Errno> {
    /// High priority, and both kinds of synchronous writing.
    const HARMLESS: u64 = 7;
    if flags & !HARMLESS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if offset == u64::MAX { Ok(None) } else { checked(offset).map(Some) }
}

/// Reads, waiting if there is nothing yet and the file waits.
fn read_ranges(process: &mut Process, fd: u64, ranges: &[UserRange], offset: Option<u64>) -> Result<u64, Errno> {
    let file = process.files.look(fd)?;
    let waits = file.waits();
    if let (Kind::Console { .. }, true, None) = (&file.kind, file.readable(), offset) {
        return process.read_console(ranges, waits);
    }
    patiently(process, waits, |process| process.files.read(fd, ranges, offset, &mut process.random, clock::wall()))
}

/// Makes an attempt, and again if that may wait and there was nothing to be done: whenever something has happened, until a signal comes.
fn patiently(process: &mut Process, waits: bool, mut attempt: impl FnMut(&mut Process) -> Result<u64, Errno>) -> Result<u64, Errno> {
    let first = attempt(process);
    if first != Err(Errno::EAGAIN) || !waits {
        return first;
    }
    let wanted = |result| if result == Err(Errno::EAGAIN) { None } else { Some(result) };
    process.wait(NO_DEADLINE, |process| wanted(attempt(process)))?.unwrap_or(Err(Errno::EAGAIN))
}

/// Writes, waiting for room if the file waits: a pipe takes all then, unless it fails.
fn write_ranges(process: &mut Process, fd: u64, ranges: &[UserRange], offset: Option<u64>) -> Result<u64, Errno> {
    let file = process.files.look(fd)?;
    let (waits, is_pipe) = (file.waits(), matches!(file.kind, Kind::Pipe(_)));
    if let (Kind::Console { stream, .. }, true, None) = (&file.kind, file.writable(), offset) {
        let stream = stream.output();
        return process.write_console(stream, ranges);
    }
    let wanted: u64 = ranges.iter().map(|range| range.length()).sum();
    let mut rest: Vec<UserRange> = Vec::new();
    let mut done = 0;
    loop {
        let left = if done == 0 { ranges } else { &rest };
        match patiently(process, waits, |process| process.files.write(fd, left, offset, clock::wall())) {
            Ok(bytes) => done += bytes,
            Err(Errno::EPIPE) => return if done > 0 { Ok(done) } else { Err(process.broken_pipe()) },
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        if done == wanted || !waits || !is_pipe {
            return Ok(done);
        }
        rest = after(ranges, done);
    }
}

/// What is left of the ranges after so many bytes.
fn after(ranges: &[UserRange], mut done: u64) -> Vec<UserRange> {
    let rest = ranges.iter().map(|range| {
        let skipped = done.min(range.length());
        done -= skipped;
        range.part(skipped, u64::MAX)
    });
    rest.filter(|range| range.length() > 0).collect()
}

/// `lseek(fd, offset, whence)`.
pub fn lseek(process: &mut Process, [fd, offset, whence, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.seek(fd, offset.cast_signed(), whence)
}

/// `sendfile(out, in, offset, count)`.
pub fn sendfile(process: &mut Process, [to, from, offset, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    let source = process.files.look(from)?;
    let (readable, stands, has_offset) = (source.readable(), source.offset, source.has_offset());
    let start = if offset == 0 { stands } else { checked(words::<1>(offset)?[0])? };
    let target = process.files.look(to)?;
    if !readable || !target.writable() {
        return Err(Errno::EBADF);
    }
    if !has_offset && offset != 0 {
        return Err(Errno::ESPIPE);
    }
    if target.flags & flag::APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    let waits = target.waits();
    let attempt = |process: &mut Process| process.files.transfer(from, start, to, None, count.min(RW_MAX), clock::wall());
    let done = match patiently(process, waits, attempt) {
        Err(Errno::EPIPE) => return Err(process.broken_pipe()),
        done => done?,
    };
    if offset == 0 {
        process.files.get(from)?.offset = start + done;
    } else {
        set_words(offset, &[start + done])?;
    }
    Ok(done)
}

/// `copy_file_range(in, in_offset, out, out_offset, length, flags)`.
pub fn copy_file_range(process: &mut Process, [from, from_offset, to, to_offset, length, flags]: [u64; 6]) -> Result<u64, Errno> {
    let offset_of = |address: u64, stands: u64| if address == 0 { Ok(stands) } else { words::<1>(address).map(|[offset]| offset) };
    let source = process.files.file(from)?;
    let (readable, start) = (source.readable(), offset_of(from_offset, source.offset)?);
    let target = process.files.file(to)?;
    let (writable, appends, end) = (target.writable(), target.flags & flag::APPEND != 0, offset_of(to_offset, target.offset)?);
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    for fd in [from, to] {
        match process.files.look(fd)?.kind {
            Kind::Image(..) | Kind::Node(_) => {}
            Kind::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
    }
    if !readable || !writable || appends {
        return Err(Errno::EBADF);
    }
    if start.checked_add(length).is_none() || end.checked_add(length).is_none() {
        return Err(Errno::EOVERFLOW);
    }
    let (start, end) = (checked(start)?, checked(end)?);
    let length = length.min(RW_MAX);
    let same = process.files.place(from)? == process.files.place(to)?;
    if same && start < end.saturating_add(length) && end < start.saturating_add(length) {
        return Err(Errno::EINVAL);
    }
    let done = process.files.transfer(from, start, to, Some(end), length, clock::wall())?;
    for (fd, address, offset) in [(from, from_offset, start + done), (to, to_offset, end + done)] {
        if address == 0 {
            process.files.get(fd)?.offset = offset;
        } else {
            set_words(address, &[offset])?;
        }
    }
    Ok(done)
}
