// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both ends of pseudo terminals: reading, writing, and requests that only the master has.

use alloc::vec::Vec;

use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user::{self, UserRange};

use crate::calls::blocking::{files, forever, with_timeout};
use crate::calls::file_operations::{CallOperations, IoRequest};
use crate::calls::terminal;
use crate::console::{skip, write_to};
use crate::errno::Errno;
use crate::files::OpenFile;
use crate::files::pty_file::{PtyMaster, PtySlave};
use crate::signals::Signal;
use crate::system::System;
use crate::terminal::input::TYPED_MAX;
use crate::terminal::{PtyId, TerminalName};
use crate::uapi::{
    FIONREAD, O_ACCMODE, O_CLOEXEC, O_LARGEFILE, O_NOCTTY, O_NONBLOCK, TCFLSH, TIOCGPGRP, TIOCGPKT, TIOCGPTLCK, TIOCGPTN, TIOCGPTPEER,
    TIOCGSID, TIOCPKT, TIOCSIG, TIOCSPGRP, TIOCSPTLCK, TOSTOP,
};
use crate::user::{set_word32, word32};
use crate::wait::Channel;

impl CallOperations for PtyMaster {
    fn read(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_read(system)?;
        read(system, self.pty, request)
    }

    fn write(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_write(system)?;
        write(system, self.pty, request.ranges, request.waits)
    }

    fn ioctl(&self, system: &mut System, _fd: u64, request: u32, argument: u64) -> Result<u64, Errno> {
        ioctl(system, self.pty, request, argument)
    }
}

impl CallOperations for PtySlave {
    fn read(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_read(system)?;
        system.read_terminal(TerminalName::Pseudo(self.pty), request.ranges, request.waits)
    }

    fn write(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_write(system)?;
        write_slave(system, self.pty, request.ranges, request.waits)
    }

    fn ioctl(&self, system: &mut System, _fd: u64, request: u32, argument: u64) -> Result<u64, Errno> {
        terminal::ioctl(system, TerminalName::Pseudo(self.pty), request, argument)
    }

    fn opened(&self, system: &mut System, flags: u64) {
        if flags & O_NOCTTY == 0 {
            terminal::adopt(system, TerminalName::Pseudo(self.pty));
        }
    }
}

/// `ioctl` on a master. Most requests go to the terminal.
///
/// # Errors
/// Those of [`terminal::ioctl`]; `EINVAL`: there is no such signal.
fn ioctl(system: &mut System, id: PtyId, request: u32, argument: u64) -> Result<u64, Errno> {
    let name = TerminalName::Pseudo(id);
    let pty = system.files.ptys.get_mut(id)?;
    match request {
        TIOCGPTN => set_word32(argument, id.0)?,
        TIOCGPTLCK => set_word32(argument, pty.locked.into())?,
        TIOCSPTLCK => pty.locked = word32(argument)? != 0,
        TIOCGPKT => set_word32(argument, pty.packets.into())?,
        TIOCPKT => pty.packets = word32(argument)? != 0,
        TIOCGPGRP => set_word32(argument, pty.terminal.foreground)?,
        TIOCGSID if pty.terminal.session == 0 => return Err(Errno::ENOTTY),
        TIOCGSID => set_word32(argument, pty.terminal.session)?,
        TIOCSPGRP => return Err(Errno::ENOTTY),
        FIONREAD => set_word32(argument, pty.output_length() as u32)?,
        TCFLSH if argument == 0 || argument == 2 => {
            pty.drop_output();
            system.wake(Channel::Terminal(id.0));
        }
        // Input of the master is typed at once, so nothing is queued.
        TCFLSH if argument == 1 => {}
        TIOCSIG => {
            let signal = Signal::from_number(argument)?;
            system.raise_at(name, signal);
        }
        TIOCGPTPEER => {
            let slave = system.files.open_peer(id)?;
            let file = OpenFile::new(slave, argument & (O_ACCMODE | O_NONBLOCK) | O_LARGEFILE);
            let fd = system.files.insert(file, argument & O_CLOEXEC != 0)?;
            if argument & O_NOCTTY == 0 {
                terminal::adopt(system, name);
            }
            return Ok(fd);
        }
        _ => return terminal::ioctl(system, name, request, argument),
    }
    Ok(0)
}

/// Reads the output of a terminal.
///
/// # Errors
/// `EAGAIN`, `EFAULT`; `EIO`: no process has the slave open; `ERESTART`: a signal came first.
fn read(system: &mut System, id: PtyId, request: IoRequest<'_>) -> Result<u64, Errno> {
    let IoRequest { fd, ranges, waits, .. } = request;
    let room: u64 = ranges.iter().map(|range| range.length()).sum();
    if room == 0 {
        return Ok(0);
    }
    let mut output = Vec::new();
    with_timeout(system, files(&[fd]), forever(waits), |system| {
        output = system.files.ptys.get_mut(id)?.take_output(usize::try_from(room).unwrap_or(usize::MAX))?;
        Ok(0)
    })?;
    write_to(ranges, &output)?;
    system.wake(Channel::Terminal(id.0));
    Ok(output.len() as u64)
}

/// Types at a terminal. Bytes without room in its input are typed later.
///
/// # Errors
/// `EAGAIN`, `EFAULT`; `ERESTART`: a signal came first.
fn write(system: &mut System, id: PtyId, ranges: &[UserRange], waits: bool) -> Result<u64, Errno> {
    /// Most bytes that are typed at a time.
    const PIECE: usize = TYPED_MAX / 4;
    // Bytes that were written before the call had to wait stay written.
    let mut left = ranges.to_vec();
    let mut done = system.thread.call.done;
    skip(&mut left, done);
    while let Some(range) = left.first().copied() {
        let room = system.files.ptys.get(id)?.key_room();
        if room == 0 {
            return await_room(system, id, done, waits);
        }
        let mut keys = [0; PIECE];
        let part = range.part(0, PIECE.min(room) as u64);
        let keys = &mut keys[..part.length() as usize];
        user::read(part.start(), keys)?;
        system.files.ptys.get_mut(id)?.add_keys(keys);
        system.type_waiting(id);
        system.wake(Channel::Terminal(id.0));
        skip(&mut left, part.length());
        done += part.length();
    }
    Ok(done)
}

/// Waits until an end of a pseudo terminal has room again. A non-blocking call returns the bytes that it has written.
fn await_room(system: &mut System, id: PtyId, done: u64, waits: bool) -> Result<u64, Errno> {
    if !waits {
        return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
    }
    system.thread.call.done = done;
    match system.wait(&[Channel::Terminal(id.0)], NO_DEADLINE, |_| None::<()>) {
        Err(Errno::ERESTART) if done > 0 => Ok(done),
        waits => waits.and(Err(Errno::EAGAIN)),
    }
}

/// Writes to a pseudo terminal as its settings require. Waits while its output is stopped, or the master's buffer is full.
///
/// # Errors
/// `EAGAIN`, `EFAULT`; `EIO`: the master is closed; `ERESTART`: a signal came first.
fn write_slave(system: &mut System, id: PtyId, ranges: &[UserRange], waits: bool) -> Result<u64, Errno> {
    /// Most bytes that are written at a time; each may be a tab that becomes eight.
    const PIECE: usize = 512;
    let name = TerminalName::Pseudo(id);
    if system.terminal(name)?.settings.has(TOSTOP) {
        system.check_foreground(name, Signal::SIGTTOU)?;
    }
    let mut left = ranges.to_vec();
    // Bytes that were written before the call had to wait stay written.
    let mut done = system.thread.call.done;
    skip(&mut left, done);
    while let Some(range) = left.first().copied() {
        let pty = system.files.ptys.get_mut(id)?;
        if pty.is_hung_up() {
            return Err(Errno::EIO);
        }
        if pty.terminal.input.stopped || pty.room() < PIECE * 8 {
            return await_room(system, id, done, waits);
        }
        let mut bytes = [0; PIECE];
        let part = range.part(0, PIECE as u64);
        let bytes = &mut bytes[..part.length() as usize];
        user::read(part.start(), bytes)?;
        let output = pty.terminal.process_output(bytes);
        pty.push_output(&output);
        system.wake(Channel::Terminal(id.0));
        skip(&mut left, part.length());
        done += part.length();
    }
    Ok(done)
}
