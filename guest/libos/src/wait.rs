// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting: what threads wait for, and who waits for what.
//!
//! A call that cannot go on leaves, and its thread waits on *channels* until one of them is woken or its deadline comes; then the call is made again, from its first
//! line and with the same arguments (the interrupt model: Fluke, section 4.2). So nobody waits on a stack of the libOS, and all that a waiting thread is can be copied. Waking once
//! too often costs an attempt; waking too seldom loses a thread.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Something that can happen, and that threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// There is something to read on the console.
    Input,
    /// The terminal's output is let go on.
    Output,
    /// Something has happened at an end of this pseudo terminal.
    Terminal(u32),
    /// A pipe was filled, emptied, opened or closed.
    Pipe(usize),
    /// An open file, by its place in the table, has changed: a counter.
    Open(usize),
    /// Something has happened to a socket.
    Sockets,
    /// A set of System V's semaphores has changed. Who changes it finishes the calls of those who wait.
    Semaphores(u32),
    /// A queue of System V's messages has changed.
    Queue(u32),
    /// A queue of POSIX's messages has changed.
    Messages(u32),
    /// A message has come to this queue of POSIX's. Those on this channel take it, and nobody else is told of it.
    Receivers(u32),
    /// A lock was given up.
    Locks,
    /// Something has happened that somebody watches.
    Notes,
    /// A timer that is a file has run out.
    Timers,
    /// The cell goes on as a clone.
    Generation,
    /// A child of this process has ended, stopped or gone on.
    Child(u32),
    /// This process, which is a file, has ended.
    Ended(u32),
    /// This process does not use its parent's memory any more.
    Released(u32),
    /// A signal was sent to this process.
    Signal(u32),
    /// A word of memory: the space that it lies in, if no other shares it, and its address.
    Word(Option<u32>, u64),
}

/// Number of a thread.
pub type ThreadNumber = u32;

/// What a thread waits for.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    places: Vec<(Channel, u64)>,
    deadline: Option<u64>,
}

/// Who waits for what, first come first.
#[derive(Debug, Default)]
pub struct Waiters {
    queues: BTreeMap<(Channel, u64), ThreadNumber>,
    deadlines: BTreeSet<(u64, ThreadNumber)>,
    arrivals: u64,
}

impl Waiters {
    /// Takes note of a thread that waits.
    pub fn add(&mut self, thread: ThreadNumber, channels: &[Channel], deadline: Option<u64>) -> Wait {
        let mut places = Vec::with_capacity(channels.len());
        for channel in channels {
            self.arrivals += 1;
            places.push((*channel, self.arrivals));
            self.queues.insert((*channel, self.arrivals), thread);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, thread));
        }
        Wait { places, deadline }
    }

    /// Forgets a thread that waits no more.
    pub fn remove(&mut self, thread: ThreadNumber, wait: &Wait) {
        for place in &wait.places {
            self.queues.remove(place);
        }
        if let Some(deadline) = wait.deadline {
            self.deadlines.remove(&(deadline, thread));
        }
    }

    /// Who waits on a channel, in order of arrival.
    pub fn on(&self, channel: Channel) -> impl Iterator<Item = ThreadNumber> {
        self.queues.range((channel, 0)..=(channel, u64::MAX)).map(|(_, thread)| *thread)
    }

    /// Moves a thread from one channel to the end of another.
    pub fn requeue(&mut self, thread: ThreadNumber, wait: &mut Wait, to: Channel) {
        for place in wait.places.drain(..) {
            self.queues.remove(&place);
        }
        self.arrivals += 1;
        wait.places.push((to, self.arrivals));
        self.queues.insert((to, self.arrivals), thread);
    }

    /// The earliest deadline, and whose it is.
    #[must_use]
    pub fn next(&self) -> Option<(u64, ThreadNumber)> {
        self.deadlines.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{Channel, Waiters};

    #[test]
    fn who_came_first_is_first_and_who_left_is_gone() {
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
