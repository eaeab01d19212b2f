// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event counters: `eventfd`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_rt::user;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, Transfer};
use super::user_copy::{address_of_count, read_count};
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::random::Random;
use crate::uapi::{POLLIN, POLLOUT};
use crate::wait::Channel;

/// Maximum count.
const COUNT_MAX: u64 = u64::MAX - 1;

/// An event counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCounter {
    /// Its count.
    pub count: u64,
    /// A read takes 1 rather than the whole count (`EFD_SEMAPHORE`).
    pub one_by_one: bool,
    /// When it last became ready.
    pub event_times: EventTimes,
}

impl EventCounter {
    /// Reads and resets the count.
    ///
    /// # Errors
    /// `EAGAIN`: it is 0.
    pub fn take(&mut self) -> Result<u64, Errno> {
        let value = if self.one_by_one { self.count.min(1) } else { self.count };
        if value == 0 {
            return Err(Errno::EAGAIN);
        }
        self.count -= value;
        self.event_times.output();
        Ok(value)
    }

    /// Adds to the count.
    ///
    /// # Errors
    /// `EINVAL`: the number is the invalid all-ones value. `EAGAIN`: the count would exceed its maximum.
    pub fn add(&mut self, number: u64) -> Result<(), Errno> {
        if number > COUNT_MAX {
            return Err(Errno::EINVAL);
        }
        self.count = self.count.checked_add(number).filter(|count| *count <= COUNT_MAX).ok_or(Errno::EAGAIN)?;
        self.event_times.input();
        Ok(())
    }

    /// Its `poll` events.
    #[must_use]
    pub fn ready(self) -> u16 {
        let reading = if self.count > 0 { POLLIN } else { 0 };
        reading | if self.count < COUNT_MAX { POLLOUT } else { 0 }
    }
}

impl FileOperations for EventCounter {
    fn link_text(&self, _files: &Files, _file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(b"anon_inode:[eventfd]".to_vec())
    }

    fn show_fdinfo(&self, _files: &Files, text: &mut String) {
        // A string takes everything.
        let _ = writeln!(text, "eventfd-count: {:16x}", self.count);
    }

    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        read_count(transfer.ranges, || {
            let mut event = *self;
            let count = event.take()?;
            files.replace_object(transfer.file, event);
            Ok(count)
        })
    }

    fn write(&self, files: &mut Files, transfer: Transfer<'_>) -> Result<u64, Errno> {
        let mut number = [0; 8];
        user::read(address_of_count(transfer.ranges)?, &mut number)?;
        let mut event = *self;
        event.add(u64::from_le_bytes(number))?;
        files.replace_object(transfer.file, event);
        Ok(8)
    }

    fn poll(&self, _files: &Files, _file: &OpenFile) -> u16 {
        self.ready()
    }

    fn add_channels(&self, _files: &Files, number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Open(number));
    }

    fn changed_channel(&self, number: usize) -> Option<Channel> {
        Some(Channel::Open(number))
    }

    fn event_times(&self, _files: &Files, _file: &OpenFile) -> EventTimes {
        self.event_times
    }
}

#[cfg(test)]
mod tests {
    use super::{EventCounter, EventTimes};
    use crate::errno::Errno;

    #[test]
    fn the_count_is_taken_at_once_or_one_by_one() {
        let mut event = EventCounter { count: 0, one_by_one: false, event_times: EventTimes::default() };
        assert_eq!(event.take(), Err(Errno::EAGAIN));
        assert_eq!((event.add(3), event.add(4), event.take()), (Ok(()), Ok(()), Ok(7)));
        assert_eq!(event.add(u64::MAX), Err(Errno::EINVAL));
        assert_eq!((event.add(u64::MAX - 1), event.add(1)), (Ok(()), Err(Errno::EAGAIN)));
        event = EventCounter { count: 2, one_by_one: true, event_times: EventTimes::default() };
        assert_eq!((event.take(), event.take(), event.take()), (Ok(1), Ok(1), Err(Errno::EAGAIN)));
    }
}
