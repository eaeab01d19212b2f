// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event counters: `eventfd`.

use super::edge::Pulse;
use crate::errno::Errno;
use crate::uapi::{POLLIN, POLLOUT};

/// Maximum count.
const COUNT_MAX: u64 = u64::MAX - 1;

/// An event counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its count.
    pub count: u64,
    /// A read takes 1 rather than the whole count (`EFD_SEMAPHORE`).
    pub one_by_one: bool,
    /// When it last became ready.
    pub pulse: Pulse,
}

impl Event {
    /// Reads and resets the count.
    ///
    /// # Errors
    /// `EAGAIN`: it is 0.
    pub fn take(&mut self) -> Result<u64, Errno> {
        let taken = if self.one_by_one { self.count.min(1) } else { self.count };
        if taken == 0 {
            return Err(Errno::EAGAIN);
        }
        self.count -= taken;
        self.pulse.output();
        Ok(taken)
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
        self.pulse.input();
        Ok(())
    }

    /// Its `poll` events.
    #[must_use]
    pub fn ready(self) -> u16 {
        let reading = if self.count > 0 { POLLIN } else { 0 };
        reading | if self.count < COUNT_MAX { POLLOUT } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Pulse};
    use crate::errno::Errno;

    #[test]
    fn what_is_counted_is_taken_at_once_or_one_by_one() {
        let mut event = Event { count: 0, one_by_one: false, pulse: Pulse::default() };
        assert_eq!(event.take(), Err(Errno::EAGAIN));
        assert_eq!((event.add(3), event.add(4), event.take()), (Ok(()), Ok(()), Ok(7)));
        assert_eq!(event.add(u64::MAX), Err(Errno::EINVAL));
        assert_eq!((event.add(u64::MAX - 1), event.add(1)), (Ok(()), Err(Errno::EAGAIN)));
        event = Event { count: 2, one_by_one: true, pulse: Pulse::default() };
        assert_eq!((event.take(), event.take(), event.take()), (Ok(1), Ok(1), Err(Errno::EAGAIN)));
    }
}
