// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on timers.

use crate::errno::Errno;
use crate::signals::Signal;
use crate::system::System;
use crate::timers::{Clock, Interval, Timer, TimerSpec};
use crate::uapi::{SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD_ID, TIMER_ABSTIME};
use crate::user::{NANOSECONDS, set_word32, set_words, words};

/// Nanoseconds of a microsecond.
const MICROSECOND: u64 = 1000;

/// `alarm(seconds)`.
pub fn alarm(system: &mut System, [seconds, ..]: [u64; 6]) -> Result<u64, Errno> {
    let value = u64::from(seconds as u32) * NANOSECONDS;
    let before = set_interval(system, Interval::Real, TimerSpec { value, interval: 0 }).value;
    let (seconds, rest) = (before / NANOSECONDS, before % NANOSECONDS);
    // Rounded to seconds, but never to zero while the alarm is set.
    Ok(if rest >= NANOSECONDS / 2 || seconds == 0 && rest > 0 { seconds + 1 } else { seconds })
}

/// `setitimer(which, new, old)`.
pub fn setitimer(system: &mut System, [which, new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    // A null pointer stops the timer, as on Linux.
    let setting = if new == 0 { TimerSpec::default() } else { timeval_setting(words(new)?)? };
    let before = set_interval(system, interval(which)?, setting);
    if old != 0 {
        write_interval(old, before)?;
    }
    Ok(0)
}

/// `getitimer(which, value)`.
pub fn getitimer(system: &mut System, [which, value, ..]: [u64; 6]) -> Result<u64, Errno> {
    let which = interval(which)?;
    let now = system.clock_readings();
    write_interval(value, system.process.timers.interval(which).setting(now))?;
    Ok(0)
}

fn interval(which: u64) -> Result<Interval, Errno> {
    Interval::ALL.get(which as u32 as usize).copied().ok_or(Errno::EINVAL)
}

fn timeval_setting([interval, interval_part, value, value_part]: [u64; 4]) -> Result<TimerSpec, Errno> {
    let nanoseconds = |seconds: u64, microseconds: u64| {
        if seconds.cast_signed() < 0 || microseconds >= NANOSECONDS / MICROSECOND {
            return Err(Errno::EINVAL);
        }
        Ok(seconds.saturating_mul(NANOSECONDS).saturating_add(microseconds * MICROSECOND))
    };
    Ok(TimerSpec { value: nanoseconds(value, value_part)?, interval: nanoseconds(interval, interval_part)? })
}

/// Writes a `struct itimerval`; the remaining time is never rounded to zero.
fn write_interval(address: u64, TimerSpec { value, interval }: TimerSpec) -> Result<(), Errno> {
    let value = if value == 0 { 0 } else { value.max(MICROSECOND) };
    let pair = |time: u64| [time / NANOSECONDS, time % NANOSECONDS / MICROSECOND];
    set_words(address, pair(interval).as_slice())?;
    set_words(address.wrapping_add(16), pair(value).as_slice())
}

/// Sets one of the three timers. Returns its former setting.
fn set_interval(system: &mut System, which: Interval, TimerSpec { value, interval }: TimerSpec) -> TimerSpec {
    let now = system.clock_readings();
    let timer = system.process.timers.interval(which);
    let before = timer.setting(now);
    let next = (value > 0).then(|| now.of(which.source()).saturating_add(value));
    *timer = Timer::new(which.source());
    timer.set(next, if value > 0 { interval } else { 0 });
    system.watch_timers();
    before
}

/// `timer_create(clock, event, timer)`.
pub fn timer_create(system: &mut System, [clock, event, timer, ..]: [u64; 6]) -> Result<u64, Errno> {
    let clock = Clock::new(clock)?;
    let signal = if event == 0 {
        None
    } else {
        let [value, kind, thread] = words::<3>(event)?;
        let number = u64::from(kind as u32);
        match (kind >> 32) as u32 {
            SIGEV_SIGNAL => Some(Some((Signal::from_number(number)?, value))),
            SIGEV_NONE => Some(None),
            SIGEV_THREAD_ID if system.thread_of(thread as u32).is_some_and(|thread| thread.process == system.process.number) => {
                Some(Some((Signal::from_number(number)?, value)))
            }
            _ => return Err(Errno::EINVAL),
        }
    };
    let notification = |number: u32| signal.unwrap_or(Some((Signal::SIGALRM, number.into())));
    let number = system.process.timers.create(clock, notification).ok_or(Errno::EAGAIN)?;
    set_word32(timer, number).map(|()| 0).inspect_err(|_| {
        system.process.timers.delete(number);
    })
}

/// `timer_settime(timer, flags, new, old)`.
pub fn timer_settime(system: &mut System, [number, flags, new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    if new == 0 {
        return Err(Errno::EINVAL);
    }
    let TimerSpec { value, interval } = timespec_setting(words(new)?)?;
    let now = system.clock_readings();
    let created = system.process.timers.get(number as u32).ok_or(Errno::EINVAL)?;
    let before = created.timer.setting(now);
    let next = match value {
        0 => None,
        _ if flags & TIMER_ABSTIME != 0 => Some(created.clock.to_cell(value)),
        _ => Some(now.of(created.timer.source()).saturating_add(value)),
    };
    created.timer.set(next, interval);
    // A pending signal of the former setting is dropped.
    system.process.signals.pending.drop_where(|info| info.is_from_timer(number as u32));
    system.process.timers.forget_signal(number as u32);
    system.watch_timers();
    if old != 0 {
        write_setting(old, before)?;
    }
    Ok(0)
}

/// The setting of a `struct itimerspec`.
///
/// # Errors
/// `EINVAL`.
pub fn timespec_setting([interval, interval_part, value, value_part]: [u64; 4]) -> Result<TimerSpec, Errno> {
    let nanoseconds = |seconds: u64, part: u64| {
        if seconds.cast_signed() < 0 || part >= NANOSECONDS {
            return Err(Errno::EINVAL);
        }
        Ok(seconds.saturating_mul(NANOSECONDS).saturating_add(part))
    };
    Ok(TimerSpec { value: nanoseconds(value, value_part)?, interval: nanoseconds(interval, interval_part)? })
}

/// Writes a `struct itimerspec`.
///
/// # Errors
/// `EFAULT`.
pub fn write_setting(address: u64, TimerSpec { value, interval }: TimerSpec) -> Result<(), Errno> {
    set_words(address, &[interval / NANOSECONDS, interval % NANOSECONDS, value / NANOSECONDS, value % NANOSECONDS])
}

/// `timer_gettime(timer, value)`.
pub fn timer_gettime(system: &mut System, [number, value, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = system.clock_readings();
    let created = system.process.timers.get(number as u32).ok_or(Errno::EINVAL)?;
    if created.signal.is_none() {
        // Without a signal, expirations are only counted here.
        created.timer.take(now);
    }
    let setting = created.timer.setting(now);
    write_setting(value, setting)?;
    Ok(0)
}

/// `timer_getoverrun(timer)`.
pub fn timer_getoverrun(system: &mut System, [number, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.process.timers.get(number as u32).map(|created| created.last_overrun.into()).ok_or(Errno::EINVAL)
}

/// `timer_delete(timer)`.
pub fn timer_delete(system: &mut System, [number, ..]: [u64; 6]) -> Result<u64, Errno> {
    if !system.process.timers.delete(number as u32) {
        return Err(Errno::EINVAL);
    }
    system.process.signals.pending.drop_where(|info| info.is_from_timer(number as u32));
    system.watch_timers();
    Ok(0)
}
