// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on time: the clocks come from the virtual registers without an exit, sleeping is idling.

use pando_rt::clock;

use crate::errno::Errno;
use crate::process::Process;
use crate::timers::Clock;
use crate::user::{NANOSECONDS, set_words, set_words_unless_null, timespec};

/// Nanoseconds of a tick of `times`.
const TICK: u64 = NANOSECONDS / 100;
/// The time that is given is when, not how long.
pub const TIMER_ABSTIME: u64 = 1;

/// `clock_gettime(clock, time)`.
pub fn clock_gettime(process: &mut Process, [clock, time, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = Clock::new(clock)?.read(process.moment());
    set_words(time, &[now / NANOSECONDS, now % NANOSECONDS])?;
    Ok(0)
}

/// `clock_getres(clock, resolution)`.
pub fn clock_getres(_: &mut Process, [clock, resolution, ..]: [u64; 6]) -> Result<u64, Errno> {
    Clock::new(clock)?;
    set_words_unless_null(resolution, &[0, 1])?;
    Ok(0)
}

/// `gettimeofday(time, zone)`.
pub fn gettimeofday(_: &mut Process, [time, zone, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = clock::wall();
    set_words_unless_null(time, &[now / NANOSECONDS, now % NANOSECONDS / 1000])?;
    set_words_unless_null(zone, &[0])?;
    Ok(0)
}

/// `time(seconds)`.
pub fn time(_: &mut Process, [seconds, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = clock::wall() / NANOSECONDS;
    set_words_unless_null(seconds, &[now])?;
    Ok(now)
}

/// `nanosleep(wanted, remaining)`.
pub fn nanosleep(process: &mut Process, [wanted, remaining, ..]: [u64; 6]) -> Result<u64, Errno> {
    sleep(process, timespec(wanted)?, remaining)
}

/// `clock_nanosleep(clock, flags, wanted, remaining)`.
pub fn clock_nanosleep(process: &mut Process, [clock, flags, wanted, remaining, ..]: [u64; 6]) -> Result<u64, Errno> {
    let clock = Clock::new(clock)?;
    let wanted = timespec(wanted)?;
    if clock == Clock::Cpu {
        // The program's own running would have to move it.
        return Err(Errno::EINVAL);
    }
    if flags & TIMER_ABSTIME == 0 {
        return sleep(process, wanted, remaining);
    }
    process.wait(clock.to_cell(wanted), |_| None::<()>).and(Ok(0)).map_err(Errno::without_restart)
}

/// Sleeps so long, and tells what was left if a signal came first.
fn sleep(process: &mut Process, wanted: u64, remaining: u64) -> Result<u64, Errno> {
    let deadline = clock::now().saturating_add(wanted);
    if let Err(error) = process.wait(deadline, |_| None::<()>) {
        if remaining != 0 {
            let left = deadline.saturating_sub(clock::now());
            set_words(remaining, &[left / NANOSECONDS, left % NANOSECONDS])?;
        }
        return Err(error.without_restart());
    }
    Ok(0)
}

/// `times(buffer)`.
pub fn times(process: &mut Process, [buffer, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_words_unless_null(buffer, &[process.moment().cpu / TICK, 0, 0, 0])?;
    Ok(clock::now() / TICK)
}

/// `getrusage(who, usage)`.
pub fn getrusage(process: &mut Process, [_, usage, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// Words of `struct rusage`; the first two are the user time.
    const WORDS: usize = 18;
    let cpu = process.moment().cpu;
    let mut words = [0; WORDS];
    (words[0], words[1]) = (cpu / NANOSECONDS, cpu % NANOSECONDS / 1000);
    set_words(usage, &words)?;
    Ok(0)
}
