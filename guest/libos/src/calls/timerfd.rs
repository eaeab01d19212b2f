// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on timers that are files.

use pando_rt::clock;

use crate::calls::file_operations::{CallOperations, IoRequest, read_ready};
use crate::calls::timers::{timespec_setting, write_setting};
use crate::errno::Errno;
use crate::files::OpenFile;
use crate::files::timerfd::TimerId;
use crate::system::System;
use crate::timers::{Clock, TimerSpec};
use crate::uapi::{
    CLOCK_BOOTTIME, CLOCK_BOOTTIME_ALARM, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_REALTIME_ALARM, O_CLOEXEC, O_NONBLOCK, O_RDWR,
    TFD_TIMER_CANCEL_ON_SET, TIMER_ABSTIME,
};
use crate::user::words;

/// `timerfd_create(clock, flags)`.
pub fn timerfd_create(system: &mut System, [clock, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    const CLOCKS: [i32; 5] = [CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME_ALARM, CLOCK_BOOTTIME_ALARM];
    if !CLOCKS.contains(&(clock as i32)) || u64::from(flags as u32) & !(O_NONBLOCK | O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let id = system.files.timers.create(Clock::new(clock)?);
    let file = OpenFile::new(id, O_RDWR | flags & O_NONBLOCK);
    system.files.insert(file, flags & O_CLOEXEC != 0)
}

/// The timer behind a descriptor.
fn timer(system: &System, fd: u64) -> Result<TimerId, Errno> {
    system.files.opened(fd)?.downcast().ok_or(Errno::EINVAL)
}

impl CallOperations for TimerId {
    fn read(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        let done = read_ready(system, request)?;
        // Its expiry is watched again from here on.
        system.watch_timers();
        Ok(done)
    }
}

/// `timerfd_settime(fd, flags, new, old)`.
pub fn timerfd_settime(system: &mut System, [fd, flags, new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    let TimerSpec { value, interval } = timespec_setting(words(new)?)?;
    if u64::from(flags as u32) & !(TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let id = timer(system, fd)?;
    let now = clock::now();
    let timer = system.files.timers.get_mut(id)?;
    let before = timer.setting(now);
    let next = match value {
        0 => None,
        _ if flags & TIMER_ABSTIME != 0 => Some(timer.clock.to_cell(value)),
        _ => Some(now.saturating_add(value)),
    };
    timer.set(next, interval);
    system.watch_timers();
    if old != 0 {
        write_setting(old, before)?;
    }
    Ok(0)
}

/// `timerfd_gettime(fd, value)`.
pub fn timerfd_gettime(system: &mut System, [fd, value, ..]: [u64; 6]) -> Result<u64, Errno> {
    let id = timer(system, fd)?;
    write_setting(value, system.files.timers.get(id)?.setting(clock::now()))?;
    Ok(0)
}
