// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers that are files: `timerfd`. Time is an argument here.

use alloc::collections::BTreeMap;

use super::poll::POLLIN;
use super::pulse::{self, Pulse};
use crate::errno::Errno;
use crate::timers::{Clock, Moment, Setting, Source, Timer};

/// Which timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(u32);

/// A timer.
#[derive(Clone, Copy, Debug)]
pub struct TimerFile {
    /// The clock that it was made for.
    pub clock: Clock,
    timer: Timer,
    /// Since when it has run out, as far as anybody has noticed.
    noticed: Option<u64>,
}

/// What a timer reads at a time of the cell's clock.
const fn at(now: u64) -> Moment {
    Moment { clock: now, cpu: 0 }
}

impl TimerFile {
    /// Whether it has run out and nobody has read so.
    #[must_use]
    pub fn has_run_out(&self, now: u64) -> bool {
        self.timer.next().is_some_and(|next| next <= now)
    }

    /// What need not wait.
    #[must_use]
    pub fn ready(&self, now: u64) -> u16 {
        if self.has_run_out(now) { POLLIN } else { 0 }
    }

    /// When it last ran out.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse::of_input(self.noticed.unwrap_or_default())
    }

    /// How often it has run out since this was last asked.
    ///
    /// # Errors
    /// `EAGAIN`: it has not.
    pub fn take(&mut self, now: u64) -> Result<u64, Errno> {
        self.noticed = None;
        match self.timer.take(at(now)) {
            0 => Err(Errno::EAGAIN),
            count => Ok(count),
        }
    }

    /// What it is set to.
    #[must_use]
    pub fn setting(&self, now: u64) -> Setting {
        let setting = self.timer.setting(at(now));
        // One that has run out and will not again is set to nothing.
        if setting.interval == 0 && self.has_run_out(now) { Setting::default() } else { setting }
    }

    /// Sets it: `next` is on the cell's clock, `None` stops it. What it has counted is forgotten.
    pub fn set(&mut self, next: Option<u64>, interval: u64) {
        self.timer.set(next, interval);
        self.noticed = None;
    }
}

/// All timers that are files.
#[derive(Debug, Default)]
pub struct TimerFiles {
    timers: BTreeMap<TimerId, TimerFile>,
    made: u32,
}

impl TimerFiles {
    /// Makes a timer that is not set.
    pub fn create(&mut self, clock: Clock) -> TimerId {
        // Numbers come round after 2^32 timers; those that live on are passed over.
        while self.timers.contains_key(&TimerId(self.made)) {
            self.made = self.made.wrapping_add(1);
        }
        let id = TimerId(self.made);
        self.made = self.made.wrapping_add(1);
        self.timers.insert(id, TimerFile { clock, timer: Timer::new(Source::Clock), noticed: None });
        id
    }

    /// Removes a timer that nobody has open any more.
    pub fn remove(&mut self, id: TimerId) {
        self.timers.remove(&id);
    }

    /// A timer.
    ///
    /// # Errors
    /// `EBADF`: there is none, which no open file should say.
    pub fn get(&self, id: TimerId) -> Result<&TimerFile, Errno> {
        self.timers.get(&id).ok_or(Errno::EBADF)
    }

    /// A timer, to be changed.
    ///
    /// # Errors
    /// `EBADF`: there is none, which no open file should say.
    pub fn get_mut(&mut self, id: TimerId) -> Result<&mut TimerFile, Errno> {
        self.timers.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Notices which have run out.
    pub fn expire(&mut self, now: u64) {
        for timer in self.timers.values_mut().filter(|timer| timer.noticed.is_none() && timer.has_run_out(now)) {
            timer.noticed = Some(pulse::moment());
        }
    }

    /// When the next one runs out of which nobody has noticed yet.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.timers.values().filter(|timer| timer.noticed.is_none()).filter_map(|timer| timer.timer.next()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::TimerFiles;
    use crate::errno::Errno;
    use crate::timers::{Clock, Setting};

    #[test]
    fn a_timer_that_is_a_file_counts_until_it_is_read() {
        let mut timers = TimerFiles::default();
        let id = timers.create(Clock::Monotonic);
        assert_eq!(timers.next(), None);
        let timer = timers.get_mut(id).expect("it was made");
        timer.set(Some(100), 10);
        assert_eq!((timer.take(99), timer.ready(99), timer.ready(100)), (Err(Errno::EAGAIN), 0, 1));
        assert_eq!(timer.setting(95), Setting { value: 5, interval: 10 });
        assert_eq!(timers.next(), Some(100));
        timers.expire(125);
        assert_eq!(timers.next(), None, "who waits for it knows");
        let timer = timers.get_mut(id).expect("it was made");
        assert_eq!((timer.setting(125), timer.take(125)), (Setting { value: 5, interval: 10 }, Ok(3)));
        assert_eq!(timers.next(), Some(130));
        let timer = timers.get_mut(id).expect("it was made");
        timer.set(Some(200), 0);
        assert_eq!((timer.setting(300), timer.take(300), timer.take(300)), (Setting::default(), Ok(1), Err(Errno::EAGAIN)));
        timers.remove(id);
        assert!(timers.get(id).is_err());
    }
}
