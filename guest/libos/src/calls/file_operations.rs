// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads, writes, requests and opens as system calls: they wait, send signals, and act on processes, terminals and the network.
//!
//! Most types of files need nothing here: their calls attempt the operation of [`crate::files::file_operations`], and wait on the
//! file's channels if it returns `EAGAIN`. [`of`] lists the others.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::user::UserRange;

use crate::calls::blocking::{files, forever, with_timeout};
use crate::errno::Errno;
use crate::files::pipe_file::PipeFile;
use crate::files::{FileObject, OpenFile};
use crate::system::System;
use crate::uapi::{FIONREAD, IN_ACCESS, IN_MODIFY, O_APPEND};
use crate::user::set_word32;

/// A read or write.
#[derive(Clone, Copy, Debug)]
pub struct IoRequest<'a> {
    /// The descriptor.
    pub fd: u64,
    /// The application's memory.
    pub ranges: &'a [UserRange],
    /// The offset; `None`: the file's own.
    pub offset: Option<u64>,
    /// Whether the call may wait.
    pub waits: bool,
}

impl IoRequest<'_> {
    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.length()).sum()
    }

    /// Checks a read of a file without an offset.
    ///
    /// # Errors
    /// `EBADF`: it is not open for reading. `ESPIPE`: the call gives an offset.
    pub fn check_stream_read(&self, system: &System) -> Result<(), Errno> {
        self.check_stream(system.files.raw_file(self.fd)?.readable())
    }

    /// Checks a write of a file without an offset.
    ///
    /// # Errors
    /// `EBADF`: it is not open for writing. `ESPIPE`: the call gives an offset.
    pub fn check_stream_write(&self, system: &System) -> Result<(), Errno> {
        self.check_stream(system.files.raw_file(self.fd)?.writable())
    }

    fn check_stream(&self, is_open: bool) -> Result<(), Errno> {
        match self.offset {
            _ if !is_open => Err(Errno::EBADF),
            Some(_) => Err(Errno::ESPIPE),
            None => Ok(()),
        }
    }
}

/// The system calls on a type of open file.
pub trait CallOperations {
    /// Reads. Waits if there is nothing yet.
    ///
    /// # Errors
    /// Those of `read`.
    fn read(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        read_ready(system, request)
    }

    /// Writes. Waits for room.
    ///
    /// # Errors
    /// Those of `write`.
    fn write(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        write_ready(system, request, false)
    }

    /// Handles a request (`ioctl`).
    ///
    /// # Errors
    /// `ENOTTY`: the file does not know it. Others depend on the request.
    fn ioctl(&self, system: &mut System, fd: u64, request: u32, argument: u64) -> Result<u64, Errno> {
        let file = system.files.raw_file(fd)?;
        let bytes = file.operations().readable_bytes(&system.files, file)?;
        if request != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        // Truncated to 32 bits, as by Linux.
        set_word32(argument, bytes as u32)?;
        Ok(0)
    }

    /// Acts on a file that was opened by a path, before it has a descriptor.
    ///
    /// # Errors
    /// `ESRCH`, `EACCES`, `ENOMEM`, `EIO`.
    fn open(&self, _system: &mut System, _file: &mut OpenFile, _flags: u64) -> Result<(), Errno> {
        Ok(())
    }

    /// Acts on a file that was opened by a path, after it got a descriptor.
    fn opened(&self, _system: &mut System, _flags: u64) {}
}

/// The types of files whose calls need more than the file's operations.
#[must_use]
pub fn of(object: &FileObject) -> &dyn CallOperations {
    match object {
        FileObject::Console(file) => file,
        FileObject::Pando(file) => file,
        FileObject::Cells(file) => file,
        FileObject::Pipe(file) => file,
        FileObject::Proc(file) => file,
        FileObject::PtyMaster(file) => file,
        FileObject::PtySlave(file) => file,
        FileObject::Regular(file) => file,
        FileObject::Signals(file) => file,
        FileObject::Socket(file) => file,
        FileObject::Timer(file) => file,
        _ => &Plain,
    }
}

/// A file whose calls need nothing but the file's operations.
struct Plain;

impl CallOperations for Plain {}

/// A blocking write to a pipe takes all bytes unless it fails.
impl CallOperations for PipeFile {
    fn write(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        write_ready(system, request, true)
    }
}

/// Reads as soon as the file has something.
///
/// # Errors
/// Those of `read`.
pub fn read_ready(system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
    let IoRequest { fd, ranges, offset, waits } = request;
    system.before_read(fd, offset, request.bytes());
    let done = with_timeout(system, files(&[fd]), forever(waits), |system| {
        system.files.read(fd, ranges, offset, &mut system.random, clock::wall())
    })?;
    if done > 0 {
        system.files.notify_open(fd, IN_ACCESS);
    }
    Ok(done)
}

/// Writes as soon as the file has room, or until all bytes are written if it `takes_all`.
///
/// # Errors
/// Those of `write`.
pub fn write_ready(system: &mut System, request: IoRequest<'_>, takes_all: bool) -> Result<u64, Errno> {
    let IoRequest { fd, ranges, offset, waits } = request;
    let wanted = request.bytes();
    // Bytes that were written before the call had to wait stay written.
    let mut done = system.thread.call.done;
    let mut rest = if done == 0 { Vec::new() } else { after(ranges, done) };
    loop {
        let left = if done == 0 { ranges } else { &rest };
        match with_timeout(system, files(&[fd]), forever(waits), |system| system.files.write(fd, left, offset, clock::wall())) {
            Ok(bytes) => done += bytes,
            Err(Errno::WAITS) => {
                system.thread.call.done = done;
                return Err(Errno::WAITS);
            }
            Err(Errno::EPIPE) => {
                // The signal is sent although some bytes were written, as on Linux.
                let error = system.broken_pipe();
                return if done > 0 { Ok(done) } else { Err(error) };
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(system.file_size_error(error)),
        }
        if done == wanted || !waits || !takes_all {
            propagate_write(system, fd, offset, done)?;
            return Ok(done);
        }
        rest = after(ranges, done);
        system.wake_noted();
    }
}

/// Reports a write to watches, and shows it in shared mappings: at `offset`, or before the file's position.
///
/// # Errors
/// `EBADF`, `ENOMEM`, `EIO`.
pub fn propagate_write(system: &mut System, fd: u64, offset: Option<u64>, done: u64) -> Result<(), Errno> {
    if done > 0 {
        system.files.notify_open(fd, IN_MODIFY);
    }
    if system.shows_nodes() && done > 0 {
        let file = system.files.raw_file(fd)?;
        let end = match offset {
            Some(_) if file.flags & O_APPEND != 0 => system.files.status_of(file)?.size,
            Some(offset) => offset + done,
            None => file.offset,
        };
        system.after_write(fd, end, done)?;
    }
    Ok(())
}

/// The ranges behind the first `done` bytes.
fn after(ranges: &[UserRange], mut done: u64) -> Vec<UserRange> {
    let rest = ranges.iter().map(|range| {
        let skipped = done.min(range.length());
        done -= skipped;
        range.part(skipped, u64::MAX)
    });
    rest.filter(|range| range.length() > 0).collect()
}
