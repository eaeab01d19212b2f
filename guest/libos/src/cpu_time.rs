// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time, divided into user and system time.
//!
//! The libOS reads the clock when it begins and ends to serve an upcall. That takes a third of the time of a short system call, so
//! only calls that may take long are always measured. Of the others one in 16 is, at random, and counts 16 times.

use core::iter::Sum;
use core::ops::{Add, AddAssign};

use pando_abi::{PAGE_SIZE, SavedContext};
use pando_rt::patched;

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

/// Whether serving an upcall may take long.
fn may_take_long(context: &SavedContext) -> bool {
    match (context.cause, context.rax) {
        (patched::CPUID, _) => false,
        // read, write, pread64, pwrite64, sendto, recvfrom
        (patched::SYSCALL, 0 | 1 | 17 | 18 | 44 | 45) => context.rdx >= PAGE_SIZE,
        // getrandom
        (patched::SYSCALL, 318) => context.rsi >= PAGE_SIZE,
        // mmap, munmap, brk, readv, writev, mremap, msync, madvise, sendfile
        (patched::SYSCALL, 9 | 11 | 12 | 19 | 20 | 25 | 26 | 28 | 40) => true,
        // clone, fork, vfork, execve, exit, wait4, fsync, fdatasync, truncate, ftruncate
        (patched::SYSCALL, 56..=61 | 74..=77) => true,
        // getdents64, exit_group, splice, fallocate, execveat, copy_file_range, clone3
        (patched::SYSCALL, 217 | 231 | 275 | 285 | 322 | 326 | 435) => true,
        (patched::SYSCALL, _) => false,
        // A trap alone takes longer than reading the clock.
        _ => true,
    }
}

/// Measures the system time of a thread's time slice.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemTime {
    /// Nanoseconds of the slice's earlier upcalls.
    before: u64,
    /// When the present upcall began, and how often its time counts: 0 if it is not measured.
    entered: u64,
    weight: u64,
    /// The state of the random numbers that choose short calls.
    random: u32,
}

impl SystemTime {
    /// Begins to measure an upcall if it is chosen.
    pub fn enter(&mut self, context: &SavedContext, now: impl FnOnce() -> u64) {
        if may_take_long(context) {
            self.weight = 1;
        } else {
            // The constants of Numerical Recipes; the upper bits are the random ones.
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if self.random >= u32::MAX / SAMPLE {
                self.weight = 0;
                return;
            }
            self.weight = SAMPLE.into();
        }
        self.entered = now();
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
    use pando_abi::Registers;

    fn upcall(cause: u64, number: u64, length: u64) -> SavedContext {
        SavedContext { rax: number, rdx: length, ..SavedContext::new(&Registers::default(), cause, 0, 0) }
    }

    #[test]
    fn long_calls_are_measured_each() {
        let mut time = SystemTime::default();
        time.enter(&upcall(patched::SYSCALL, 0, 1 << 20), || 100);
        assert_eq!(time.at(0, 150), 50);
        time.leave(0, || 170);
        time.enter(&upcall(patched::SYSCALL, 56, 0), || 200);
        // Another thread's slice began meanwhile.
        time.leave(220, || 230);
        assert_eq!(time.at(0, 1000), 80);
        time.reset();
        assert_eq!(time.at(0, 1000), 0);
    }

    #[test]
    fn short_calls_are_sampled_without_bias() {
        let (mut time, mut clock, mut readings) = (SystemTime::default(), 0, 0_u64);
        for _ in 0..100_000 {
            time.enter(&upcall(patched::SYSCALL, 39, 0), || {
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
