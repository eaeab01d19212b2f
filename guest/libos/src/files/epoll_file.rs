// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files as `epoll` sees them: their state, and which of them may watch which.

use alloc::vec::Vec;

use pando_rt::clock;

use super::edge::EventTimes;
use super::epoll::{CollectedEvents, Epoll, EpollId, Interest, Key, NESTING_MAX, ReadyState};
use super::file_operations::FileOperations;
use super::poll::READING;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::event_time;
use crate::signals::SignalSet;
use crate::uapi::{EPOLLET, EPOLLEXCLUSIVE, EPOLLWAKEUP, O_RDWR, POLLERR, POLLHUP, POLLIN, POLLOUT};
use crate::wait::Channel;

/// An operation of `epoll_ctl` on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpollOperation {
    /// Adds it.
    Add(Interest),
    /// Removes it.
    Remove,
    /// Changes it.
    Modify(Interest),
}

impl FileOperations for EpollId {
    fn link_text(&self, _files: &Files, _file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(b"anon_inode:[eventpoll]".to_vec())
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        files.epoll_ready(*self)
    }

    fn add_channels(&self, files: &Files, number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Open(number));
        files.add_channels_of_epoll(*self, channels);
    }

    fn changed_channel(&self, number: usize) -> Option<Channel> {
        Some(Channel::Open(number))
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.epolls.get(*self).map_or_else(EventTimes::default, |epoll| epoll.event_times(|key| files.answer(key.file)))
    }

    fn polls_console(&self, files: &Files, _file: &OpenFile) -> bool {
        files.epoll_asks_input(*self)
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        files.epolls.remove(*self);
        Vec::new()
    }
}

impl Files {
    /// Creates an epoll instance. Returns its descriptor.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn create_epoll(&mut self, close_on_exec: bool) -> Result<u64, Errno> {
        let id = self.epolls.create();
        self.insert(OpenFile::new(id, O_RDWR), close_on_exec)
    }

    /// The epoll instance of a descriptor.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: it is none.
    pub fn epoll(&self, fd: u64) -> Result<EpollId, Errno> {
        self.raw_file(fd)?.downcast().ok_or(Errno::EINVAL)
    }

    /// Changes an item of an instance. `change` fails if its argument cannot be read, or to cancel the call.
    ///
    /// # Errors
    /// Those of `epoll_ctl`.
    pub fn control_epoll(&mut self, epoll: u64, fd: u64, change: impl FnOnce() -> Result<EpollOperation, Errno>) -> Result<(), Errno> {
        let (watcher, key) = (self.index(epoll)?, Key { file: self.index(fd)?, fd: fd as u32 });
        let file = self.raw_file(fd)?;
        if file.is_path() || self.raw_file(epoll)?.is_path() {
            return Err(Errno::EBADF);
        }
        if !file.operations().is_pollable() {
            return Err(Errno::EPERM);
        }
        let id = self.epoll(epoll)?;
        if watcher == key.file {
            return Err(Errno::EINVAL);
        }
        let inner = file.downcast::<EpollId>();
        let change = change()?;
        check_exclusive(change, inner)?;
        if let (EpollOperation::Add(_), Some(inner)) = (change, inner) {
            let below = self.nesting(inner, id, 0).ok_or(Errno::ELOOP)?;
            if below + 1 + self.nesting_above(id, 0) > NESTING_MAX {
                return Err(Errno::ELOOP);
            }
        }
        let answer = self.answer(key.file);
        self.with_epoll(id, |epoll, _| match change {
            EpollOperation::Add(interest) => epoll.add(key, interest, answer),
            EpollOperation::Remove => epoll.remove(key),
            EpollOperation::Modify(interest) => epoll.change(key, interest, answer),
        })?;
        // Its waiters now depend on other files.
        self.note_change(epoll);
        Ok(())
    }

    /// Passes up to `max` events of an instance to `give`. Returns how many.
    ///
    /// # Errors
    /// `EINVAL`; that of `give`.
    pub fn collect_epoll(
        &mut self,
        id: EpollId,
        max: usize,
        give: impl FnMut(usize, Interest) -> Result<(), Errno>,
    ) -> Result<CollectedEvents, Errno> {
        let mut exclusive = Vec::new();
        let delivered = self.with_epoll(id, |epoll, files| {
            epoll.collect(max, |key| files.answer(key.file), |file, moment| exclusive.push((file, moment)), give)
        });
        exclusive.into_iter().for_each(|(file, moment)| self.epolls.set_last_exclusive(file, moment));
        delivered
    }

    fn with_epoll<T>(&mut self, id: EpollId, act: impl FnOnce(&mut Epoll, &Files) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut epoll = self.epolls.take(id)?;
        let result = act(&mut epoll, self);
        self.epolls.put(id, epoll);
        result
    }

    /// How deep an instance watches others. `None`: `above` is among them, or it is too deep.
    fn nesting(&self, id: EpollId, above: EpollId, depth: usize) -> Option<usize> {
        if id == above || depth > NESTING_MAX {
            return None;
        }
        let Some(epoll) = self.epolls.get(id) else { return Some(0) };
        epoll.files().filter_map(|file| self.epoll_of(file)).try_fold(0, |deepest, inner| {
            let below = self.nesting(inner, above, depth + 1)?;
            Some(deepest.max(below + 1))
        })
    }

    /// How deep an instance is watched by others.
    fn nesting_above(&self, id: EpollId, depth: usize) -> usize {
        if depth > NESTING_MAX {
            return depth;
        }
        let watches =
            |other: EpollId| self.epolls.get(other).is_some_and(|epoll| epoll.files().any(|file| self.epoll_of(file) == Some(id)));
        let above = self.epolls.ids().filter(|other| watches(*other)).map(|other| self.nesting_above(other, depth + 1) + 1);
        above.max().unwrap_or_default()
    }

    fn epoll_of(&self, file: usize) -> Option<EpollId> {
        self.open.get(file)?.0.downcast()
    }

    /// The current state of an open file.
    fn answer(&self, number: usize) -> ReadyState {
        let Some((file, _)) = self.open.get(number) else { return ReadyState::default() };
        ReadyState {
            ready: file.operations().poll(self, file),
            event_times: self.event_times_of(file),
            last_exclusive: self.epolls.last_exclusive(number),
        }
    }

    /// When an open file last became ready.
    fn event_times_of(&self, file: &OpenFile) -> EventTimes {
        file.operations().event_times(self, file)
    }

    /// Whether a wait of this instance would return events.
    fn epoll_ready(&self, id: EpollId) -> u16 {
        let is_ready = self.epolls.get(id).is_some_and(|epoll| epoll.is_ready(|key| self.answer(key.file)));
        if is_ready { READING } else { 0 }
    }

    /// Adds the channels of all files that an instance watches.
    fn add_channels_of_epoll(&self, id: EpollId, channels: &mut Vec<Channel>) {
        for file in self.epolls.get(id).into_iter().flat_map(Epoll::files) {
            self.add_channels(file, channels);
        }
    }

    /// Whether an instance's readiness depends on the console's input.
    #[must_use]
    pub fn epoll_asks_input(&self, id: EpollId) -> bool {
        let is_input = |file: usize| self.open.get(file).is_some_and(|(file, _)| self.is_input(file));
        self.epolls.get(id).is_some_and(|epoll| epoll.files().any(is_input))
    }

    /// Records whether the console's input can be read.
    pub fn note_input(&mut self, ready: bool) {
        self.input = if ready { self.input.or_else(|| Some(EventTimes::of_input(event_time::next_event_time()))) } else { None };
    }

    /// Records that bytes may have arrived at the console's input.
    pub fn note_more_input(&mut self) {
        // The next check records that it became readable.
        self.input = None;
    }

    /// Records that the cell continues as a clone, whose console is another.
    pub fn note_clone(&mut self) {
        self.cloned.input();
        self.note_more_input();
    }

    /// Records the pending signals, and when the last one arrived.
    pub fn note_signals(&mut self, pending: SignalSet, last: u64) {
        self.signals = (pending, EventTimes::of_input(last));
    }

    /// Records expired timers.
    pub fn note_time(&mut self) {
        if self.timers.next().is_some() {
            self.timers.expire(clock::now());
        }
    }
}

/// Checks that an exclusive item is allowed (`EPOLLEXCLUSIVE`).
fn check_exclusive(change: EpollOperation, inner: Option<EpollId>) -> Result<(), Errno> {
    const ALLOWED: u32 = (POLLIN | POLLOUT | POLLERR | POLLHUP) as u32 | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
    let is_wrong = match change {
        EpollOperation::Add(Interest { events, .. }) => events & EPOLLEXCLUSIVE != 0 && (inner.is_some() || events & !ALLOWED != 0),
        EpollOperation::Modify(Interest { events, .. }) => events & EPOLLEXCLUSIVE != 0,
        EpollOperation::Remove => false,
    };
    if is_wrong { Err(Errno::EINVAL) } else { Ok(()) }
}
