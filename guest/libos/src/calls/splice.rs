// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moving bytes between files through pipes.

use pando_rt::clock;

use crate::calls::blocking::{files, forever, with_timeout};
use crate::calls::file_operations::propagate_write;
use crate::calls::input_output::{readv, with_flags};
use crate::errno::Errno;
use crate::files::OpenFile;
use crate::files::file_operations::Side;
use crate::files::pipe::PipeId;
use crate::files::pipe_file::PipeFile;
use crate::system::System;
use crate::uapi::{O_APPEND, O_NONBLOCK, SPLICE_F_GIFT, SPLICE_F_MORE, SPLICE_F_MOVE, SPLICE_F_NONBLOCK};
use crate::user::{RW_MAX, set_words, vectors as ranges, words};

/// All flags; the others are only hints.
const FLAGS: u64 = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;

/// `splice(from, from_offset, to, to_offset, length, flags)`.
pub fn splice(system: &mut System, [from, from_offset, to, to_offset, length, flags]: [u64; 6]) -> Result<u64, Errno> {
    let flags = u64::from(flags as u32);
    if length == 0 {
        return Ok(0);
    }
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let (source, target) = (system.files.raw_file(from)?, system.files.raw_file(to)?);
    if !source.readable() || !target.writable() {
        return Err(Errno::EBADF);
    }
    let (source_pipe, target_pipe) = (pipe(source), pipe(target));
    let (from_pipe, to_pipe) = (source_pipe.is_some(), target_pipe.is_some());
    if from_pipe && from_offset != 0 || to_pipe && to_offset != 0 {
        return Err(Errno::ESPIPE);
    }
    if from_pipe == to_pipe && source_pipe == target_pipe {
        return Err(Errno::EINVAL);
    }
    if target.flags & O_APPEND != 0 && !to_pipe {
        return Err(Errno::EINVAL);
    }
    system.files.check_splice(from, to)?;
    let waits = flags & SPLICE_F_NONBLOCK == 0 && target.waits() && (source.waits() || from_pipe && !to_pipe);
    let (from_side, to_side) = (Side { fd: from, offset: offset(from_offset)? }, Side { fd: to, offset: offset(to_offset)? });
    if !from_pipe {
        system.before_read(from, from_side.offset, length.min(RW_MAX));
    }
    let done = with_timeout(system, files(&[from, to]), forever(waits), |system| {
        let done = system.files.splice(from_side, to_side, length.min(RW_MAX), clock::wall())?;
        system.files.note_changes(&[from, to]);
        Ok(done)
    });
    let done = done.map_err(|error| if error == Errno::EPIPE { system.broken_pipe() } else { error })?;
    for (address, side) in [(from_offset, from_side), (to_offset, to_side)] {
        if let Some(offset) = side.offset {
            set_words(address, &[offset + done])?;
        }
    }
    propagate_write(system, to, to_side.offset, done)?;
    Ok(done)
}

/// An offset in the application's memory, if there is one.
fn offset(address: u64) -> Result<Option<u64>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let [offset] = words(address)?;
    if offset.cast_signed() < 0 { Err(Errno::EINVAL) } else { Ok(Some(offset)) }
}

fn pipe(file: &OpenFile) -> Option<PipeId> {
    file.downcast::<PipeFile>().map(|file| file.pipe)
}

/// `tee(from, to, length, flags)`.
pub fn tee(system: &mut System, [from, to, length, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let flags = u64::from(flags as u32);
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let (source, target) = (system.files.raw_file(from)?, system.files.raw_file(to)?);
    if !source.readable() || !target.writable() {
        return Err(Errno::EBADF);
    }
    let waits = flags & SPLICE_F_NONBLOCK == 0 && source.waits() && target.waits();
    let done = with_timeout(system, files(&[from, to]), forever(waits), |system| {
        let done = system.files.tee(from, to, length)?;
        system.files.note_changes(&[to]);
        Ok(done)
    });
    done.map_err(|error| if error == Errno::EPIPE { system.broken_pipe() } else { error })
}

/// `vmsplice(fd, vectors, count, flags)`: the bytes are copied into the pipe. A program sees a difference only if it changes them
/// afterwards.
pub fn vmsplice(system: &mut System, [fd, vectors, count, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if u64::from(flags as u32) & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let file = system.files.raw_file(fd)?;
    let pipe = pipe(file).ok_or(Errno::EBADF)?;
    let waits = flags & SPLICE_F_NONBLOCK == 0 && file.waits();
    if !file.writable() {
        let added = if waits { 0 } else { O_NONBLOCK };
        return with_flags(system, fd, added, 0, |system| readv(system, [fd, vectors, count, 0, 0, 0]));
    }
    let ranges = ranges(vectors, count)?;
    // Waits for some room, not for room for all bytes.
    let done = with_timeout(system, files(&[fd]), forever(waits), |system| {
        let done = system.files.pipes.get_mut(pipe)?.take_pages(&ranges)?;
        system.files.note_changes(&[fd]);
        Ok(done)
    });
    done.map_err(|error| if error == Errno::EPIPE { system.broken_pipe() } else { error })
}
