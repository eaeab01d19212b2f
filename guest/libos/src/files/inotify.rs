// SPDX-License-Identifier: MIT OR Apache-2.0
//! `inotify`: watches of files, and the queues of their events.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::edge::EventTimes;
use super::locks::FileKey;
use super::poll::READING;
use crate::errno::Errno;
use crate::uapi::{
    IN_ACCESS, IN_ALL_EVENTS, IN_CLOSE_NOWRITE, IN_CLOSE_WRITE, IN_DELETE_SELF, IN_EXCL_UNLINK, IN_IGNORED, IN_MASK_ADD, IN_MASK_CREATE,
    IN_MODIFY, IN_ONESHOT, IN_OPEN, IN_Q_OVERFLOW,
};

/// The events of open files: read, written, opened and closed.
pub const OPEN_FILE_EVENTS: u32 = IN_ACCESS | IN_MODIFY | IN_CLOSE_WRITE | IN_CLOSE_NOWRITE | IN_OPEN;
/// Not a flag of Linux: the event is reported by the name under which the file was opened, even if that name is removed.
pub const BY_NAME: u32 = 0x1_0000;

/// Upper limit on queued events.
const QUEUE_MAX: usize = 16_384;
/// Upper limit on the watches of one instance.
const WATCHES_MAX: usize = 1 << 16;
/// Bytes of a `struct inotify_event` without its name; names are padded to multiples of this size.
const HEADER: usize = 16;

/// A queued event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InotifyEvent {
    watch: i32,
    mask: u32,
    cookie: u32,
    name: Box<[u8]>,
}

impl InotifyEvent {
    /// The event that others were lost.
    fn overflow() -> InotifyEvent {
        InotifyEvent { watch: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: Box::default() }
    }

    fn size(&self) -> usize {
        if self.name.is_empty() { HEADER } else { HEADER + (self.name.len() + 1).next_multiple_of(HEADER) }
    }

    /// Appends it in the format of `struct inotify_event`.
    fn append_to(&self, bytes: &mut Vec<u8>) {
        let end = bytes.len() + self.size();
        bytes.extend_from_slice(&self.watch.to_le_bytes());
        for word in [self.mask, self.cookie, (self.size() - HEADER) as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.name);
        bytes.resize(end, 0);
    }
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    file: FileKey,
    mask: u32,
}

/// An instance of inotify.
#[derive(Debug, Default)]
pub struct Inotify {
    watches: BTreeMap<i32, Watch>,
    last: i32,
    queue: VecDeque<InotifyEvent>,
    /// When the last event arrived.
    pub event_times: EventTimes,
}

impl Inotify {
    /// Adds a watch for a file, or changes an existing one. Returns the watch's number.
    ///
    /// # Errors
    /// `EEXIST`: the file is watched, but the watch must be new. `ENOSPC`: there are too many.
    pub fn watch(&mut self, file: FileKey, mask: u32) -> Result<i32, Errno> {
        let wanted = mask & (IN_ALL_EVENTS | IN_ONESHOT | IN_EXCL_UNLINK);
        if let Some((number, watch)) = self.watches.iter_mut().find(|(_, watch)| watch.file == file) {
            if mask & IN_MASK_CREATE != 0 {
                return Err(Errno::EEXIST);
            }
            watch.mask = if mask & IN_MASK_ADD != 0 { watch.mask | wanted } else { wanted };
            return Ok(*number);
        }
        if self.watches.len() >= WATCHES_MAX || self.last == i32::MAX {
            return Err(Errno::ENOSPC);
        }
        self.last += 1;
        self.watches.insert(self.last, Watch { file, mask: wanted });
        Ok(self.last)
    }

    /// Removes a watch.
    ///
    /// # Errors
    /// `EINVAL`: it does not exist.
    pub fn remove(&mut self, number: i32) -> Result<(), Errno> {
        self.watches.remove(&number).ok_or(Errno::EINVAL)?;
        self.push(InotifyEvent { watch: number, mask: IN_IGNORED, cookie: 0, name: Box::default() });
        Ok(())
    }

    /// Something happened to a file, or to a name in it. A `mask` with [`IN_EXCL_UNLINK`] is for watches that do not ask for that.
    fn happened(&mut self, file: FileKey, mask: u32, cookie: u32, name: &[u8]) {
        let Some((&number, &watch)) = self.watches.iter().find(|(_, watch)| watch.file == file) else { return };
        let (is_excluded, mask) = (watch.mask & mask & IN_EXCL_UNLINK != 0, mask & !IN_EXCL_UNLINK);
        if is_excluded || watch.mask & mask & IN_ALL_EVENTS == 0 {
            return;
        }
        self.push(InotifyEvent { watch: number, mask, cookie, name: name.into() });
        if watch.mask & IN_ONESHOT != 0 {
            // It existed a moment ago.
            let _ = self.remove(number);
        }
    }

    /// Records that a file was deleted.
    fn note_deletion(&mut self, file: FileKey) {
        self.happened(file, IN_DELETE_SELF, 0, &[]);
        if let Some((&number, _)) = self.watches.iter().find(|(_, watch)| watch.file == file) {
            // It was found just now.
            let _ = self.remove(number);
        }
    }

    /// Queues an event, unless it equals the last one.
    fn push(&mut self, event: InotifyEvent) {
        if self.queue.back() == Some(&event) && event.mask & IN_IGNORED == 0 {
            return;
        }
        let lost = InotifyEvent::overflow();
        if self.queue.len() < QUEUE_MAX {
            self.queue.push_back(event);
        } else if self.queue.back() != Some(&lost) {
            self.queue.push_back(lost);
        } else {
            return;
        }
        self.event_times.input();
    }

    /// Records that events were lost, if it watches anything.
    fn note_overflow(&mut self) {
        if !self.watches.is_empty() {
            self.push(InotifyEvent::overflow());
        }
    }

    /// Removes as many events as fit into the buffer, in their external format.
    ///
    /// # Errors
    /// `EAGAIN`: there is none. `EINVAL`: not even one fits.
    pub fn take(&mut self, room: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        while let Some(event) = self.queue.pop_front_if(|event| bytes.len() + event.size() <= room) {
            event.append_to(&mut bytes);
        }
        match (bytes.is_empty(), self.queue.is_empty()) {
            (false, _) => Ok(bytes),
            (true, true) => Err(Errno::EAGAIN),
            (true, false) => Err(Errno::EINVAL),
        }
    }

    /// Bytes available for reading.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.iter().map(InotifyEvent::size).sum()
    }

    /// Its `poll` events.
    #[must_use]
    pub fn ready(&self) -> u16 {
        if self.queue.is_empty() { 0 } else { READING }
    }
}

/// The number of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InotifyId(u32);

/// All instances.
#[derive(Debug, Default)]
pub struct Inotifies {
    instances: BTreeMap<InotifyId, Inotify>,
    next_id: u32,
    cookie: u32,
}

impl Inotifies {
    /// Creates an instance without watches.
    pub fn create(&mut self) -> InotifyId {
        // Numbers wrap around after 2^32 instances; those in use are skipped.
        while self.instances.contains_key(&InotifyId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = InotifyId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.instances.insert(id, Inotify::default());
        id
    }

    /// Removes a closed instance.
    pub fn remove(&mut self, id: InotifyId) {
        self.instances.remove(&id);
    }

    /// Records in all instances with watches that events were lost.
    pub fn note_overflow(&mut self) {
        self.instances.values_mut().for_each(Inotify::note_overflow);
    }

    /// An instance.
    #[must_use]
    pub fn get(&self, id: InotifyId) -> Option<&Inotify> {
        self.instances.get(&id)
    }

    /// An instance, mutably.
    ///
    /// # Errors
    /// `EBADF`: it does not exist, which cannot happen for an open file.
    pub fn get_mut(&mut self, id: InotifyId) -> Result<&mut Inotify, Errno> {
        self.instances.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Whether there are no watches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instances.values().all(|instance| instance.watches.is_empty())
    }

    /// Whether a file is watched.
    #[must_use]
    pub fn has(&self, file: FileKey) -> bool {
        self.instances.values().any(|instance| instance.watches.values().any(|watch| watch.file == file))
    }

    /// A number that connects the two events of a move.
    pub fn cookie(&mut self) -> u32 {
        self.cookie = self.cookie.wrapping_add(1).max(1);
        self.cookie
    }

    /// Notifies the watchers of a file of an event of it, or of a name in it.
    pub fn happened(&mut self, file: FileKey, mask: u32, cookie: u32, name: &[u8]) {
        self.instances.values_mut().for_each(|instance| instance.happened(file, mask, cookie, name));
    }

    /// Notifies the watchers of a file that it was deleted.
    pub fn note_deletion(&mut self, file: FileKey) {
        self.instances.values_mut().for_each(|instance| instance.note_deletion(file));
    }
}

#[cfg(test)]
mod tests {
    use super::Inotify;
    use crate::errno::Errno;
    use crate::uapi::{IN_ALL_EVENTS, IN_CREATE, IN_MODIFY, IN_OPEN};

    #[test]
    fn events_are_read_whole_and_the_same_ones_once() {
        let mut inotify = Inotify::default();
        assert_eq!((inotify.watch((1, 1), IN_MODIFY), inotify.watch((1, 2), IN_ALL_EVENTS)), (Ok(1), Ok(2)));
        assert_eq!(inotify.take(100), Err(Errno::EAGAIN));
        for (file, mask, name) in [(1, IN_MODIFY, &b""[..]), (1, IN_OPEN, b""), (1, IN_MODIFY, b""), (2, IN_CREATE, b"name")] {
            inotify.happened((1, file), mask, 0, name);
        }
        assert_eq!((inotify.waiting(), inotify.take(15)), (48, Err(Errno::EINVAL)));
        assert_eq!(inotify.take(40).map(|bytes| bytes.len()), Ok(16));
        let bytes = inotify.take(40).expect("one is left");
        assert_eq!((bytes[0], bytes[5], bytes[12], &bytes[16..22]), (2, 1, 16, &b"name\0\0"[..]));
        inotify.note_deletion((1, 2));
        assert_eq!((inotify.waiting(), inotify.remove(2)), (32, Err(Errno::EINVAL)));
    }

    #[test]
    fn events_beyond_the_queue_limit_are_reported_as_an_overflow() {
        let mut inotify = Inotify::default();
        inotify.watch((1, 1), IN_ALL_EVENTS).expect("there is room");
        for round in 0..20_000 {
            inotify.happened((1, 1), IN_CREATE, round, &[]);
        }
        let bytes = inotify.take(usize::MAX).expect("there are many");
        assert_eq!((bytes.len(), &bytes[bytes.len() - 16..][..8]), (16 * 16_385, &[0xff, 0xff, 0xff, 0xff, 0, 0x40, 0, 0][..]));
    }
}
