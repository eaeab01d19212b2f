// SPDX-License-Identifier: MIT OR Apache-2.0
//! Message queues, whose messages have types.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::errno::Errno;
use crate::pid::Pid;

/// Upper limit on the bytes of a message.
pub const MESSAGE_MAX: u64 = 8192;
/// Default limit on the bytes of a queue's messages; root may change it.
pub const QUEUE_BYTES: u64 = 16_384;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its type, which is positive.
    pub kind: i64,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Selects a message (`msgtyp` and the flags of `msgrcv`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSelector {
    /// The first message.
    Any,
    /// The first of this type.
    Kind(i64),
    /// The first of another type.
    Not(i64),
    /// The first of the lowest type up to this one.
    UpTo(i64),
    /// The message at this index, which stays in the queue.
    Copy(i64),
}

/// A queue of messages.
#[derive(Debug)]
pub struct Queue {
    /// The messages in order of arrival.
    messages: VecDeque<Message>,
    /// Bytes of all messages.
    pub used: u64,
    /// Upper limit on those bytes.
    pub room: u64,
    /// Times of the last send and the last receive, in seconds since 1970; 0: never.
    pub times: [u64; 2],
    /// The processes that sent and received last; 0: none.
    pub processes: [Pid; 2],
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { messages: VecDeque::new(), used: 0, room: QUEUE_BYTES, times: [0; 2], processes: [0; 2] }
    }
}

impl Queue {
    /// The number of messages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.messages.len() as u64
    }

    /// Whether a message of so many bytes fits. Messages without bytes count against the limit, too.
    #[must_use]
    pub fn fits(&self, bytes: u64) -> bool {
        self.used + bytes <= self.room && self.count() < self.room
    }

    /// Adds a message.
    pub fn send(&mut self, message: Message, process: Pid, now: u64) {
        self.used += message.bytes.len() as u64;
        self.messages.push_back(message);
        (self.times[0], self.processes[0]) = (now, process);
    }

    /// Removes a message of at most so many bytes. `None`: no message matches.
    ///
    /// # Errors
    /// `E2BIG`: it is larger, and may not be truncated.
    pub fn receive(&mut self, wanted: MessageSelector, room: u64, cuts: bool, process: Pid, now: u64) -> Result<Option<Message>, Errno> {
        let Some(index) = self.find(wanted) else { return Ok(None) };
        if self.messages.get(index).is_some_and(|message| message.bytes.len() as u64 > room) && !cuts {
            return Err(Errno::E2BIG);
        }
        if matches!(wanted, MessageSelector::Copy(_)) {
            return Ok(self.messages.get(index).cloned());
        }
        let message = self.messages.remove(index);
        self.used -= message.as_ref().map_or(0, |message| message.bytes.len() as u64);
        (self.times[1], self.processes[1]) = (now, process);
        Ok(message)
    }

    fn find(&self, wanted: MessageSelector) -> Option<usize> {
        let first = |is: &dyn Fn(&Message) -> bool| self.messages.iter().position(is);
        match wanted {
            MessageSelector::Any => first(&|_| true),
            MessageSelector::Kind(kind) => first(&|message| message.kind == kind),
            MessageSelector::Not(kind) => first(&|message| message.kind != kind),
            MessageSelector::UpTo(most) => {
                let lowest = self.messages.iter().map(|message| message.kind).filter(|kind| *kind <= most).min()?;
                first(&|message| message.kind == lowest)
            }
            MessageSelector::Copy(index) => usize::try_from(index).ok().filter(|index| *index < self.messages.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, MessageSelector, Queue};
    use crate::errno::Errno;

    #[test]
    fn messages_are_taken_by_their_types() {
        let mut queue = Queue::default();
        for (kind, text) in [(5, "five"), (2, "two"), (9, "nine"), (2, "again")] {
            queue.send(Message { kind, bytes: text.as_bytes().to_vec() }, 1, 100);
        }
        let mut take = |wanted, room, cuts| queue.receive(wanted, room, cuts, 2, 200).map(|message| message.map(|message| message.bytes));
        assert_eq!(take(MessageSelector::UpTo(4), 3, false), Ok(Some(b"two".to_vec())));
        assert_eq!(take(MessageSelector::UpTo(4), 3, false), Err(Errno::E2BIG));
        assert_eq!(
            (take(MessageSelector::Copy(2), 9, false), take(MessageSelector::Copy(3), 9, false)),
            (Ok(Some(b"again".to_vec())), Ok(None))
        );
        assert_eq!(take(MessageSelector::Not(5), 3, true), Ok(Some(b"nine".to_vec())));
        assert_eq!((take(MessageSelector::Kind(9), 9, true), take(MessageSelector::Any, 9, true)), (Ok(None), Ok(Some(b"five".to_vec()))));
        assert_eq!((queue.count(), queue.used, queue.times, queue.processes), (1, 5, [100, 200], [1, 2]));
    }

    #[test]
    fn a_queue_is_full_of_bytes_or_of_messages() {
        let mut queue = Queue { room: 3, ..Queue::default() };
        assert!(queue.fits(3) && !queue.fits(4));
        for _ in 0..3 {
            assert!(queue.fits(0));
            queue.send(Message { kind: 1, bytes: alloc::vec![] }, 1, 0);
        }
        assert!(!queue.fits(0));
    }
}
