// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that are read from a file.

use alloc::vec::Vec;

use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user::{self, UserRange};

use crate::calls::file_operations::{CallOperations, IoRequest};
use crate::calls::signals::set;
use crate::errno::Errno;
use crate::files::OpenFile;
use crate::files::signal_file::SignalFile;
use crate::signals::SignalSet;
use crate::signals::info::SigInfo;
use crate::system::System;
use crate::uapi::{O_CLOEXEC, O_NONBLOCK, O_RDWR};
use crate::wait::Channel;

/// `signalfd(fd, set, size)`.
pub fn signalfd(system: &mut System, [fd, wanted, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    signalfd4(system, [fd, wanted, size, 0, 0, 0])
}

/// `signalfd4(fd, set, size, flags)`.
pub fn signalfd4(system: &mut System, [fd, wanted, size, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    const NEW: i32 = -1;
    let wanted = set(wanted, size)?.without(SignalSet::UNSTOPPABLE);
    if u64::from(flags as u32) & !(O_NONBLOCK | O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    if fd as i32 == NEW {
        let file = OpenFile::new(SignalFile { wanted }, O_RDWR | flags & O_NONBLOCK);
        return system.files.insert(file, flags & O_CLOEXEC != 0);
    }
    let file = system.files.file(fd)?;
    file.downcast::<SignalFile>().ok_or(Errno::EINVAL)?;
    file.object = SignalFile { wanted }.into();
    Ok(fd)
}

impl CallOperations for SignalFile {
    fn read(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        read(system, self.wanted, request.ranges, request.waits)
    }
}

/// Reads as many signals of a set as there is room for. Waits for the first one if `waits`.
///
/// # Errors
/// `EINVAL`: there is no room for one. `EAGAIN`, `EFAULT`; `ERESTART`: another signal came first.
fn read(system: &mut System, wanted: SignalSet, ranges: &[UserRange], waits: bool) -> Result<u64, Errno> {
    const SIZE: u64 = SigInfo::SIZE as u64;
    let rooms = ranges.iter().flat_map(|range| (0..range.length() / SIZE).map(|index| range.start() + index * SIZE));
    let rooms: Vec<u64> = rooms.take(SigInfo::SIZE).collect();
    let mut done = 0;
    for room in rooms {
        let signal = match system.take_signal(wanted) {
            None if done > 0 => break,
            None if !waits => return Err(Errno::EAGAIN),
            None => system.wait(&[Channel::Signal(system.process.number)], NO_DEADLINE, |system| system.take_signal(wanted))?,
            signal => signal,
        };
        let info = system.delivered_info(signal.ok_or(Errno::EAGAIN)?);
        user::write(room, &info.for_file())?;
        done += SIZE;
    }
    if done == 0 { Err(Errno::EINVAL) } else { Ok(done) }
}
