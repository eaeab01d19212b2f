// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers between files through a pipe, inside the libOS: `splice` and `tee`. Nothing here waits.

use super::Files;
use super::file_operations::Side;
use super::pipe::PipeId;
use super::pipe_file::PipeFile;
use crate::errno::Errno;

/// Bytes per step.
const PIECE: usize = 4096;

impl Files {
    /// Checks that bytes can be spliced between two files, one of which must be a pipe, before the call waits.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: they cannot.
    pub fn check_splice(&self, from: u64, to: u64) -> Result<(), Errno> {
        let (gives, _) = self.raw_file(from)?.operations().can_splice();
        let (_, takes) = self.raw_file(to)?.operations().can_splice();
        if gives && takes { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The pipe of a descriptor.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: it is no pipe.
    pub(super) fn pipe_of(&self, fd: u64) -> Result<PipeId, Errno> {
        self.raw_file(fd)?.downcast::<PipeFile>().map(|file| file.pipe).ok_or(Errno::EINVAL)
    }

    /// Moves up to so many bytes; at least one side is a pipe. Returns how many.
    ///
    /// # Errors
    /// `EAGAIN`: the source is empty or the target full. `EPIPE`; `EINVAL`: the files cannot be spliced; those of writing.
    pub fn splice(&mut self, from: Side, to: Side, bytes: u64, now: u64) -> Result<u64, Errno> {
        if let Ok(source) = self.pipe_of(from.fd) {
            return self.drain_pipe(source, to, bytes, now);
        }
        let target = self.pipe_of(to.fd)?;
        let room = self.pipes.get(target)?.room()?.min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let object = self.raw_file(from.fd)?.object;
        object.operations().splice_read(self, from, to.fd, room, now)
    }

    /// Moves the content of a pipe.
    fn drain_pipe(&mut self, pipe: PipeId, to: Side, bytes: u64, now: u64) -> Result<u64, Errno> {
        self.pipes.get(pipe)?.check_filled()?;
        if let Ok(target) = self.pipe_of(to.fd) {
            self.pipes.get(target)?.room()?;
        }
        let mut piece = [0; PIECE];
        let mut done = 0;
        while done < bytes {
            let wanted = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(PIECE);
            let length = self.pipes.get(pipe)?.peek(0, &mut piece[..wanted]);
            match self.kernel_write(to.fd, to.offset.map(|offset| offset + done), &piece[..length], now) {
                Ok(0) => break,
                Ok(moved) => {
                    self.pipes.get_mut(pipe)?.skip(moved);
                    done += moved as u64;
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Copies the content of one pipe to another, up to so many bytes. Returns how many.
    ///
    /// # Errors
    /// `EINVAL`: one of them is no pipe, or both are the same. `EAGAIN`, `EPIPE`.
    pub fn tee(&mut self, from: u64, to: u64, bytes: u64) -> Result<u64, Errno> {
        let (source, target) = (self.pipe_of(from)?, self.pipe_of(to)?);
        if source == target {
            return Err(Errno::EINVAL);
        }
        self.pipes.get(source)?.check_filled()?;
        self.pipes.get(target)?.room()?;
        let mut piece = [0; PIECE];
        let mut done = 0;
        while done < bytes {
            let wanted = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(PIECE);
            let length = self.pipes.get(source)?.peek(done as usize, &mut piece[..wanted]);
            if length == 0 {
                break;
            }
            match self.pipes.get_mut(target)?.push(&piece[..length]) {
                Ok(copied) => done += copied as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}
