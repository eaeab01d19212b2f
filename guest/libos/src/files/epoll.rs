// SPDX-License-Identifier: MIT OR Apache-2.0
//! `epoll`: the files of interest, and their pending events.
//!
//! An item is *queued* when a [relevant event](super::edge) of its file occurs. A wait returns the queued items that are ready, oldest
//! first. Afterwards, level-triggered items go to the end of the queue, and edge-triggered ones leave it until the next event. File state
//! is queried through closures, so that this can be tested without files.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::edge::EventTimes;
use crate::errno::Errno;
use crate::event_time;
use crate::uapi::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP, POLLERR, POLLHUP};

/// The bits of an item's events that control notification; the other bits are those of `poll`.
pub const EP_PRIVATE_BITS: u32 = EPOLLEXCLUSIVE | EPOLLWAKEUP | EPOLLONESHOT | EPOLLET;

/// Maximum nesting of epoll instances.
pub const NESTING_MAX: usize = 4;
/// Upper limit on the items of one instance.
const ITEMS_MAX: usize = 1 << 20;

/// The key of an item: the number of the open file, and the descriptor with which it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The open file.
    pub file: usize,
    /// The descriptor.
    pub fd: u32,
}

/// The events of interest of a file, and the data to return with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Events as in `poll`, and [how] to report them.
    pub events: u32,
    /// The data to return with them.
    pub data: u64,
}

/// The state of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadyState {
    /// The events for which it is ready.
    pub ready: u16,
    /// When that last changed.
    pub event_times: EventTimes,
    /// The latest of its events that was reported to an exclusive waiter.
    pub last_exclusive: u64,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    interest: Interest,
    /// The last event time that was examined.
    last_examined: u64,
    /// Since when it has been in the queue.
    queued: Option<u64>,
}

impl Item {
    fn new(interest: Interest, answer: ReadyState) -> Item {
        let interest = Interest { events: interest.events | u32::from(POLLERR | POLLHUP), ..interest };
        let now = event_time::next_event_time();
        let mut item = Item { interest, last_examined: now, queued: None };
        item.queued = (item.ready(answer) != 0).then_some(now);
        item
    }

    fn wanted(&self) -> u16 {
        (self.interest.events & !EP_PRIVATE_BITS) as u16
    }

    fn ready(&self, answer: ReadyState) -> u16 {
        answer.ready & self.wanted()
    }

    /// Whether it wakes only one waiter.
    fn is_exclusive(&self) -> bool {
        self.interest.events & EPOLLEXCLUSIVE != 0
    }

    /// The time since which it should be queued.
    fn since(&self, answer: ReadyState) -> Option<u64> {
        let last = answer.event_times.last(self.wanted());
        let is_others = self.is_exclusive() && last <= answer.last_exclusive && answer.event_times.last_for_all() <= self.last_examined;
        let has_happened = self.wanted() != 0 && last > self.last_examined && !is_others;
        self.queued.or_else(|| has_happened.then_some(last))
    }

    /// Updates it after a report: a one-shot item is disabled. Returns whether the report takes its event.
    fn notify(&mut self) -> bool {
        let is_edge = self.interest.events & EPOLLET != 0;
        let is_once = self.interest.events & EPOLLONESHOT != 0;
        if is_once {
            self.interest.events &= EP_PRIVATE_BITS;
        }
        self.queued = (!is_edge && !is_once).then(event_time::next_event_time);
        is_edge || is_once
    }
}

/// The events that a wait has passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectedEvents {
    /// How many.
    pub count: usize,
    /// Whether another wait does not return some of them again: they are edge-triggered or one-shot.
    pub takes: bool,
}

/// An instance of epoll.
#[derive(Debug, Default)]
pub struct Epoll {
    items: BTreeMap<Key, Item>,
    /// When a ready item was last added or changed.
    changed: u64,
}

impl Epoll {
    /// Adds an item. `answer`: the current state of its file.
    ///
    /// # Errors
    /// `EEXIST`: it exists. `ENOSPC`: there are too many.
    pub fn add(&mut self, key: Key, interest: Interest, answer: ReadyState) -> Result<(), Errno> {
        if self.items.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        if self.items.len() >= ITEMS_MAX {
            return Err(Errno::ENOSPC);
        }
        self.put(key, interest, answer);
        Ok(())
    }

    /// Changes an item.
    ///
    /// # Errors
    /// `ENOENT`: it does not exist. `EINVAL`: it is exclusive, which cannot be changed.
    pub fn change(&mut self, key: Key, interest: Interest, answer: ReadyState) -> Result<(), Errno> {
        let item = self.items.get(&key).ok_or(Errno::ENOENT)?;
        if item.interest.events & EPOLLEXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        self.put(key, interest, answer);
        Ok(())
    }

    fn put(&mut self, key: Key, interest: Interest, answer: ReadyState) {
        let item = Item::new(interest, answer);
        self.changed = item.queued.unwrap_or(self.changed);
        self.items.insert(key, item);
    }

    /// Removes an item.
    ///
    /// # Errors
    /// `ENOENT`: it does not exist.
    pub fn remove(&mut self, key: Key) -> Result<(), Errno> {
        self.items.remove(&key).map(|_| ()).ok_or(Errno::ENOENT)
    }

    /// Removes the items of a closed file.
    pub fn forget(&mut self, file: usize) {
        let range = Key { file, fd: 0 }..=Key { file, fd: u32::MAX };
        let keys: Vec<Key> = self.items.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            self.items.remove(&key);
        }
    }

    /// The files of its items in order, possibly repeated.
    pub fn files(&self) -> impl Iterator<Item = usize> {
        self.items.keys().map(|key| key.file)
    }

    /// Whether a wait would return events.
    pub fn is_ready(&self, ask: impl Fn(Key) -> ReadyState) -> bool {
        self.items.iter().any(|(key, item)| {
            let answer = ask(*key);
            item.ready(answer) != 0 && item.since(answer).is_some()
        })
    }

    /// When it last became ready itself, for its own waiters.
    pub fn event_times(&self, ask: impl Fn(Key) -> ReadyState) -> EventTimes {
        let woken = self.items.iter().filter(|(_, item)| item.wanted() != 0);
        let last = woken.map(|(key, item)| ask(*key).event_times.last(item.wanted())).max();
        EventTimes::of_input(self.changed.max(last.unwrap_or_default()))
    }

    /// Passes up to `max` events with their data to `give`. `take` receives the event times that are reported to this
    /// instance exclusively.
    ///
    /// # Errors
    /// That of `give`, if it took none.
    pub fn collect(
        &mut self,
        max: usize,
        ask: impl Fn(Key) -> ReadyState,
        mut take: impl FnMut(usize, u64),
        mut give: impl FnMut(usize, Interest) -> Result<(), Errno>,
    ) -> Result<CollectedEvents, Errno> {
        let mut queue = Vec::new();
        for (key, item) in &mut self.items {
            let answer = ask(*key);
            let was_queued = item.queued.is_some();
            item.queued = item.since(answer);
            if item.is_exclusive() && item.queued.is_some() && !was_queued && item.ready(answer) != 0 {
                take(key.file, answer.event_times.last(item.wanted()));
            }
            item.last_examined = item.last_examined.max(answer.event_times.last(u16::MAX));
            if let Some(since) = item.queued {
                queue.push((since, *key, item.ready(answer)));
            }
        }
        queue.sort_unstable_by_key(|(since, key, _)| (*since, *key));
        let mut delivered = CollectedEvents::default();
        for (_, key, ready) in queue {
            let Some(item) = self.items.get_mut(&key) else { continue };
            if ready == 0 {
                item.queued = None;
            } else if delivered.count < max {
                match give(delivered.count, Interest { events: ready.into(), data: item.interest.data }) {
                    Ok(()) => delivered.count += 1,
                    Err(_) if delivered.count > 0 => break,
                    Err(error) => return Err(error),
                }
                delivered.takes |= item.notify();
            } else {
                break;
            }
        }
        Ok(delivered)
    }
}

/// The number of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpollId(u32);

/// All instances.
#[derive(Debug, Default)]
pub struct Epolls {
    epolls: BTreeMap<EpollId, Epoll>,
    /// The latest event of each file that was reported exclusively.
    last_exclusive: BTreeMap<usize, u64>,
    next_id: u32,
}

impl Epolls {
    /// Creates an instance without items.
    pub fn create(&mut self) -> EpollId {
        // Numbers wrap around after 2^32 instances; those in use are skipped.
        while self.epolls.contains_key(&EpollId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = EpollId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.epolls.insert(id, Epoll::default());
        id
    }

    /// Removes a closed instance.
    pub fn remove(&mut self, id: EpollId) {
        self.epolls.remove(&id);
    }

    /// Drops the record of a closed file.
    pub fn forget(&mut self, file: usize) {
        self.last_exclusive.remove(&file);
        self.epolls.values_mut().for_each(|epoll| epoll.forget(file));
    }

    /// An instance. `None`: it does not exist, or is being polled.
    #[must_use]
    pub fn get(&self, id: EpollId) -> Option<&Epoll> {
        self.epolls.get(&id)
    }

    /// All instances except the one being polled.
    pub fn ids(&self) -> impl Iterator<Item = EpollId> {
        self.epolls.keys().copied()
    }

    /// The latest event of a file that was reported exclusively.
    #[must_use]
    pub fn last_exclusive(&self, file: usize) -> u64 {
        self.last_exclusive.get(&file).copied().unwrap_or_default()
    }

    /// Records that an event of a file is reported to one instance exclusively.
    pub fn set_last_exclusive(&mut self, file: usize, moment: u64) {
        self.last_exclusive.insert(file, moment);
    }

    /// Takes an instance out of the table while the files of its items are polled.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub fn take(&mut self, id: EpollId) -> Result<Epoll, Errno> {
        self.epolls.remove(&id).ok_or(Errno::EINVAL)
    }

    /// Puts an instance back.
    pub fn put(&mut self, id: EpollId, epoll: Epoll) {
        self.epolls.insert(id, epoll);
    }
}

#[cfg(test)]
mod tests {
    use super::{CollectedEvents, Epoll, Interest, Key, ReadyState};
    use crate::errno::Errno;
    use crate::files::edge::EventTimes;
    use crate::files::poll::READING;
    use crate::uapi::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, POLLIN};
    use std::vec::Vec;

    const KEY: Key = Key { file: 3, fd: 3 };

    fn wanting(events: u32) -> Interest {
        Interest { events: u32::from(POLLIN) | events, data: 7 }
    }

    fn reports(epoll: &mut Epoll, answer: ReadyState) -> Vec<(u32, u64)> {
        let mut reports = Vec::new();
        let count = epoll.collect(
            10,
            |_| answer,
            |_, _| {},
            |_, Interest { events, data }| {
                reports.push((events, data));
                Ok(())
            },
        );
        assert_eq!(count.map(|collected| collected.count), Ok(reports.len()));
        reports
    }

    #[test]
    fn level_reports_state_edge_reports_events_and_one_shot_reports_once() {
        let mut answer = ReadyState { ready: READING, event_times: EventTimes::default(), last_exclusive: 0 };
        answer.event_times.input();
        let mut epoll = Epoll::default();
        epoll.add(KEY, wanting(0), answer).expect("it is not there");
        assert_eq!(epoll.add(KEY, wanting(0), answer), Err(Errno::EEXIST));
        assert_eq!((reports(&mut epoll, answer).len(), reports(&mut epoll, answer)), (1, std::vec![(1, 7)]));
        epoll.change(KEY, wanting(EPOLLET), answer).expect("it is there");
        assert_eq!((reports(&mut epoll, answer).len(), reports(&mut epoll, answer).len()), (1, 0));
        answer.event_times.output();
        assert_eq!(reports(&mut epoll, answer).len(), 0, "it does not want to know");
        answer.event_times.input();
        assert_eq!((reports(&mut epoll, answer).len(), reports(&mut epoll, answer).len()), (1, 0));
        epoll.change(KEY, wanting(EPOLLONESHOT), answer).expect("it is there");
        assert_eq!(reports(&mut epoll, answer).len(), 1);
        answer.event_times.input();
        assert_eq!(reports(&mut epoll, answer).len(), 0);
        epoll.forget(KEY.file);
        assert_eq!(epoll.remove(KEY), Err(Errno::ENOENT));
    }

    #[test]
    fn exclusive_events_are_reported_to_one_epoll_only() {
        let mut answer = ReadyState { ready: READING, event_times: EventTimes::default(), last_exclusive: 0 };
        let mut epolls = [Epoll::default(), Epoll::default()];
        for epoll in &mut epolls {
            epoll.add(KEY, wanting(EPOLLEXCLUSIVE | EPOLLET), ReadyState::default()).expect("it is not there");
        }
        answer.event_times.input();
        let mut last_exclusive = 0;
        let counts = epolls.each_mut().map(|epoll| {
            let answer = ReadyState { last_exclusive, ..answer };
            epoll.collect(10, |_| answer, |_, moment| last_exclusive = moment, |_, _| Ok(()))
        });
        let (one, none) = (CollectedEvents { count: 1, takes: true }, CollectedEvents::default());
        assert_eq!(counts, [Ok(one), Ok(none)]);
        // A disconnect of the other end is reported to all.
        answer.event_times.other();
        assert_eq!(epolls.each_mut().map(|epoll| reports(epoll, ReadyState { last_exclusive: u64::MAX, ..answer }).len()), [1, 1]);
    }

    #[test]
    fn the_longest_ready_files_are_reported_first() {
        let answer = ReadyState { ready: READING, event_times: EventTimes::default(), last_exclusive: 0 };
        let mut epoll = Epoll::default();
        for fd in [5, 3, 4] {
            epoll.add(Key { file: fd as usize, fd }, Interest { events: 1, data: fd.into() }, answer).expect("it is not there");
        }
        let mut order = Vec::new();
        for _ in 0..4 {
            let count = epoll.collect(
                2,
                |_| answer,
                |_, _| {},
                |_, Interest { data, .. }| {
                    order.push(data);
                    Ok(())
                },
            );
            assert_eq!(count, Ok(CollectedEvents { count: 2, takes: false }));
        }
        assert_eq!(order, [5, 3, 4, 5, 3, 4, 5, 3]);
        assert_eq!(epoll.collect(2, |_| answer, |_, _| {}, |_, _| Err(Errno::EFAULT)), Err(Errno::EFAULT));
    }
}
