// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on pidfds.

use super::signals::{info_from_program, may_send};
use crate::errno::Errno;
use crate::files::pidfd::PidState;
use crate::files::tree::InodeRef;
use crate::pid::Pid;
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use crate::system::System;
use crate::uapi::{O_NONBLOCK, SI_USER};

/// `pidfd_open(process, flags)`.
pub fn pidfd_open(system: &mut System, [number, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let number = number as u32;
    if u64::from(flags as u32) & !O_NONBLOCK != 0 || number.cast_signed() <= 0 {
        return Err(Errno::EINVAL);
    }
    let Some(process) = system.process_of(number) else {
        // Only a process's first thread has the process's number.
        return Err(if system.thread_of(number).is_some() { Errno::EINVAL } else { Errno::ESRCH });
    };
    let has_ended = process.has_ended();
    system.files.open_process(number, has_ended, flags)
}

/// The process of a pidfd, unless it is gone.
fn process(system: &System, fd: u64) -> Result<Pid, Errno> {
    let watched = system.files.watched_process(fd)?;
    if watched.state == PidState::Gone { Err(Errno::ESRCH) } else { Ok(watched.process) }
}

/// The process that a signal through a descriptor is for, and whether it is gone. The process's directory in `/proc` serves, too.
fn receiver(system: &System, fd: u64) -> Result<(Pid, bool), Errno> {
    if let Ok(InodeRef::Proc(entry)) = system.files.inode(fd)
        && let Some(process) = entry.process()
    {
        return Ok((process, system.process_of(process).is_none()));
    }
    let watched = system.files.watched_process(fd)?;
    Ok((watched.process, watched.state == PidState::Gone))
}

/// `pidfd_send_signal(fd, signal, information, flags)`.
pub fn pidfd_send_signal(system: &mut System, [fd, signal, information, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let (to, is_gone) = receiver(system, fd)?;
    let info = match (information, signal as u32) {
        (0, 0) => None,
        (0, _) => Some(SigInfo::sent(Signal::from_number(signal)?, SI_USER, system.process.number, system.user())),
        _ => {
            let info_signal = crate::user::word32(information)?;
            if info_signal != signal as u32 {
                return Err(Errno::EINVAL);
            }
            info_from_program(system, to, signal, information)?
        }
    };
    if is_gone {
        return Err(Errno::ESRCH);
    }
    if !may_send(system, to, signal) {
        return Err(Errno::EPERM);
    }
    info.map_or(Ok(()), |info| system.send(to, info))?;
    Ok(0)
}

/// `pidfd_getfd(fd, other's fd, flags)`.
pub fn pidfd_getfd(system: &mut System, [fd, other, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let process = process(system, fd)?;
    if system.process_of(process).is_none_or(|process| process.has_ended()) {
        return Err(Errno::ESRCH);
    }
    let credentials = &system.files.current.credentials;
    let is_other_users = system.files.of(process).is_some_and(|other| !credentials.may_attach(&other.credentials));
    if process != system.process.number && is_other_users {
        return Err(Errno::EPERM);
    }
    system.files.take_descriptor(process, u64::from(other as u32))
}
