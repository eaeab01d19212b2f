// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time, divided into user and system time.
//!
//! The clock of CPU time stands still while the cell waits for a vCPU ([`pando_rt::clock::running`]): other cells run, or its CPU share is
//! used up.
//!
//! The libOS reads the clock when it begins and ends to serve an upcall. That takes a third of the time of a short system call, so
//! only exceptions and the calls that [`crate::table`] marks as long are always measured. Of the others one in 16 is, at random, and
//! counts 16 times.

use core::iter::Sum;
use core::ops::{Add, AddAssign};

/// One in this many short calls is measured.
const SAMPLE: u32 = 16;

/// CPU time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// All of it.
    pub total: u64,
    /// The part that the libOS used for system calls and exceptions.
    pub system: u64,
}

impl CpuTime {
    /// The part that the program itself used.
    #[must_use]
    pub fn user(self) -> u64 {
        self.total.saturating_sub(self.system)
    }
}

impl Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { total: self.total + other.total, system: self.system + other.system }
    }
}

impl AddAssign for CpuTime {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for CpuTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), Add::add)
    }
}

/// Measures the system time of a thread's time slice.
#[derive(Clone, Copy, Debug)]
pub struct SystemTime {
    /// Nanoseconds of the slice's earlier upcalls.
    before: u64,
    /// When the present upcall began, and how often its time counts: 0 if it is not measured.
    entered: u64,
    weight: u64,
    /// The number of upcalls up to the next sample.
    until_sample: u32,
    /// The state of the random numbers that choose samples.
    random: u32,
}

impl Default for SystemTime {
    fn default() -> Self {
        Self { before: 0, entered: 0, weight: 0, until_sample: SAMPLE, random: 0 }
    }
}

impl SystemTime {
    /// Begins an upcall, and to measure it if it is the next sample.
    pub fn enter(&mut self, now: impl FnOnce() -> u64) {
        self.until_sample -= 1;
        if self.until_sample == 0 {
            self.choose_sample();
            (self.entered, self.weight) = (now(), SAMPLE.into());
        }
    }

    /// Chooses the next sample: after 1 to 31 upcalls, 16 on average.
    #[cold]
    fn choose_sample(&mut self) {
        // The constants of Numerical Recipes; the upper bits are the random ones.
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.until_sample = 1 + ((u64::from(self.random) * u64::from(2 * SAMPLE - 1)) >> u32::BITS) as u32;
    }

    /// Measures the present upcall, which may take long.
    pub fn measure(&mut self, now: impl FnOnce() -> u64) {
        if self.weight == 0 {
            self.entered = now();
        }
        self.weight = 1;
    }

    /// Ends the upcall; the thread has run since `began`.
    pub fn leave(&mut self, began: u64, now: impl FnOnce() -> u64) {
        if self.weight > 0 {
            self.before = self.at(began, now());
            self.weight = 0;
        }
    }

    /// The system time of a slice that began at this time.
    #[must_use]
    pub fn at(&self, began: u64, now: u64) -> u64 {
        self.before + self.weight * now.saturating_sub(self.entered.max(began))
    }

    /// Begins a new slice.
    pub fn reset(&mut self) {
        self.before = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_measured_each() {
        let mut time = SystemTime::default();
        time.enter(|| unreachable!("it is no sample"));
        time.measure(|| 100);
        assert_eq!(time.at(0, 150), 50);
        time.leave(0, || 170);
        time.enter(|| unreachable!("it is no sample"));
        time.measure(|| 200);
        // Another thread's slice began meanwhile.
        time.leave(220, || 230);
        assert_eq!(time.at(0, 1000), 80);
        time.reset();
        assert_eq!(time.at(0, 1000), 0);
    }

    #[test]
    fn a_sample_that_may_take_long_counts_once() {
        let mut time = SystemTime { until_sample: 1, ..SystemTime::default() };
        time.enter(|| 100);
        time.measure(|| unreachable!("the upcall has begun"));
        time.leave(0, || 150);
        assert_eq!(time.at(0, 1000), 50);
    }

    #[test]
    fn short_calls_are_sampled_without_bias() {
        let (mut time, mut clock, mut readings) = (SystemTime::default(), 0, 0_u64);
        for _ in 0..100_000 {
            time.enter(|| {
                readings += 1;
                clock
            });
            clock += 100;
            time.leave(0, || clock);
            clock += 100;
        }
        assert!((5_000..7_500).contains(&readings), "{readings}");
        let (measured, real) = (time.at(0, clock), 10_000_000);
        assert!(measured.abs_diff(real) < real / 10, "{measured}");
    }
}
