// SPDX-License-Identifier: MIT OR Apache-2.0
//! One timer: its expiry and its interval.

/// The present time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReadings {
    /// The cell's clock in nanoseconds.
    pub clock: u64,
    /// The program's CPU time in nanoseconds.
    pub cpu: u64,
}

/// The source of a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockSource {
    /// The cell's clock.
    #[default]
    Clock,
    /// CPU time of the program.
    Cpu,
}

/// Granularity of timers of CPU time, in nanoseconds.
const CPU_RESOLUTION: u64 = 1_000_000;

impl ClockReadings {
    /// When the program, if it runs on, will have used so much CPU time: on the cell's clock.
    #[must_use]
    pub fn clock_at(self, cpu: u64) -> u64 {
        self.clock.saturating_add(cpu.saturating_sub(self.cpu).max(CPU_RESOLUTION))
    }

    /// The present time of a source.
    #[must_use]
    pub const fn of(self, source: ClockSource) -> u64 {
        match source {
            ClockSource::Clock => self.clock,
            ClockSource::Cpu => self.cpu,
        }
    }
}

/// A timer's setting in nanoseconds (`struct itimerspec`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerSpec {
    /// Time until it expires; 0: never.
    pub value: u64,
    /// Interval between further expirations; 0: there are none.
    pub interval: u64,
}

/// A timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer {
    source: ClockSource,
    next: Option<u64>,
    interval: u64,
}

impl Timer {
    /// A timer that is not set.
    #[must_use]
    pub const fn new(source: ClockSource) -> Timer {
        Timer { source, next: None, interval: 0 }
    }

    /// The timer's source.
    #[must_use]
    pub const fn source(&self) -> ClockSource {
        self.source
    }

    /// Its next expiry, on its source.
    #[must_use]
    pub const fn next(&self) -> Option<u64> {
        self.next
    }

    /// Sets its next expiry, on its source, and its interval.
    pub fn set(&mut self, next: Option<u64>, interval: u64) {
        (self.next, self.interval) = (next, interval);
    }

    /// The present setting; zero for a timer that has expired and has no interval.
    #[must_use]
    pub fn setting(&self, now: ClockReadings) -> TimerSpec {
        let now = now.of(self.source);
        let value = match self.next {
            None => 0,
            // It is about to expire, and 0 would mean never.
            Some(next) if next <= now && self.interval == 0 => 1,
            Some(next) if next <= now => self.interval - (now - next) % self.interval,
            Some(next) => next - now,
        };
        TimerSpec { value, interval: self.interval }
    }

    /// Number of expirations since the last call.
    pub fn take(&mut self, now: ClockReadings) -> u64 {
        let now = now.of(self.source);
        match self.next {
            Some(next) if next <= now && self.interval > 0 => {
                let count = (now - next) / self.interval + 1;
                // An expiry that overflows never comes.
                self.next = count.checked_mul(self.interval).and_then(|passed| next.checked_add(passed));
                count
            }
            Some(next) if next <= now => {
                self.next = None;
                1
            }
            _ => 0,
        }
    }
}
