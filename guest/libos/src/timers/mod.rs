// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers of `setitimer` and `timer_create`. Time is an argument here, so that tests can set it.
//!
//! The cell's timer register holds the earliest expiry. Timers of CPU time run while the program runs: their expiry is computed
//! anew at each look, and comes a millisecond late at worst.

pub mod clock;
pub mod timer;

use alloc::collections::BTreeMap;

use crate::signals::Signal;
use crate::signals::info::SigInfo;
pub use clock::{Clock, CpuClockTarget};
pub use timer::{ClockReadings, ClockSource, Timer, TimerSpec};

/// Most timers that a process may create.
const TIMERS_MAX: usize = 1024;

/// One of the three timers of `setitimer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// `ITIMER_REAL`
    Real,
    /// `ITIMER_VIRTUAL`
    Virtual,
    /// `ITIMER_PROF`
    Profiling,
}

impl Interval {
    /// All, by number.
    pub const ALL: [Interval; 3] = [Interval::Real, Interval::Virtual, Interval::Profiling];

    const fn signal(self) -> Signal {
        match self {
            Interval::Real => Signal::SIGALRM,
            Interval::Virtual => Signal::SIGVTALRM,
            Interval::Profiling => Signal::SIGPROF,
        }
    }

    /// The timer's source.
    #[must_use]
    pub const fn source(self) -> ClockSource {
        match self {
            Interval::Real => ClockSource::Clock,
            Interval::Virtual | Interval::Profiling => ClockSource::Cpu,
        }
    }
}

/// A timer of `timer_create`.
#[derive(Clone, Copy, Debug)]
pub struct PosixTimer {
    /// The clock that it was created for.
    pub clock: Clock,
    /// The timer.
    pub timer: Timer,
    /// The signal that it sends, and the value that this carries; `None`: it sends none.
    pub signal: Option<(Signal, u64)>,
    /// Its signal is pending.
    queued: bool,
    /// Expirations since its signal was sent, beyond the first one.
    overrun: u64,
    /// The overrun count of the last delivered signal.
    pub last_overrun: u32,
}

/// The timers of a process.
#[derive(Debug, Default)]
pub struct Timers {
    intervals: [Timer; 3],
    created: BTreeMap<u32, PosixTimer>,
    next: u32,
}

impl Timers {
    /// One of the three timers of `setitimer`.
    pub fn interval(&mut self, which: Interval) -> &mut Timer {
        &mut self.intervals[which as usize]
    }

    /// Creates a timer. Returns its number; `None`: there are too many.
    pub fn create(&mut self, clock: Clock, signal: impl FnOnce(u32) -> Option<(Signal, u64)>) -> Option<u32> {
        if self.created.len() >= TIMERS_MAX {
            return None;
        }
        // Numbers wrap after 2^31 timers; those in use are skipped.
        let free = |number: u32| !self.created.contains_key(&number);
        let number = (self.next..=i32::MAX as u32).chain(0..self.next).find(|number| free(*number))?;
        self.next = (number + 1) & i32::MAX as u32;
        self.created.insert(
            number,
            PosixTimer { clock, timer: Timer::new(clock.source()), signal: signal(number), queued: false, overrun: 0, last_overrun: 0 },
        );
        Some(number)
    }

    /// A timer that was created.
    pub fn get(&mut self, number: u32) -> Option<&mut PosixTimer> {
        self.created.get_mut(&number)
    }

    /// Deletes a timer. Returns whether it existed.
    pub fn delete(&mut self, number: u32) -> bool {
        self.created.remove(&number).is_some()
    }

    /// Drops the created timers when a program is executed; the three of `setitimer` stay.
    pub fn executed(&mut self) {
        self.created.clear();
    }

    /// Sends the signals of expired timers.
    pub fn expire(&mut self, now: ClockReadings, send: &mut dyn FnMut(SigInfo)) {
        for which in Interval::ALL {
            if self.interval(which).take(now) > 0 {
                send(SigInfo::kernel(which.signal()));
            }
        }
        for (&number, created) in &mut self.created {
            let count = if created.queued { 0 } else { created.timer.take(now) };
            if let (1.., Some((signal, value))) = (count, created.signal) {
                (created.queued, created.overrun) = (true, count - 1);
                send(SigInfo::timer(signal, number, value));
            }
        }
    }

    /// Records the delivery of a timer's signal. Returns the overrun count: expirations since it was sent, beyond the first one.
    pub fn delivered(&mut self, number: u32, now: ClockReadings) -> u32 {
        let Some(created) = self.created.get_mut(&number).filter(|created| created.queued) else { return 0 };
        let count = created.overrun.saturating_add(created.timer.take(now));
        (created.queued, created.overrun) = (false, 0);
        created.last_overrun = count.min(i32::MAX as u64) as u32;
        created.last_overrun
    }

    /// Forgets a timer's pending signal, which will not be delivered.
    pub fn forget_signal(&mut self, number: u32) {
        if let Some(created) = self.created.get_mut(&number) {
            (created.queued, created.overrun) = (false, 0);
        }
    }

    /// The earliest expiry, on the cell's clock.
    #[must_use]
    pub fn next(&self, now: ClockReadings) -> Option<u64> {
        let of_cpu = self.watched(ClockSource::Cpu).map(|at| now.clock_at(at));
        of_cpu.chain(self.next_by_clock()).min()
    }

    /// The earliest expiry of timers that count the cell's clock, and so expire even while others run.
    #[must_use]
    pub fn next_by_clock(&self) -> Option<u64> {
        self.watched(ClockSource::Clock).min()
    }

    /// Expiries, on this source, of the timers that notify somebody.
    fn watched(&self, source: ClockSource) -> impl Iterator<Item = u64> {
        let created = self.created.values().filter(|created| !created.queued && created.signal.is_some()).map(|created| &created.timer);
        self.intervals.iter().chain(created).filter(move |timer| timer.source() == source).filter_map(Timer::next)
    }
}

#[cfg(test)]
mod tests;
