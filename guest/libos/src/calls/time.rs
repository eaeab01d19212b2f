// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on time. Clocks are read from the virtual registers without an exit; a sleeping cell is idle.

use pando_rt::clock;

use crate::errno::Errno;
use crate::process::Usage;
use crate::system::System;
use crate::timers::Clock;
use crate::uapi::{RUSAGE_CHILDREN, RUSAGE_SELF, RUSAGE_THREAD, TIMER_ABSTIME};
use crate::user::{NANOSECONDS, set_words, set_words_unless_null, ticks, timespec};

/// `clock_gettime(clock, time)`.
pub fn clock_gettime(system: &mut System, [clock, time, ..]: [u64; 6]) -> Result<u64, Errno> {
    let clock = Clock::new(clock)?;
    let now = if let Clock::Cpu(whose) = clock { system.time_of(whose)? } else { clock.read(system.clock_readings()) };
    set_words(time, &[now / NANOSECONDS, now % NANOSECONDS])?;
    Ok(0)
}

/// `clock_getres(clock, resolution)`.
pub fn clock_getres(system: &mut System, [clock, resolution, ..]: [u64; 6]) -> Result<u64, Errno> {
    if let Clock::Cpu(whose) = Clock::new(clock)? {
        system.time_of(whose)?;
    }
    set_words_unless_null(resolution, &[0, 1])?;
    Ok(0)
}

/// `gettimeofday(time, zone)`.
pub fn gettimeofday(_: &mut System, [time, zone, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = clock::wall();
    set_words_unless_null(time, &[now / NANOSECONDS, now % NANOSECONDS / 1000])?;
    set_words_unless_null(zone, &[0])?;
    Ok(0)
}

/// `time(seconds)`.
pub fn time(_: &mut System, [seconds, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = clock::wall() / NANOSECONDS;
    set_words_unless_null(seconds, &[now])?;
    Ok(now)
}

/// `nanosleep(wanted, remaining)`.
pub fn nanosleep(system: &mut System, [wanted, remaining, ..]: [u64; 6]) -> Result<u64, Errno> {
    sleep(system, timespec(wanted)?, remaining)
}

/// `clock_nanosleep(clock, flags, wanted, remaining)`.
pub fn clock_nanosleep(system: &mut System, [clock, flags, wanted, remaining, ..]: [u64; 6]) -> Result<u64, Errno> {
    let clock = Clock::new(clock)?;
    let wanted = timespec(wanted)?;
    if matches!(clock, Clock::Cpu(_)) {
        // The sleeping caller's own clock would never advance.
        return Err(Errno::EINVAL);
    }
    if flags & TIMER_ABSTIME == 0 {
        return sleep(system, wanted, remaining);
    }
    system.wait(&[], clock.to_cell(wanted), |_| None::<()>).and(Ok(0)).map_err(Errno::without_restart)
}

/// Sleeps, and writes the remaining time if a signal came first.
fn sleep(system: &mut System, wanted: u64, remaining: u64) -> Result<u64, Errno> {
    let deadline = system.deadline(clock::now().saturating_add(wanted));
    if let Err(error) = system.wait(&[], deadline, |_| None::<()>) {
        if remaining != 0 && error == Errno::ERESTART {
            let left = deadline.saturating_sub(clock::now());
            set_words(remaining, &[left / NANOSECONDS, left % NANOSECONDS])?;
        }
        return Err(error.without_restart());
    }
    Ok(0)
}

/// `times(buffer)`.
pub fn times(system: &mut System, [buffer, ..]: [u64; 6]) -> Result<u64, Errno> {
    let [time, children] = [system.process_time(), system.process.usage.children];
    set_words_unless_null(buffer, &[time.user(), time.system, children.user(), children.system].map(ticks))?;
    Ok(ticks(clock::now()))
}

/// `getrusage(who, usage)`.
pub fn getrusage(system: &mut System, [who, usage, ..]: [u64; 6]) -> Result<u64, Errno> {
    let cpu = match who as i32 {
        RUSAGE_SELF => system.process_time(),
        RUSAGE_CHILDREN => system.process.usage.children,
        RUSAGE_THREAD => system.thread_time(),
        _ => return Err(Errno::EINVAL),
    };
    let peak = if who as i32 == RUSAGE_CHILDREN { system.process.usage.children_peak } else { system.note_peak() };
    set_words(usage, &Usage::words(cpu, peak))?;
    Ok(0)
}
