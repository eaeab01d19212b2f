// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ioctl` on terminals: the operator's, and pseudo terminals.

use pando_rt::user::{self, write};

use crate::calls::file_operations::{CallOperations, IoRequest};
use crate::errno::Errno;
use crate::files::console_file::ConsoleFile;
use crate::signals::Signal;
use crate::system::System;
use crate::terminal::TerminalName;
use crate::terminal::settings::{SIZE, SIZE_WITH_SPEEDS};
use crate::uapi::{
    FIONREAD, TCFLSH, TCGETS, TCGETS2, TCSBRK, TCSBRKP, TCSETS, TCSETS2, TCSETSF, TCSETSF2, TCSETSW, TCSETSW2, TCXONC, TIOCEXCL, TIOCGETD,
    TIOCGPGRP, TIOCGSID, TIOCGWINSZ, TIOCNOTTY, TIOCNXCL, TIOCOUTQ, TIOCSCTTY, TIOCSPGRP, TIOCSTI, TIOCSWINSZ,
};
use crate::user::{set_word32, word32};

impl CallOperations for ConsoleFile {
    fn read(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_read(system)?;
        system.read_console(request.ranges, request.waits)
    }

    fn write(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_write(system)?;
        system.write_console(self.stream.output(), request.ranges)
    }

    fn ioctl(&self, system: &mut System, _fd: u64, request: u32, argument: u64) -> Result<u64, Errno> {
        if self.terminal.is_none() {
            return Err(Errno::ENOTTY);
        }
        ioctl(system, TerminalName::Operator, request, argument)
    }
}

/// `ioctl` on a terminal.
///
/// # Errors
/// `ENOTTY`: terminals here lack the request. `EFAULT`, `EINVAL`.
pub fn ioctl(system: &mut System, name: TerminalName, request: u32, argument: u64) -> Result<u64, Errno> {
    let (process, session) = (system.process.number, system.process.session);
    let terminal = system.terminal_mut(name)?;
    match request {
        TCGETS => write(argument, &terminal.settings.to_bytes()[..SIZE])?,
        TCGETS2 => write(argument, &terminal.settings.to_bytes())?,
        TCSETS | TCSETSW => set::<SIZE>(system, name, argument, false)?,
        TCSETSF => set::<SIZE>(system, name, argument, true)?,
        TCSETS2 | TCSETSW2 => set::<SIZE_WITH_SPEEDS>(system, name, argument, false)?,
        TCSETSF2 => set::<SIZE_WITH_SPEEDS>(system, name, argument, true)?,
        TCFLSH => match argument {
            0 => flush(system, name)?,
            1 => drop_written(system, name)?,
            2 => {
                flush(system, name)?;
                drop_written(system, name)?;
            }
            _ => return Err(Errno::EINVAL),
        },
        TCXONC => match argument {
            0 => terminal.input.stopped = true,
            1 => {
                terminal.input.stopped = false;
                system.wake(name.output());
            }
            2 | 3 => {}
            _ => return Err(Errno::EINVAL),
        },
        TIOCGPGRP | TIOCGSID if terminal.session != session => return Err(Errno::ENOTTY),
        TIOCGPGRP => set_word32(argument, terminal.foreground)?,
        TIOCGSID => set_word32(argument, terminal.session)?,
        TIOCSPGRP => set_foreground(system, name, word32(argument)?)?,
        TIOCSCTTY => take_terminal(system, name)?,
        TIOCNOTTY if terminal.session == session => {
            if process == session {
                (terminal.session, terminal.foreground) = (0, 0);
            }
        }
        TIOCGWINSZ => {
            let mut bytes = [0; 8];
            for (room, word) in bytes.chunks_exact_mut(2).zip(terminal.size) {
                room.copy_from_slice(&word.to_le_bytes());
            }
            write(argument, &bytes)?;
        }
        TIOCSWINSZ => {
            let mut bytes = [0; 8];
            user::read(argument, &mut bytes)?;
            let word = |index: usize| u16::from_le_bytes([bytes[index * 2], bytes[index * 2 + 1]]);
            if terminal.set_size([word(0), word(1), word(2), word(3)]) {
                system.raise_at(name, Signal::SIGWINCH);
            }
        }
        FIONREAD => {
            take_typed(system, name);
            let terminal = system.terminal(name)?;
            let typed = terminal.input.readable(&terminal.settings);
            set_word32(argument, typed as u32)?;
        }
        TIOCOUTQ | TIOCGETD => set_word32(argument, 0)?,
        TIOCEXCL | TIOCNXCL | TCSBRK | TCSBRKP => {}
        // As on Linux with `dev.tty.legacy_tiocsti=0`.
        TIOCSTI => return Err(Errno::EIO),
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// Reads typed input, if the keys come from the operator.
fn take_typed(system: &mut System, name: TerminalName) {
    if name == TerminalName::Operator {
        system.take_typed();
    }
}

/// Sets the foreground process group, which must be of the terminal's session.
fn set_foreground(system: &mut System, name: TerminalName, group: u32) -> Result<(), Errno> {
    let session = system.process.session;
    if system.terminal(name)?.session != session {
        return Err(Errno::ENOTTY);
    }
    if group.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    system.check_foreground(name, Signal::SIGTTOU)?;
    let members = system.processes_where(|process| process.group == group);
    let first = members.first().and_then(|number| system.process_of(*number)).ok_or(Errno::ESRCH)?;
    if first.session != session {
        return Err(Errno::EPERM);
    }
    system.terminal_mut(name)?.foreground = group;
    Ok(())
}

/// Makes an opened terminal the controlling one of the running process's session, if the process leads a session without one and
/// the terminal is free.
pub fn adopt(system: &mut System, name: TerminalName) {
    // Otherwise the terminal is a file like any other.
    let _ = take_terminal(system, name);
}

/// Makes the terminal the controlling one of the running process's session, which it must lead.
fn take_terminal(system: &mut System, name: TerminalName) -> Result<(), Errno> {
    let process = &system.process;
    let (number, session, group) = (process.number, process.session, process.group);
    let has = system.controlling();
    if has == Some(name) {
        return Ok(());
    }
    let terminal = system.terminal_mut(name)?;
    if number != session || terminal.session != 0 || has.is_some() {
        return Err(Errno::EPERM);
    }
    (terminal.session, terminal.foreground) = (session, group);
    Ok(())
}

/// Sets the given settings, and drops unread input if `flushes`.
fn set<const N: usize>(system: &mut System, name: TerminalName, argument: u64, flushes: bool) -> Result<(), Errno> {
    let mut bytes = [0; N];
    user::read(argument, &mut bytes)?;
    system.check_foreground(name, Signal::SIGTTOU)?;
    // Earlier input is processed with the old settings.
    take_typed(system, name);
    if flushes {
        flush(system, name)?;
    }
    let terminal = system.terminal_mut(name)?;
    let settings = terminal.settings.with_bytes(&bytes);
    terminal.set(settings);
    // A read that waits for a line may need less now.
    system.after_terminal_read(name);
    Ok(())
}

/// Drops unread input.
fn flush(system: &mut System, name: TerminalName) -> Result<(), Errno> {
    take_typed(system, name);
    match name {
        TerminalName::Operator => system.terminal.input.flush(),
        TerminalName::Pseudo(id) => system.files.ptys.get_mut(id)?.drop_typed(),
    }
    system.after_terminal_read(name);
    Ok(())
}

/// Drops output that has not arrived. At the operator's terminal all of it has.
fn drop_written(system: &mut System, name: TerminalName) -> Result<(), Errno> {
    if let TerminalName::Pseudo(id) = name {
        system.files.ptys.get_mut(id)?.drop_written();
    }
    system.wake(name.output());
    Ok(())
}
