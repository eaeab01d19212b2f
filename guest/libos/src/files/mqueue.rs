// SPDX-License-Identifier: MIT OR Apache-2.0
//! POSIX's queues of messages, which have names of their own and priorities.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::poll::{READING, WRITING};
use super::pulse::Pulse;
use super::socket::address::Address;
use super::socket::{Family, SocketId};
use super::tree::node::Owner;
use super::{Files, Kind};
use crate::errno::Errno;
use crate::process::ProcessNumber;
use crate::signals::Signal;
use crate::wait::Channel;

/// Queues that there may be.
const QUEUES_MAX: usize = 256;

/// Which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageQueueId(u32);

impl MessageQueueId {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Bytes that say through a socket what became of a queue.
pub const COOKIE: usize = 32;

/// How a process hears of a message that comes to an empty queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Not at all: it only keeps others from listening.
    Nothing,
    /// By a signal, which carries this.
    Signal(Signal, u64),
    /// By these bytes in a socket of its own, from which its C library starts a thread.
    Socket(SocketId, [u8; COOKIE]),
}

impl Notice {
    /// Linux's number of the kind.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Notice::Signal(..) => 0,
            Notice::Nothing => 1,
            Notice::Socket(..) => 2,
        }
    }
}

/// What a socket is told last of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A message came.
    Message = 1,
    /// The process listens no more.
    Removed = 2,
}

/// Who wants to hear of a message that comes to an empty queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The process.
    pub process: ProcessNumber,
    /// How it hears of it.
    pub notice: Notice,
}

/// A queue of messages.
#[derive(Debug)]
pub struct MessageQueue {
    /// Whose it is.
    pub owner: Owner,
    /// Messages that it holds at most.
    pub count_max: u64,
    /// Bytes that a message has at most.
    pub bytes_max: u64,
    /// Messages by priority.
    messages: BTreeMap<u32, VecDeque<Vec<u8>>>,
    /// Who wants to hear of the next message.
    pub listener: Option<Listener>,
    /// It has a name.
    is_named: bool,
    /// How many open files stand for it.
    opened: usize,
    /// When it last became ready.
    pub pulse: Pulse,
}

impl MessageQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(owner: Owner, count_max: u64, bytes_max: u64) -> MessageQueue {
        let messages = BTreeMap::new();
        MessageQueue { owner, count_max, bytes_max, messages, listener: None, is_named: true, opened: 0, pulse: Pulse::default() }
    }

    /// How many messages it holds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.messages.values().map(|messages| messages.len() as u64).sum()
    }

    /// What it is as text, for who reads its descriptor.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes: usize = self.messages.values().flatten().map(Vec::len).sum();
        let (kind, signal, process) = match self.listener {
            Some(Listener { process, notice }) => {
                (notice.number(), if let Notice::Signal(signal, _) = notice { signal.0 } else { 0 }, process)
            }
            None => (0, 0, 0),
        };
        format!("QSIZE:{bytes:<10} NOTIFY:{kind:<5} SIGNO:{signal:<5} NOTIFY_PID:{process:<6}\n")
    }

    /// What need not wait.
    #[must_use]
    pub fn ready(&self) -> u16 {
        let count = self.count();
        let reading = if count > 0 { READING } else { 0 };
        reading | if count < self.count_max { WRITING } else { 0 }
    }

    /// Adds a message.
    ///
    /// # Errors
    /// `EAGAIN`: it is full.
    pub fn send(&mut self, message: Vec<u8>, priority: u32) -> Result<(), Errno> {
        if self.count() >= self.count_max {
            return Err(Errno::EAGAIN);
        }
        self.messages.entry(priority).or_default().push_back(message);
        self.pulse.input();
        Ok(())
    }

    /// Takes the first message of the highest priority.
    ///
    /// # Errors
    /// `EAGAIN`: there is none.
    pub fn receive(&mut self) -> Result<(u32, Vec<u8>), Errno> {
        let mut highest = self.messages.last_entry().ok_or(Errno::EAGAIN)?;
        let (priority, message) = (*highest.key(), highest.get_mut().pop_front().ok_or(Errno::EAGAIN)?);
        if highest.get().is_empty() {
            highest.remove();
        }
        self.pulse.output();
        Ok((priority, message))
    }
}

/// All queues.
#[derive(Debug, Default)]
pub struct MessageQueues {
    all: BTreeMap<MessageQueueId, MessageQueue>,
    names: BTreeMap<Vec<u8>, MessageQueueId>,
    made: u32,
}

impl MessageQueues {
    /// The queue of a name.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<MessageQueueId> {
        self.names.get(name).copied()
    }

    /// Makes a queue.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many.
    pub fn create(&mut self, name: Vec<u8>, queue: MessageQueue) -> Result<MessageQueueId, Errno> {
        if self.names.len() >= QUEUES_MAX {
            return Err(Errno::ENOSPC);
        }
        while self.all.contains_key(&MessageQueueId(self.made)) {
            self.made = self.made.wrapping_add(1);
        }
        let id = MessageQueueId(self.made);
        self.all.insert(id, queue);
        self.names.insert(name, id);
        Ok(id)
    }

    /// A queue.
    ///
    /// # Errors
    /// `EBADF`: there is none, which no open file should say.
    pub fn get(&self, id: MessageQueueId) -> Result<&MessageQueue, Errno> {
        self.all.get(&id).ok_or(Errno::EBADF)
    }

    /// The same, to be changed.
    ///
    /// # Errors
    /// `EBADF`: there is none, which no open file should say.
    pub fn get_mut(&mut self, id: MessageQueueId) -> Result<&mut MessageQueue, Errno> {
        self.all.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Counts an open file.
    pub fn open(&mut self, id: MessageQueueId) {
        if let Some(queue) = self.all.get_mut(&id) {
            queue.opened += 1;
        }
    }

    /// Counts an open file less.
    pub(super) fn close(&mut self, id: MessageQueueId) {
        if let Some(queue) = self.all.get_mut(&id) {
            queue.opened = queue.opened.saturating_sub(1);
        }
        self.release(id);
    }

    /// Takes a queue its name. Who has it open has it still.
    pub fn unlink(&mut self, name: &[u8]) {
        let Some(id) = self.names.remove(name) else { return };
        if let Some(queue) = self.all.get_mut(&id) {
            queue.is_named = false;
        }
        self.release(id);
    }

    /// Forgets a queue that has no name and that nobody has open.
    fn release(&mut self, id: MessageQueueId) {
        if self.all.get(&id).is_some_and(|queue| !queue.is_named && queue.opened == 0) {
            self.all.remove(&id);
        }
    }

    /// Ends the listening of a process. Returns how it heard.
    fn stop_listening(&mut self, id: MessageQueueId, process: ProcessNumber) -> Option<Notice> {
        let queue = self.all.get_mut(&id)?;
        queue.listener.take_if(|listener| listener.process == process).map(|listener| listener.notice)
    }
}

impl Files {
    /// The socket by which a process wants to hear of a queue.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: it is of another kind.
    pub fn notice_socket(&self, fd: u64) -> Result<SocketId, Errno> {
        let Kind::Socket(id) = self.look(fd)?.kind else { return Err(Errno::EINVAL) };
        if self.sockets.get(id)?.family == Family::Netlink { Ok(id) } else { Err(Errno::EINVAL) }
    }

    /// Says through a socket what became of a queue. One that is gone, or has no memory for it, says nothing.
    pub fn tell_by_socket(&mut self, id: SocketId, mut cookie: [u8; COOKIE], fate: Fate) {
        cookie[COOKIE - 1] = fate as u8;
        let _ = self.sockets.answer(id, Address::Netlink(0), &cookie);
        self.changed.push(Channel::Sockets);
    }

    /// A process that closes a queue, or says so, does not listen to it any more.
    pub fn stop_listening(&mut self, id: MessageQueueId, process: ProcessNumber) {
        if let Some(Notice::Socket(socket, cookie)) = self.queues.stop_listening(id, process) {
            self.tell_by_socket(socket, cookie, Fate::Removed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MessageQueue, MessageQueues, Owner};
    use crate::errno::Errno;

    #[test]
    fn the_highest_priority_goes_first_and_queues_live_as_long_as_they_are_known() {
        let mut queues = MessageQueues::default();
        let owner = Owner { uid: 0, gid: 0, permissions: 0o600 };
        let id = queues.create(b"one".to_vec(), MessageQueue::new(owner, 3, 10)).expect("there is room");
        queues.open(id);
        let queue = queues.get_mut(id).expect("it was made");
        for (priority, text) in [(1, "a"), (7, "b"), (1, "c")] {
            assert_eq!(queue.send(text.as_bytes().to_vec(), priority), Ok(()));
        }
        assert_eq!(queue.send(std::vec![], 9), Err(Errno::EAGAIN));
        for wanted in [(7, b"b"), (1, b"a"), (1, b"c")] {
            assert_eq!(queue.receive(), Ok((wanted.0, wanted.1.to_vec())));
        }
        assert_eq!(queue.receive(), Err(Errno::EAGAIN));
        queues.unlink(b"one");
        assert!(queues.named(b"one").is_none() && queues.get(id).is_ok());
        queues.close(id);
        assert!(queues.get(id).is_err());
    }
}
