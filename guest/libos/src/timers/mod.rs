// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers: those of `setitimer` and those of `timer_create`. Time is an argument here, so that it can be tested.
//!
//! The earliest of them is what the cell's timer register holds. Timers of CPU time run while the program runs: their moment is set anew whenever it is looked at, and
//! comes a millisecond late at worst.

pub mod clock;
pub mod timer;

use alloc::collections::BTreeMap;

use crate::signals::Signal;
use crate::signals::info::Info;
pub use clock::{Clock, Whose};
pub use timer::{Moment, Setting, Source, Timer};

/// Timers that a process may create.
const TIMERS_MAX: usize = 1024;

/// Which of the three timers of `setitimer`.
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
            Interval::Real => Signal::ALRM,
            Interval::Virtual => Signal::VTALRM,
            Interval::Profiling => Signal::PROF,
        }
    }

    /// What it counts.
    #[must_use]
    pub const fn source(self) -> Source {
        match self {
            Interval::Real => Source::Clock,
            Interval::Virtual | Interval::Profiling => Source::Cpu,
        }
    }
}

/// A timer of `timer_create`.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// The clock that it was created for.
    pub clock: Clock,
    /// The timer.
    pub timer: Timer,
    /// The signal that it sends, with what the signal carries; `None`: it sends none.
    pub signal: Option<(Signal, u64)>,
    /// Its signal waits to be delivered.
    queued: bool,
    /// How often it ran out since its signal was sent, beyond the first time.
    overrun: u64,
    /// The same for the signal that was delivered last.
    pub last_overrun: u32,
}

/// The process's timers.
#[derive(Debug, Default)]
pub struct Timers {
    intervals: [Timer; 3],
    created: BTreeMap<u32, Created>,
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
        // Numbers come round after 2^31 timers; those that live on are passed over.
        let free = |number: u32| !self.created.contains_key(&number);
        let number = (self.next..=i32::MAX as u32).chain(0..self.next).find(|number| free(*number))?;
        self.next = (number + 1) & i32::MAX as u32;
        self.created.insert(
            number,
            Created { clock, timer: Timer::new(clock.source()), signal: signal(number), queued: false, overrun: 0, last_overrun: 0 },
        );
        Some(number)
    }

    /// A timer that was created.
    pub fn get(&mut self, number: u32) -> Option<&mut Created> {
        self.created.get_mut(&number)
    }

    /// Deletes a timer. Says whether it was there.
    pub fn delete(&mut self, number: u32) -> bool {
        self.created.remove(&number).is_some()
    }

    /// What a program that is executed keeps: the three, not those that were created.
    pub fn executed(&mut self) {
        self.created.clear();
    }

    /// Sends the signals of those that have run out.
    pub fn expire(&mut self, now: Moment, send: &mut dyn FnMut(Info)) {
        for which in Interval::ALL {
            if self.interval(which).take(now) > 0 {
                send(Info::kernel(which.signal()));
            }
        }
        for (&number, created) in &mut self.created {
            let count = if created.queued { 0 } else { created.timer.take(now) };
            if let (1.., Some((signal, value))) = (count, created.signal) {
                (created.queued, created.overrun) = (true, count - 1);
                send(Info::timer(signal, number, value));
            }
        }
    }

    /// Takes note that a timer's signal is being delivered. Returns how often the timer has run out since it was sent, beyond the first time.
    pub fn delivered(&mut self, number: u32, now: Moment) -> u32 {
        let Some(created) = self.created.get_mut(&number).filter(|created| created.queued) else { return 0 };
        let count = created.overrun.saturating_add(created.timer.take(now));
        (created.queued, created.overrun) = (false, 0);
        created.last_overrun = count.min(i32::MAX as u64) as u32;
        created.last_overrun
    }

    /// Takes note that a timer's signal, if it was sent, is nobody's business any more.
    pub fn forget_signal(&mut self, number: u32) {
        if let Some(created) = self.created.get_mut(&number) {
            (created.queued, created.overrun) = (false, 0);
        }
    }

    /// When the next one runs out, on the cell's clock.
    #[must_use]
    pub fn next(&self, now: Moment) -> Option<u64> {
        let of_cpu = self.watched(Source::Cpu).map(|at| now.clock_at(at));
        of_cpu.chain(self.next_by_clock()).min()
    }

    /// The same of those that count the cell's clock, whoever runs.
    #[must_use]
    pub fn next_by_clock(&self) -> Option<u64> {
        self.watched(Source::Clock).min()
    }

    /// When those of a source run out that tell somebody, on that source.
    fn watched(&self, source: Source) -> impl Iterator<Item = u64> {
        let created = self.created.values().filter(|created| !created.queued && created.signal.is_some()).map(|created| &created.timer);
        self.intervals.iter().chain(created).filter(move |timer| timer.source() == source).filter_map(Timer::next)
    }
}

#[cfg(test)]
mod tests;
