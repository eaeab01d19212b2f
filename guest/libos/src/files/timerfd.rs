// SPDX-License-Identifier: MIT OR Apache-2.0
//! `timerfd` timers. Time is an argument, except of the operations of open files.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use pando_rt::clock;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, Transfer};
use super::user_copy::read_count;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::event_time;
use crate::random::Random;
use crate::timers::{Clock, ClockReadings, ClockSource, Timer, TimerSpec};
use crate::uapi::POLLIN;
use crate::wait::Channel;

/// The identity of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(u32);

/// A timer.
#[derive(Clone, Copy, Debug)]
pub struct TimerFile {
    /// Its clock.
    pub clock: Clock,
    timer: Timer,
    /// Since when it has expired, if that was noticed.
    noticed: Option<u64>,
}

/// All clocks at a time of the cell's clock.
const fn at(now: u64) -> ClockReadings {
    ClockReadings { clock: now, cpu: 0 }
}

impl TimerFile {
    /// Whether it has expired since the last read.
    #[must_use]
    pub fn has_expired(&self, now: u64) -> bool {
        self.timer.next().is_some_and(|next| next <= now)
    }

    /// Its `poll` events.
    #[must_use]
    pub fn ready(&self, now: u64) -> u16 {
        if self.has_expired(now) { POLLIN } else { 0 }
    }

    /// When it last expired.
    #[must_use]
    pub fn event_times(&self) -> EventTimes {
        EventTimes::of_input(self.noticed.unwrap_or_default())
    }

    /// The number of expirations since the last read.
    ///
    /// # Errors
    /// `EAGAIN`: there were none.
    pub fn take(&mut self, now: u64) -> Result<u64, Errno> {
        self.noticed = None;
        match self.timer.take(at(now)) {
            0 => Err(Errno::EAGAIN),
            count => Ok(count),
        }
    }

    /// Its setting.
    #[must_use]
    pub fn setting(&self, now: u64) -> TimerSpec {
        let setting = self.timer.setting(at(now));
        // The setting of an expired one-shot timer is zero.
        if setting.interval == 0 && self.has_expired(now) { TimerSpec::default() } else { setting }
    }

    /// Sets it: `next` is on the cell's clock, `None` stops it. Unread expirations are discarded.
    pub fn set(&mut self, next: Option<u64>, interval: u64) {
        self.timer.set(next, interval);
        self.noticed = None;
    }
}

/// All `timerfd` timers.
#[derive(Debug, Default)]
pub struct TimerFiles {
    timers: BTreeMap<TimerId, TimerFile>,
    next_id: u32,
}

impl TimerFiles {
    /// Creates a timer that is not set.
    pub fn create(&mut self, clock: Clock) -> TimerId {
        // Numbers wrap around after 2^32 timers; those in use are skipped.
        while self.timers.contains_key(&TimerId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = TimerId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.timers.insert(id, TimerFile { clock, timer: Timer::new(ClockSource::Clock), noticed: None });
        id
    }

    /// Removes a closed timer.
    pub fn remove(&mut self, id: TimerId) {
        self.timers.remove(&id);
    }

    /// A timer.
    ///
    /// # Errors
    /// `EBADF`: it does not exist, which cannot happen for an open file.
    pub fn get(&self, id: TimerId) -> Result<&TimerFile, Errno> {
        self.timers.get(&id).ok_or(Errno::EBADF)
    }

    /// A timer, mutably.
    ///
    /// # Errors
    /// `EBADF`: it does not exist, which cannot happen for an open file.
    pub fn get_mut(&mut self, id: TimerId) -> Result<&mut TimerFile, Errno> {
        self.timers.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Notices expired timers.
    pub fn expire(&mut self, now: u64) {
        for timer in self.timers.values_mut().filter(|timer| timer.noticed.is_none() && timer.has_expired(now)) {
            timer.noticed = Some(event_time::next_event_time());
        }
    }

    /// When the next timer expires whose expiration has not been noticed.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.timers.values().filter(|timer| timer.noticed.is_none()).filter_map(|timer| timer.timer.next()).min()
    }
}

impl FileOperations for TimerId {
    fn link_text(&self, _files: &Files, _file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(b"anon_inode:[timerfd]".to_vec())
    }

    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        read_count(transfer.ranges, || files.timers.get_mut(*self)?.take(clock::now()))
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        files.timers.get(*self).map_or(0, |timer| timer.ready(clock::now()))
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Timers);
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.timers.get(*self).map_or_else(|_| EventTimes::default(), TimerFile::event_times)
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        files.timers.remove(*self);
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::TimerFiles;
    use crate::errno::Errno;
    use crate::timers::{Clock, TimerSpec};

    #[test]
    fn a_timer_that_is_a_file_counts_until_it_is_read() {
        let mut timers = TimerFiles::default();
        let id = timers.create(Clock::Monotonic);
        assert_eq!(timers.next(), None);
        let timer = timers.get_mut(id).expect("it was made");
        timer.set(Some(100), 10);
        assert_eq!((timer.take(99), timer.ready(99), timer.ready(100)), (Err(Errno::EAGAIN), 0, 1));
        assert_eq!(timer.setting(95), TimerSpec { value: 5, interval: 10 });
        assert_eq!(timers.next(), Some(100));
        timers.expire(125);
        assert_eq!(timers.next(), None, "who waits for it knows");
        let timer = timers.get_mut(id).expect("it was made");
        assert_eq!((timer.setting(125), timer.take(125)), (TimerSpec { value: 5, interval: 10 }, Ok(3)));
        assert_eq!(timers.next(), Some(130));
        let timer = timers.get_mut(id).expect("it was made");
        timer.set(Some(200), 0);
        assert_eq!((timer.setting(300), timer.take(300), timer.take(300)), (TimerSpec::default(), Ok(1), Err(Errno::EAGAIN)));
        timers.remove(id);
        assert!(timers.get(id).is_err());
    }
}
