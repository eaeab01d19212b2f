// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on time: the clocks come from the virtual registers without an exit, sleeping is idling.

use pando_rt::{clock, events};

use crate::errno::Errno;
use crate::process::Process;
use crate::user::{NANOSECONDS, set_words, set_words_unless_null, timespec};

/// Nanoseconds of a tick of `times`.
const TICK: u64 = NANOSECONDS / 100;
const TIMER_ABSTIME: u64 = 1;

const CLOCK_REALTIME: u64 = 0;
const CLOCK_MONOTONIC: u64 = 1;
const CLOCK_PROCESS_CPUTIME: u64 = 2;
const CLOCK_THREAD_CPUTIME: u64 = 3;
const CLOCK_MONOTONIC_RAW: u64 = 4;
const CLOCK_REALTIME_COARSE: u64 = 5;
const CLOCK_MONOTONIC_COARSE: u64 = 6;
const CLOCK_BOOTTIME: u64 = 7;
const CLOCK_TAI: u64 = 11;

/// What a clock reads, in nanoseconds. A program's CPU time is its age: nothing here knows how long it was not running.
fn read(process: &Process, clock: u64) -> Result<u64, Errno> {
    match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_TAI => Ok(clock::wall()),
        CLOCK_MONOTONIC | CLOCK_MONOTONIC_RAW | CLOCK_MONOTONIC_COARSE | CLOCK_BOOTTIME => Ok(clock::now()),
        CLOCK_PROCESS_CPUTIME | CLOCK_THREAD_CPUTIME => Ok(process.age()),
        _ => Err(Errno::EINVAL),
    }
}

/// Waits until the clock reads `deadline`.
fn sleep_until(deadline: u64) {
    while clock::now() < deadline {
        events::wait(deadline);
    }
}

/// `clock_gettime(clock, time)`.
pub fn clock_gettime(process: &mut Process, [clock, time, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = read(process, clock)?;
    set_words(time, &[now / NANOSECONDS, now % NANOSECONDS])?;
    Ok(0)
}

/// `clock_getres(clock, resolution)`.
pub fn clock_getres(process: &mut Process, [clock, resolution, ..]: [u64; 6]) -> Result<u64, Errno> {
    read(process, clock)?;
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
pub fn nanosleep(_: &mut Process, [wanted, ..]: [u64; 6]) -> Result<u64, Errno> {
    sleep_until(clock::now().saturating_add(timespec(wanted)?));
    Ok(0)
}

/// `clock_nanosleep(clock, flags, wanted, remaining)`.
pub fn clock_nanosleep(process: &mut Process, [clock, flags, wanted, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = read(process, clock)?;
    let wanted = timespec(wanted)?;
    let wait = if flags & TIMER_ABSTIME != 0 { wanted.saturating_sub(now) } else { wanted };
    sleep_until(clock::now().saturating_add(wait));
    Ok(0)
}

/// `times(buffer)`.
pub fn times(process: &mut Process, [buffer, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_words_unless_null(buffer, &[process.age() / TICK, 0, 0, 0])?;
    Ok(clock::now() / TICK)
}

/// `getrusage(who, usage)`.
pub fn getrusage(process: &mut Process, [_, usage, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// Words of `struct rusage`; the first two are the user time.
    const WORDS: usize = 18;
    let age = process.age();
    let mut words = [0; WORDS];
    (words[0], words[1]) = (age / NANOSECONDS, age % NANOSECONDS / 1000);
    set_words(usage, &words)?;
    Ok(0)
}
