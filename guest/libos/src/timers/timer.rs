// SPDX-License-Identifier: MIT OR Apache-2.0
//! One timer: when it runs out, and how often.

/// What time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of the cell's clock.
    pub clock: u64,
    /// Nanoseconds that the program has run.
    pub cpu: u64,
}

/// What a timer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The cell's clock.
    #[default]
    Clock,
    /// The time that the program runs.
    Cpu,
}

/// How closely CPU time is watched, in nanoseconds.
const CPU_RESOLUTION: u64 = 1_000_000;

impl Moment {
    /// When the program, if it runs on, will have had the CPU for so long: on the cell's clock.
    #[must_use]
    pub fn clock_at(self, cpu: u64) -> u64 {
        self.clock.saturating_add(cpu.saturating_sub(self.cpu).max(CPU_RESOLUTION))
    }

    /// What the source reads.
    #[must_use]
    pub const fn of(self, source: Source) -> u64 {
        match source {
            Source::Clock => self.clock,
            Source::Cpu => self.cpu,
        }
    }
}

/// What a timer is set to, in nanoseconds: until it runs out (0: never), and between that and the next times (0: there are none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Until it runs out.
    pub value: u64,
    /// Between the times.
    pub interval: u64,
}

/// A timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer {
    source: Source,
    next: Option<u64>,
    interval: u64,
}

impl Timer {
    /// A timer that is not set.
    #[must_use]
    pub const fn new(source: Source) -> Timer {
        Timer { source, next: None, interval: 0 }
    }

    /// What it counts.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// When it runs out, on its source.
    #[must_use]
    pub const fn next(&self) -> Option<u64> {
        self.next
    }

    /// Sets when it runs out, on its source, and how often.
    pub fn set(&mut self, next: Option<u64>, interval: u64) {
        (self.next, self.interval) = (next, interval);
    }

    /// What it is set to: one that has run out and will not again, to nothing.
    #[must_use]
    pub fn setting(&self, now: Moment) -> Setting {
        let now = now.of(self.source);
        let value = match self.next {
            None => 0,
            // It is about to run out, which is not never.
            Some(next) if next <= now && self.interval == 0 => 1,
            Some(next) if next <= now => self.interval - (now - next) % self.interval,
            Some(next) => next - now,
        };
        Setting { value, interval: self.interval }
    }

    /// How often it has run out by now since this was last asked.
    pub fn take(&mut self, now: Moment) -> u64 {
        let now = now.of(self.source);
        match self.next {
            Some(next) if next <= now && self.interval > 0 => {
                let count = (now - next) / self.interval + 1;
                // What would run over is as good as never.
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
