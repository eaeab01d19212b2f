// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting: channels, and the threads that wait on them.
//!
//! A call that cannot go on returns, and its thread waits on *channels* until one of them is woken or its deadline comes. Then the
//! call is made again, from its first line and with the same arguments (the interrupt model: Fluke, section 4.2). So nothing waits
//! on a stack of the libOS, and a waiting thread's whole state can be copied. A superfluous wake costs an attempt; a missing one
//! loses a thread.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

/// An event that threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// The console has input.
    Input,
    /// The terminal's output is resumed.
    Output,
    /// An end of this pseudo terminal has changed.
    Terminal(u32),
    /// A pipe was filled, emptied, opened or closed.
    Pipe(usize),
    /// An open file, by its index in the table, has changed: a counter.
    Open(usize),
    /// A socket has changed.
    Sockets,
    /// A set of System V semaphores has changed. The thread that changes it completes the calls of those that wait.
    Semaphores(u32),
    /// A System V message queue has changed.
    Queue(u32),
    /// A POSIX message queue has changed.
    Messages(u32),
    /// A message has come to this POSIX message queue. Threads on this channel take it before others are woken or notified.
    Receivers(u32),
    /// A file server has answered the request of this number.
    Answer(u64),
    /// A file lock was released.
    Locks,
    /// An inotify event has occurred.
    Notes,
    /// A timer file has expired.
    Timers,
    /// The cell has resumed as a clone.
    Generation,
    /// The state of a child cell may have changed.
    Cells,
    /// A child of this process has ended, stopped or continued.
    Child(u32),
    /// This process, which has a pidfd, has ended.
    Ended(u32),
    /// This process does not use its parent's memory any more.
    Released(u32),
    /// A signal was sent to this process.
    Signal(u32),
    /// A futex word: the space that it lies in, unless it is shared, and its address.
    Word(Option<u32>, u64),
    /// A futex word in a shared mapping of a file, which may lie at several addresses: the file's key, and the offset in it.
    FileWord(u64, u64),
}

/// Number of a thread.
pub type Tid = u32;

/// The channels and deadline of a thread that waits.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    entries: Vec<(Channel, u64)>,
    deadline: Option<u64>,
}

/// The waiting threads of each channel, in order of arrival.
#[derive(Debug, Default)]
pub struct Waiters {
    queues: BTreeMap<(Channel, u64), Tid>,
    deadlines: BTreeSet<(u64, Tid)>,
    arrivals: u64,
}

impl Waiters {
    /// Adds a thread that waits.
    pub fn add(&mut self, thread: Tid, channels: &[Channel], deadline: Option<u64>) -> Wait {
        let mut entries = Vec::with_capacity(channels.len());
        for channel in channels {
            self.arrivals += 1;
            entries.push((*channel, self.arrivals));
            self.queues.insert((*channel, self.arrivals), thread);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, thread));
        }
        Wait { entries, deadline }
    }

    /// Removes a thread that waits no more.
    pub fn remove(&mut self, thread: Tid, wait: &Wait) {
        for entry in &wait.entries {
            self.queues.remove(entry);
        }
        if let Some(deadline) = wait.deadline {
            self.deadlines.remove(&(deadline, thread));
        }
    }

    /// The threads that wait on a channel, in order of arrival.
    pub fn on(&self, channel: Channel) -> impl Iterator<Item = Tid> {
        self.queues.range((channel, 0)..=(channel, u64::MAX)).map(|(_, thread)| *thread)
    }

    /// The threads that wait on futex words of a space in a range of addresses, with the addresses.
    #[must_use]
    pub fn in_words(&self, space: Option<u32>, addresses: Range<u64>) -> Vec<(u64, Tid)> {
        let (first, behind) = (Channel::Word(space, addresses.start), Channel::Word(space, addresses.end));
        let address = |channel: &Channel| if let Channel::Word(_, address) = channel { Some(*address) } else { None };
        self.queues.range((first, 0)..(behind, 0)).filter_map(|((channel, _), thread)| Some((address(channel)?, *thread))).collect()
    }

    /// Moves a thread from one channel to the end of another.
    pub fn requeue(&mut self, thread: Tid, wait: &mut Wait, to: Channel) {
        for entry in wait.entries.drain(..) {
            self.queues.remove(&entry);
        }
        self.arrivals += 1;
        wait.entries.push((to, self.arrivals));
        self.queues.insert((to, self.arrivals), thread);
    }

    /// The earliest deadline, and its thread.
    #[must_use]
    pub fn next(&self) -> Option<(u64, Tid)> {
        self.deadlines.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{Channel, Waiters};

    #[test]
    fn waiters_are_ordered_by_arrival_and_removed_when_they_leave() {
        let mut waiters = Waiters::default();
        let (five, mut three) =
            (waiters.add(5, &[Channel::Pipe(1), Channel::Input], Some(9)), waiters.add(3, &[Channel::Pipe(1)], Some(7)));
        assert_eq!(waiters.on(Channel::Pipe(1)).collect::<std::vec::Vec<_>>(), [5, 3]);
        assert_eq!((waiters.on(Channel::Pipe(2)).count(), waiters.next()), (0, Some((7, 3))));
        waiters.requeue(3, &mut three, Channel::Input);
        assert_eq!(waiters.on(Channel::Input).collect::<std::vec::Vec<_>>(), [5, 3]);
        waiters.remove(5, &five);
        waiters.remove(3, &three);
        assert_eq!((waiters.on(Channel::Input).count(), waiters.next()), (0, None));
    }
}
