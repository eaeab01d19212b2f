// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clocks that programs name, and their sources in the cell.

use pando_rt::clock;

use super::{ClockReadings, ClockSource};
use crate::errno::Errno;
use crate::pid::Pid;
use crate::uapi::{
    CLOCK_BOOTTIME, CLOCK_BOOTTIME_ALARM, CLOCK_MONOTONIC, CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC_RAW, CLOCK_PROCESS_CPUTIME_ID,
    CLOCK_REALTIME, CLOCK_REALTIME_ALARM, CLOCK_REALTIME_COARSE, CLOCK_TAI, CLOCK_THREAD_CPUTIME_ID,
};
use crate::wait::Tid;

/// A clock that programs name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time since 1970.
    Wall,
    /// Time since the cell began.
    Monotonic,
    /// CPU time of a process or thread.
    Cpu(CpuClockTarget),
}

/// The process or thread whose CPU time a clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuClockTarget {
    /// A process; 0: the caller's.
    Process(Pid),
    /// A thread; 0: the caller.
    Thread(Tid),
}

impl Clock {
    /// The clock with this number.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub fn new(number: u64) -> Result<Clock, Errno> {
        match number as i32 {
            CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_REALTIME_ALARM | CLOCK_TAI => Ok(Clock::Wall),
            CLOCK_MONOTONIC | CLOCK_MONOTONIC_RAW | CLOCK_MONOTONIC_COARSE | CLOCK_BOOTTIME | CLOCK_BOOTTIME_ALARM => Ok(Clock::Monotonic),
            CLOCK_PROCESS_CPUTIME_ID => Ok(Clock::Cpu(CpuClockTarget::Process(0))),
            CLOCK_THREAD_CPUTIME_ID => Ok(Clock::Cpu(CpuClockTarget::Thread(0))),
            // The number of a CPU clock: the complement of the process, shifted, with bits for the clock and for threads.
            number if number < 0 && matches!(number & 7, 0..=2 | 4..=6) => {
                let whose = u32::try_from(!(number >> 3)).map_err(|_| Errno::EINVAL)?;
                Ok(Clock::Cpu(if number & 4 == 0 { CpuClockTarget::Process(whose) } else { CpuClockTarget::Thread(whose) }))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// The clock's source.
    #[must_use]
    pub fn source(self) -> ClockSource {
        if matches!(self, Clock::Cpu(_)) { ClockSource::Cpu } else { ClockSource::Clock }
    }

    /// The clock's time in nanoseconds.
    #[must_use]
    pub fn read(self, now: ClockReadings) -> u64 {
        match self {
            Clock::Wall => clock::wall(),
            Clock::Monotonic => now.clock,
            Clock::Cpu(_) => now.cpu,
        }
    }

    /// The time of the source at which the clock shows `time`.
    #[must_use]
    pub fn to_cell(self, time: u64) -> u64 {
        if self == Clock::Wall { time.saturating_sub(clock::wall().saturating_sub(clock::now())) } else { time }
    }
}
