// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers between files through a pipe, inside the libOS: `splice` and `tee`. Nothing here waits.

use alloc::vec;

use super::socket::transfer::Receiving;
use super::{Device, Files, Kind};
use crate::errno::Errno;

/// Bytes per step.
const PIECE: usize = 4096;

/// One side of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// The descriptor.
    pub fd: u64,
    /// The offset; `None`: the file's own, if it has one.
    pub offset: Option<u64>,
}

impl Files {
    /// Checks that bytes can be spliced between two files, one of which must be a pipe, before the call waits.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: they cannot.
    pub fn check_splice(&self, from: u64, to: u64) -> Result<(), Errno> {
        let (source, target) = (&self.look(from)?.kind, &self.look(to)?.kind);
        let gives = matches!(source, Kind::Pipe(_) | Kind::Image(..) | Kind::Node(_) | Kind::Socket(_) | Kind::Device(..));
        let takes =
            matches!(target, Kind::Pipe(_) | Kind::Image(..) | Kind::Node(_) | Kind::Socket(_) | Kind::Console { .. } | Kind::Device(..));
        if gives && takes { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Moves up to so many bytes; at least one side is a pipe. Returns how many.
    ///
    /// # Errors
    /// `EAGAIN`: the source is empty or the target full. `EPIPE`; `EINVAL`: the files cannot be spliced; those of writing.
    pub fn splice(&mut self, from: Side, to: Side, bytes: u64, now: u64) -> Result<u64, Errno> {
        if let Kind::Pipe(_) = self.look(from.fd)?.kind {
            return self.drain_pipe(from.fd, to, bytes, now);
        }
        let Kind::Pipe(pipe) = self.look(to.fd)?.kind else { return Err(Errno::EINVAL) };
        let room = self.pipes.get(pipe)?.room()?.min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let source = self.look(from.fd)?;
        match source.kind {
            Kind::Image(..) | Kind::Node(_) => {
                let start = from.offset.unwrap_or(source.offset);
                let done = self.transfer(from.fd, start, to.fd, None, room as u64, now)?;
                if from.offset.is_none() {
                    self.get(from.fd)?.offset = start + done;
                }
                Ok(done)
            }
            Kind::Socket(id) => {
                let mut room = vec![0; room];
                let length = room.len();
                let mut taken = 0;
                let mut take = |piece: &[u8]| {
                    room[taken..taken + piece.len()].copy_from_slice(piece);
                    taken += piece.len();
                    piece.len()
                };
                let received = self.sockets.receive(id, Receiving { room: length, peeks: false, waits: false, take: &mut take })?;
                self.let_go(&received.files);
                self.pipes.get_mut(pipe)?.push(&room[..taken]).map(|done| done as u64)
            }
            Kind::Device(Device::Null, _) => Ok(0),
            Kind::Device(Device::Zero | Device::Full, _) => self.pipes.get_mut(pipe)?.push(&vec![0; room]).map(|done| done as u64),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Moves the content of a pipe.
    fn drain_pipe(&mut self, from: u64, to: Side, bytes: u64, now: u64) -> Result<u64, Errno> {
        let Kind::Pipe(pipe) = self.look(from)?.kind else { return Err(Errno::EINVAL) };
        self.pipes.get(pipe)?.check_filled()?;
        if let Kind::Pipe(target) = self.look(to.fd)?.kind {
            self.pipes.get(target)?.room()?;
        }
        let mut piece = [0; PIECE];
        let mut done = 0;
        while done < bytes {
            let wanted = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(PIECE);
            let held = self.pipes.get(pipe)?.peek(0, &mut piece[..wanted]);
            match self.put(to.fd, to.offset.map(|offset| offset + done), &piece[..held], now) {
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
        let (Kind::Pipe(source), Kind::Pipe(target)) = (&self.look(from)?.kind, &self.look(to)?.kind) else { return Err(Errno::EINVAL) };
        let (source, target) = (*source, *target);
        if source == target {
            return Err(Errno::EINVAL);
        }
        self.pipes.get(source)?.check_filled()?;
        self.pipes.get(target)?.room()?;
        let mut piece = [0; PIECE];
        let mut done = 0;
        while done < bytes {
            let wanted = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(PIECE);
            let held = self.pipes.get(source)?.peek(done as usize, &mut piece[..wanted]);
            if held == 0 {
                break;
            }
            match self.pipes.get_mut(target)?.push(&piece[..held]) {
                Ok(copied) => done += copied as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}
