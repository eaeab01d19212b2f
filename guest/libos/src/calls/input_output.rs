// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing.

use pando_rt::console::Stream;
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::files::{Device, Kind, OpenFile, Standard, flag};
use crate::process::Process;
use crate::random::Random;
use crate::user::{RW_MAX, buffer, set_words, vectors, words};

/// `read(fd, buffer, length)`.
pub fn read(process: &mut Process, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    let range = buffer(address, length)?;
    read_ranges(process, fd, &[range])
}

/// `readv(fd, vectors, count)`.
pub fn readv(process: &mut Process, [fd, address, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    read_ranges(process, fd, &vectors(address, count)?)
}

/// `write(fd, buffer, length)`.
pub fn write(process: &mut Process, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    let range = buffer(address, length)?;
    write_ranges(process, fd, &[range])
}

/// `writev(fd, vectors, count)`.
pub fn writev(process: &mut Process, [fd, address, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    write_ranges(process, fd, &vectors(address, count)?)
}

/// `pread64(fd, buffer, length, offset)`.
pub fn pread64(process: &mut Process, [fd, address, length, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    read_at(process, fd, &[buffer(address, length)?], offset)
}

/// `preadv(fd, vectors, count, offset)`.
pub fn preadv(process: &mut Process, [fd, address, count, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    read_at(process, fd, &vectors(address, count)?, offset)
}

/// `pwrite64(fd, buffer, length, offset)`, `pwritev`: nothing that can be written has offsets.
pub fn pwrite(process: &mut Process, [fd, address, length, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let file = *process.files.get(fd)?;
    if offset.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    match file.kind {
        Kind::Console { .. } => Err(Errno::ESPIPE),
        _ => write(process, [fd, address, length, 0, 0, 0]),
    }
}

/// Fills the ranges one after the other until one is not filled.
fn read_ranges(process: &mut Process, fd: u64, ranges: &[UserRange]) -> Result<u64, Errno> {
    let file = process.files.get(fd)?;
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    match file.kind {
        Kind::Directory(_) => return Err(Errno::EISDIR),
        Kind::Console { .. } => {
            let waits = file.flags & flag::NON_BLOCKING == 0;
            return process.read_console(ranges, waits);
        }
        _ => {}
    }
    let mut done = 0;
    for range in ranges.iter().filter(|range| range.length() > 0) {
        match read_range(file, &mut process.random, *range) {
            Ok(bytes) => {
                done += bytes;
                // The next read of a stream would wait, though there is something to return.
                if bytes < range.length() {
                    break;
                }
            }
            Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
        }
    }
    Ok(done)
}

fn read_range(file: &mut OpenFile, random: &mut Random, range: UserRange) -> Result<u64, Errno> {
    match &file.kind {
        Kind::Regular(_, data) => {
            let bytes = data.copy(file.offset, range)?;
            file.offset += bytes;
            Ok(bytes)
        }
        Kind::Directory(_) => Err(Errno::EISDIR),
        Kind::Name(_) | Kind::Console { .. } => Err(Errno::EBADF),
        Kind::Device(Device::Null) => Ok(0),
        Kind::Device(Device::Zero | Device::Full) => {
            user::zero(range)?;
            Ok(range.length())
        }
        Kind::Device(Device::Random) => random.fill_user(range),
    }
}

fn read_at(process: &mut Process, fd: u64, ranges: &[UserRange], offset: u64) -> Result<u64, Errno> {
    let file = process.files.get(fd)?;
    if offset.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    if matches!(file.kind, Kind::Console { .. }) {
        return Err(Errno::ESPIPE);
    }
    let before = core::mem::replace(&mut file.offset, offset);
    let result = read_ranges(process, fd, ranges);
    process.files.get(fd)?.offset = before;
    result
}

fn write_ranges(process: &mut Process, fd: u64, ranges: &[UserRange]) -> Result<u64, Errno> {
    let file = process.files.get(fd)?;
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    let bytes = ranges.iter().map(|range| range.length()).sum();
    match file.kind {
        Kind::Console { stream, .. } => {
            let stream = if stream == Standard::Errors { Stream::Errors } else { Stream::Output };
            process.write_console(stream, ranges)
        }
        Kind::Device(Device::Full) if bytes > 0 => Err(Errno::ENOSPC),
        Kind::Device(_) => Ok(bytes),
        Kind::Regular(..) | Kind::Directory(_) | Kind::Name(_) => Err(Errno::EBADF),
    }
}

/// `lseek(fd, offset, whence)`.
pub fn lseek(process: &mut Process, [fd, offset, whence, ..]: [u64; 6]) -> Result<u64, Errno> {
    const START: u64 = 0;
    const CURRENT: u64 = 1;
    const END: u64 = 2;
    const DATA: u64 = 3;
    const HOLE: u64 = 4;
    let file = process.files.get(fd)?;
    let size = match &file.kind {
        Kind::Console { .. } => return Err(Errno::ESPIPE),
        Kind::Device(_) => return Ok(0),
        Kind::Name(_) => return Err(Errno::EBADF),
        Kind::Regular(_, data) => data.size(),
        Kind::Directory(inode) => inode.size,
    };
    let from = match whence {
        START => Some(0),
        CURRENT => Some(file.offset),
        END => Some(size),
        // Files of the image have no holes but the one at the end.
        DATA | HOLE if offset >= size => return Err(Errno::ENXIO),
        DATA => Some(0),
        HOLE => return Ok(size),
        _ => None,
    };
    let target = from.and_then(|from| from.checked_add_signed(offset.cast_signed())).filter(|target| target.cast_signed() >= 0);
    file.offset = target.ok_or(Errno::EINVAL)?;
    Ok(file.offset)
}

/// `sendfile(out, in, offset, count)`: from a file of the image to the console; other pairs are left to `read` and `write`.
pub fn sendfile(process: &mut Process, [to, from, offset, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    let target = *process.files.get(to)?;
    let source = process.files.get(from)?;
    if !target.writable() || !source.readable() {
        return Err(Errno::EBADF);
    }
    let Kind::Regular(_, data) = source.kind else { return Err(Errno::EINVAL) };
    let stream = match target.kind {
        Kind::Console { stream: Standard::Errors, .. } => Some(Stream::Errors),
        Kind::Console { .. } => Some(Stream::Output),
        Kind::Device(Device::Null) => None,
        _ => return Err(Errno::EINVAL),
    };
    let start = if offset == 0 { source.offset } else { words::<1>(offset)?[0] };
    let bytes = data.size().saturating_sub(start).min(count).min(RW_MAX);
    if let Some(stream) = stream {
        data.send(start, bytes, stream);
    }
    if offset == 0 {
        source.offset = start + bytes;
    } else {
        set_words(offset, &[start + bytes])?;
    }
    Ok(bytes)
}
