// SPDX-License-Identifier: MIT OR Apache-2.0
//! `inotify`: who watches which files, and what waits to be read of what happened to them.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::locks::FileKey;
use super::poll::READING;
use super::pulse::Pulse;
use crate::errno::Errno;

/// What happens, and how a watch wants to be told.
pub mod event {
    /// Read.
    pub const ACCESS: u32 = 1;
    /// Written.
    pub const MODIFY: u32 = 2;
    /// What it says about itself changed.
    pub const ATTRIB: u32 = 4;
    /// Closed by who could write.
    pub const CLOSE_WRITE: u32 = 8;
    /// Closed by who could not.
    pub const CLOSE_NOWRITE: u32 = 0x10;
    /// Opened.
    pub const OPEN: u32 = 0x20;
    /// A name moved away.
    pub const MOVED_FROM: u32 = 0x40;
    /// A name moved here.
    pub const MOVED_TO: u32 = 0x80;
    /// A name was made.
    pub const CREATE: u32 = 0x100;
    /// A name was removed.
    pub const DELETE: u32 = 0x200;
    /// The file itself is gone.
    pub const DELETE_SELF: u32 = 0x400;
    /// The file itself got another name.
    pub const MOVE_SELF: u32 = 0x800;
    /// All that a watch can want.
    pub const ALL: u32 = 0xfff;
    /// Events were lost.
    pub const OVERFLOW: u32 = 0x4000;
    /// The watch is gone.
    pub const IGNORED: u32 = 0x8000;
    /// Watch directories only.
    pub const ONLY_DIRECTORY: u32 = 0x0100_0000;
    /// Watch links, not where they lead.
    pub const DONT_FOLLOW: u32 = 0x0200_0000;
    /// The watch must be new.
    pub const MUST_BE_NEW: u32 = 0x1000_0000;
    /// Add to what it wants.
    pub const ADD: u32 = 0x2000_0000;
    /// It happened to a directory.
    pub const IS_DIRECTORY: u32 = 0x4000_0000;
    /// Tell once.
    pub const ONE_SHOT: u32 = 0x8000_0000;
}

/// Events that wait to be read, at most.
const QUEUE_MAX: usize = 16_384;
/// Watches of one instance.
const WATCHES_MAX: usize = 1 << 16;
/// Bytes of a `struct inotify_event` without its name; names take whole pieces of this size.
const HEADER: usize = 16;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    watch: i32,
    mask: u32,
    cookie: u32,
    name: Box<[u8]>,
}

impl Event {
    fn size(&self) -> usize {
        if self.name.is_empty() { HEADER } else { HEADER + (self.name.len() + 1).next_multiple_of(HEADER) }
    }

    /// As programs read it.
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
    queue: VecDeque<Event>,
    /// When something last came.
    pub pulse: Pulse,
}

impl Inotify {
    /// Watches a file, or changes what is wanted of one that is watched. Returns the watch's number.
    ///
    /// # Errors
    /// `EEXIST`: it is watched and must not be. `ENOSPC`: there are too many.
    pub fn watch(&mut self, file: FileKey, mask: u32) -> Result<i32, Errno> {
        let wanted = mask & (event::ALL | event::ONE_SHOT);
        if let Some((number, watch)) = self.watches.iter_mut().find(|(_, watch)| watch.file == file) {
            if mask & event::MUST_BE_NEW != 0 {
                return Err(Errno::EEXIST);
            }
            watch.mask = if mask & event::ADD != 0 { watch.mask | wanted } else { wanted };
            return Ok(*number);
        }
        if self.watches.len() >= WATCHES_MAX || self.last == i32::MAX {
            return Err(Errno::ENOSPC);
        }
        self.last += 1;
        self.watches.insert(self.last, Watch { file, mask: wanted });
        Ok(self.last)
    }

    /// Gives up a watch.
    ///
    /// # Errors
    /// `EINVAL`: it is not there.
    pub fn remove(&mut self, number: i32) -> Result<(), Errno> {
        self.watches.remove(&number).ok_or(Errno::EINVAL)?;
        self.push(Event { watch: number, mask: event::IGNORED, cookie: 0, name: Box::default() });
        Ok(())
    }

    /// Something happened to a file, or to a name in it.
    fn happened(&mut self, file: FileKey, mask: u32, cookie: u32, name: &[u8]) {
        let Some((&number, &watch)) = self.watches.iter().find(|(_, watch)| watch.file == file) else { return };
        if watch.mask & mask & event::ALL == 0 {
            return;
        }
        self.push(Event { watch: number, mask, cookie, name: name.into() });
        if watch.mask & event::ONE_SHOT != 0 {
            // It was there a moment ago.
            let _ = self.remove(number);
        }
    }

    /// A file is gone for good.
    fn gone(&mut self, file: FileKey) {
        self.happened(file, event::DELETE_SELF, 0, &[]);
        if let Some((&number, _)) = self.watches.iter().find(|(_, watch)| watch.file == file) {
            // It was found just now.
            let _ = self.remove(number);
        }
    }

    /// Queues an event, unless the last one says the same.
    fn push(&mut self, event: Event) {
        if self.queue.back() == Some(&event) && event.mask & event::IGNORED == 0 {
            return;
        }
        let lost = Event { watch: -1, mask: event::OVERFLOW, cookie: 0, name: Box::default() };
        if self.queue.len() < QUEUE_MAX {
            self.queue.push_back(event);
        } else if self.queue.back() != Some(&lost) {
            self.queue.push_back(lost);
        } else {
            return;
        }
        self.pulse.input();
    }

    /// Takes as many events as there is room for, as programs read them.
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

    /// Bytes that could be read.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.iter().map(Event::size).sum()
    }

    /// What need not wait.
    #[must_use]
    pub fn ready(&self) -> u16 {
        if self.queue.is_empty() { 0 } else { READING }
    }
}

/// Which instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InotifyId(u32);

/// All instances.
#[derive(Debug, Default)]
pub struct Inotifies {
    instances: BTreeMap<InotifyId, Inotify>,
    made: u32,
    cookie: u32,
}

impl Inotifies {
    /// Makes an instance without watches.
    pub fn create(&mut self) -> InotifyId {
        // Numbers come round after 2^32 instances; those that live on are passed over.
        while self.instances.contains_key(&InotifyId(self.made)) {
            self.made = self.made.wrapping_add(1);
        }
        let id = InotifyId(self.made);
        self.made = self.made.wrapping_add(1);
        self.instances.insert(id, Inotify::default());
        id
    }

    /// Removes an instance that nobody has open any more.
    pub fn remove(&mut self, id: InotifyId) {
        self.instances.remove(&id);
    }

    /// An instance.
    #[must_use]
    pub fn get(&self, id: InotifyId) -> Option<&Inotify> {
        self.instances.get(&id)
    }

    /// An instance, to be changed.
    ///
    /// # Errors
    /// `EBADF`: there is none, which no open file should say.
    pub fn get_mut(&mut self, id: InotifyId) -> Result<&mut Inotify, Errno> {
        self.instances.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Whether nobody watches anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instances.values().all(|instance| instance.watches.is_empty())
    }

    /// Whether somebody watches a file.
    #[must_use]
    pub fn has(&self, file: FileKey) -> bool {
        self.instances.values().any(|instance| instance.watches.values().any(|watch| watch.file == file))
    }

    /// A number that ties the two ends of a move together.
    pub fn cookie(&mut self) -> u32 {
        self.cookie = self.cookie.wrapping_add(1).max(1);
        self.cookie
    }

    /// Tells who watches a file that something happened to it, or to a name in it.
    pub fn happened(&mut self, file: FileKey, mask: u32, cookie: u32, name: &[u8]) {
        self.instances.values_mut().for_each(|instance| instance.happened(file, mask, cookie, name));
    }

    /// Tells who watches a file that it is gone for good.
    pub fn gone(&mut self, file: FileKey) {
        self.instances.values_mut().for_each(|instance| instance.gone(file));
    }
}

#[cfg(test)]
mod tests {
    use super::{Inotify, event};
    use crate::errno::Errno;

    #[test]
    fn events_are_read_whole_and_the_same_ones_once() {
        let mut inotify = Inotify::default();
        assert_eq!((inotify.watch((1, 1), event::MODIFY), inotify.watch((1, 2), event::ALL)), (Ok(1), Ok(2)));
        assert_eq!(inotify.take(100), Err(Errno::EAGAIN));
        for (file, mask, name) in
            [(1, event::MODIFY, &b""[..]), (1, event::OPEN, b""), (1, event::MODIFY, b""), (2, event::CREATE, b"name")]
        {
            inotify.happened((1, file), mask, 0, name);
        }
        assert_eq!((inotify.waiting(), inotify.take(15)), (48, Err(Errno::EINVAL)));
        assert_eq!(inotify.take(40).map(|bytes| bytes.len()), Ok(16));
        let bytes = inotify.take(40).expect("one is left");
        assert_eq!((bytes[0], bytes[5], bytes[12], &bytes[16..22]), (2, 1, 16, &b"name\0\0"[..]));
        inotify.gone((1, 2));
        assert_eq!((inotify.waiting(), inotify.remove(2)), (32, Err(Errno::EINVAL)));
    }

    #[test]
    fn what_is_too_much_is_said_to_be_lost() {
        let mut inotify = Inotify::default();
        inotify.watch((1, 1), event::ALL).expect("there is room");
        for round in 0..20_000 {
            inotify.happened((1, 1), event::CREATE, round, &[]);
        }
        let bytes = inotify.take(usize::MAX).expect("there are many");
        assert_eq!((bytes.len(), &bytes[bytes.len() - 16..][..8]), (16 * 16_385, &[0xff, 0xff, 0xff, 0xff, 0, 0x40, 0, 0][..]));
    }
}
