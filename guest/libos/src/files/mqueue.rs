// SPDX-License-Identifier: MIT OR Apache-2.0
//! POSIX message queues, which have names of their own and message priorities.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, OffsetUse, Transfer};
use super::poll::{READING, WRITING};
use super::socket::address::Address;
use super::socket::{Family, SocketId};
use super::user_copy::read_text;
use super::{Files, OpenFile};
use crate::credentials::Owner;
use crate::errno::Errno;
use crate::pid::Pid;
use crate::random::Random;
use crate::signals::Signal;
use crate::wait::Channel;

/// Upper limit on queues.
const QUEUES_MAX: usize = 256;

/// The identity of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageQueueId(u32);

impl MessageQueueId {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Bytes of a notification through a socket.
pub const COOKIE: usize = 32;

/// How a process is notified of a message in an empty queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyMethod {
    /// Not at all; this only prevents others from registering.
    Nothing,
    /// By a signal with this value.
    Signal(Signal, u64),
    /// By these bytes in a socket of its own, after which its C library starts a thread.
    Socket(SocketId, [u8; COOKIE]),
}

impl NotifyMethod {
    /// Linux's number of the kind.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            NotifyMethod::Signal(..) => 0,
            NotifyMethod::Nothing => 1,
            NotifyMethod::Socket(..) => 2,
        }
    }
}

/// The last part of a notification through a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationReason {
    /// A message arrived.
    Message = 1,
    /// The registration was removed.
    Removed = 2,
}

/// The process registered for notification of a message in an empty queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifyTarget {
    /// The process.
    pub process: Pid,
    /// How it is notified.
    pub notice: NotifyMethod,
}

/// A message queue.
#[derive(Debug)]
pub struct MessageQueue {
    /// Its owner.
    pub owner: Owner,
    /// Upper limit on its messages.
    pub count_max: u64,
    /// Upper limit on the bytes of a message.
    pub bytes_max: u64,
    /// Messages by priority.
    messages: BTreeMap<u32, VecDeque<Vec<u8>>>,
    /// The process to notify of the next message.
    pub notify_target: Option<NotifyTarget>,
    /// It has a name.
    is_named: bool,
    /// The number of open files that refer to it.
    opened: usize,
    /// When it last became ready.
    pub event_times: EventTimes,
}

impl MessageQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(owner: Owner, count_max: u64, bytes_max: u64) -> MessageQueue {
        let messages = BTreeMap::new();
        MessageQueue {
            owner,
            count_max,
            bytes_max,
            messages,
            notify_target: None,
            is_named: true,
            opened: 0,
            event_times: EventTimes::default(),
        }
    }

    /// The number of messages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.messages.values().map(|messages| messages.len() as u64).sum()
    }

    /// Its description, for reads of its descriptor.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes: usize = self.messages.values().flatten().map(Vec::len).sum();
        let (kind, signal, process) = match self.notify_target {
            Some(NotifyTarget { process, notice }) => {
                (notice.number(), if let NotifyMethod::Signal(signal, _) = notice { signal.0 } else { 0 }, process)
            }
            None => (0, 0, 0),
        };
        format!("QSIZE:{bytes:<10} NOTIFY:{kind:<5} SIGNO:{signal:<5} NOTIFY_PID:{process:<6}\n")
    }

    /// Its `poll` events.
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
        self.event_times.input();
        Ok(())
    }

    /// Removes the first message of the highest priority.
    ///
    /// # Errors
    /// `EAGAIN`: there is none.
    pub fn receive(&mut self) -> Result<(u32, Vec<u8>), Errno> {
        let mut highest = self.messages.last_entry().ok_or(Errno::EAGAIN)?;
        let (priority, message) = (*highest.key(), highest.get_mut().pop_front().ok_or(Errno::EAGAIN)?);
        if highest.get().is_empty() {
            highest.remove();
        }
        self.event_times.output();
        Ok((priority, message))
    }
}

/// All queues.
#[derive(Debug, Default)]
pub struct MessageQueues {
    all: BTreeMap<MessageQueueId, MessageQueue>,
    names: BTreeMap<Vec<u8>, MessageQueueId>,
    next_id: u32,
}

impl MessageQueues {
    /// The queue with a name.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<MessageQueueId> {
        self.names.get(name).copied()
    }

    /// Creates a queue.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many.
    pub fn create(&mut self, name: Vec<u8>, queue: MessageQueue) -> Result<MessageQueueId, Errno> {
        if self.names.len() >= QUEUES_MAX {
            return Err(Errno::ENOSPC);
        }
        while self.all.contains_key(&MessageQueueId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = MessageQueueId(self.next_id);
        self.all.insert(id, queue);
        self.names.insert(name, id);
        Ok(id)
    }

    /// A queue.
    ///
    /// # Errors
    /// `EBADF`: it does not exist, which cannot happen for an open file.
    pub fn get(&self, id: MessageQueueId) -> Result<&MessageQueue, Errno> {
        self.all.get(&id).ok_or(Errno::EBADF)
    }

    /// A queue, mutably.
    ///
    /// # Errors
    /// `EBADF`: it does not exist, which cannot happen for an open file.
    pub fn get_mut(&mut self, id: MessageQueueId) -> Result<&mut MessageQueue, Errno> {
        self.all.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Increments the count of open files.
    pub fn open(&mut self, id: MessageQueueId) {
        if let Some(queue) = self.all.get_mut(&id) {
            queue.opened += 1;
        }
    }

    /// Decrements the count of open files.
    pub(super) fn close(&mut self, id: MessageQueueId) {
        if let Some(queue) = self.all.get_mut(&id) {
            queue.opened = queue.opened.saturating_sub(1);
        }
        self.release(id);
    }

    /// Removes a queue's name. Open files of it stay usable.
    pub fn unlink(&mut self, name: &[u8]) {
        let Some(id) = self.names.remove(name) else { return };
        if let Some(queue) = self.all.get_mut(&id) {
            queue.is_named = false;
        }
        self.release(id);
    }

    /// Frees a queue without a name and open files.
    fn release(&mut self, id: MessageQueueId) {
        if self.all.get(&id).is_some_and(|queue| !queue.is_named && queue.opened == 0) {
            self.all.remove(&id);
        }
    }

    /// Removes the registration of a process. Returns how it was to be notified.
    fn stop_listening(&mut self, id: MessageQueueId, process: Pid) -> Option<NotifyMethod> {
        let queue = self.all.get_mut(&id)?;
        queue.notify_target.take_if(|notify_target| notify_target.process == process).map(|notify_target| notify_target.notice)
    }
}

impl FileOperations for MessageQueueId {
    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Position
    }

    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        read_text(files.queues.get(*self)?.text().as_bytes(), transfer.start(files)?, transfer.ranges)
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        files.queues.get(*self).map_or(0, MessageQueue::ready)
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Messages(self.number()));
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.queues.get(*self).map_or_else(|_| EventTimes::default(), |queue| queue.event_times)
    }

    fn flush(&self, files: &mut Files) {
        files.stop_listening(*self, files.current.process);
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        files.queues.close(*self);
        Vec::new()
    }
}

impl Files {
    /// The message queue of a descriptor.
    ///
    /// # Errors
    /// `EBADF`: the descriptor is none.
    pub fn message_queue(&self, fd: u64) -> Result<MessageQueueId, Errno> {
        self.raw_file(fd)?.downcast().ok_or(Errno::EBADF)
    }

    /// The socket for notifications of a queue.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: it is of another kind.
    pub fn notice_socket(&self, fd: u64) -> Result<SocketId, Errno> {
        let id: SocketId = self.raw_file(fd)?.downcast().ok_or(Errno::EINVAL)?;
        if self.sockets.get(id)?.family == Family::Netlink { Ok(id) } else { Err(Errno::EINVAL) }
    }

    /// Sends a notification through a socket. It is lost if the socket is closed or memory is short.
    pub fn notify_by_socket(&mut self, id: SocketId, mut cookie: [u8; COOKIE], reason: NotificationReason) {
        cookie[COOKIE - 1] = reason as u8;
        let _ = self.sockets.answer(id, Address::Netlink(0), &cookie);
        self.changed.push(Channel::Sockets);
    }

    /// Removes a process's registration when it closes the queue or unregisters.
    pub fn stop_listening(&mut self, id: MessageQueueId, process: Pid) {
        if let Some(NotifyMethod::Socket(socket, cookie)) = self.queues.stop_listening(id, process) {
            self.notify_by_socket(socket, cookie, NotificationReason::Removed);
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
