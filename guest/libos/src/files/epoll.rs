// SPDX-License-Identifier: MIT OR Apache-2.0
//! `epoll`: which open files somebody is interested in, and what there is to tell of them.
//!
//! An item is *queued* when something [has happened](super::pulse) to its file that it wants to know; what a wait returns is taken from the queued ones that are ready, oldest first.
//! Level-triggered items go to the end of the queue when they were told, edge-triggered ones leave it until something happens again. All of this asks others through closures, so
//! that it can be tested without any file.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::poll::{POLLERR, POLLHUP};
use super::pulse::{self, Pulse};
use crate::errno::Errno;

/// Bits of an item's events that say how it is told, not of what.
pub mod how {
    /// Wake one of those who wait.
    pub const EXCLUSIVE: u32 = 1 << 28;
    /// Keep the machine awake.
    pub const WAKE_UP: u32 = 1 << 29;
    /// Tell once, until the item is changed.
    pub const ONE_SHOT: u32 = 1 << 30;
    /// Tell of what happens, not of what is.
    pub const EDGE: u32 = 1 << 31;
    /// All of them.
    pub const ALL: u32 = EXCLUSIVE | WAKE_UP | ONE_SHOT | EDGE;
}

/// How deep instances may watch instances.
pub const NESTING_MAX: usize = 4;
/// Items of one instance.
const ITEMS_MAX: usize = 1 << 20;

/// What an item is about: an open file by its number, and the descriptor by which it was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The open file.
    pub file: usize,
    /// The descriptor.
    pub fd: u32,
}

/// What somebody wants to know of a file, and what to be told with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Events, as `poll` has them, and [how] to be told.
    pub events: u32,
    /// What comes back with them.
    pub data: u64,
}

/// What a file answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    /// What it is ready for.
    pub ready: u16,
    /// When that last changed.
    pub pulse: Pulse,
    /// The last moment of it that somebody who is woken alone was told of.
    pub taken: u64,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    interest: Interest,
    /// The last moment that was looked at.
    seen: u64,
    /// Since when it is in the queue.
    queued: Option<u64>,
}

impl Item {
    fn new(interest: Interest, answer: Answer) -> Item {
        let interest = Interest { events: interest.events | u32::from(POLLERR | POLLHUP), ..interest };
        let seen = pulse::moment();
        let mut item = Item { interest, seen, queued: None };
        item.queued = (item.ready(answer) != 0).then_some(seen);
        item
    }

    fn wanted(&self) -> u16 {
        (self.interest.events & !how::ALL) as u16
    }

    fn ready(&self, answer: Answer) -> u16 {
        answer.ready & self.wanted()
    }

    /// Whether one of those who wait is enough.
    fn is_exclusive(&self) -> bool {
        self.interest.events & how::EXCLUSIVE != 0
    }

    /// Since when it belongs into the queue.
    fn since(&self, answer: Answer) -> Option<u64> {
        let last = answer.pulse.last(self.wanted());
        let is_others = self.is_exclusive() && last <= answer.taken && answer.pulse.last_for_all() <= self.seen;
        let has_happened = self.wanted() != 0 && last > self.seen && !is_others;
        self.queued.or_else(|| has_happened.then_some(last))
    }

    /// What is left of it when it has been told.
    fn tell(&mut self) {
        let is_edge = self.interest.events & how::EDGE != 0;
        let is_once = self.interest.events & how::ONE_SHOT != 0;
        if is_once {
            self.interest.events &= how::ALL;
        }
        self.queued = (!is_edge && !is_once).then(pulse::moment);
    }
}

/// An instance of epoll.
#[derive(Debug, Default)]
pub struct Epoll {
    items: BTreeMap<Key, Item>,
    /// When an item was last added or changed that was ready.
    changed: u64,
}

impl Epoll {
    /// Adds an item. `answer`: what its file says now.
    ///
    /// # Errors
    /// `EEXIST`: it is there. `ENOSPC`: there are too many.
    pub fn add(&mut self, key: Key, interest: Interest, answer: Answer) -> Result<(), Errno> {
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
    /// `ENOENT`: it is not there. `EINVAL`: it is exclusive, which stays as it is.
    pub fn change(&mut self, key: Key, interest: Interest, answer: Answer) -> Result<(), Errno> {
        let item = self.items.get(&key).ok_or(Errno::ENOENT)?;
        if item.interest.events & how::EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        self.put(key, interest, answer);
        Ok(())
    }

    fn put(&mut self, key: Key, interest: Interest, answer: Answer) {
        let item = Item::new(interest, answer);
        self.changed = item.queued.unwrap_or(self.changed);
        self.items.insert(key, item);
    }

    /// Removes an item.
    ///
    /// # Errors
    /// `ENOENT`: it is not there.
    pub fn remove(&mut self, key: Key) -> Result<(), Errno> {
        self.items.remove(&key).map(|_| ()).ok_or(Errno::ENOENT)
    }

    /// Forgets a file that nobody has open any more.
    pub fn forget(&mut self, file: usize) {
        let range = Key { file, fd: 0 }..=Key { file, fd: u32::MAX };
        let gone: Vec<Key> = self.items.range(range).map(|(key, _)| *key).collect();
        for key in gone {
            self.items.remove(&key);
        }
    }

    /// The files of its items, one after the other, some more than once.
    pub fn files(&self) -> impl Iterator<Item = usize> {
        self.items.keys().map(|key| key.file)
    }

    /// Whether a wait would return something.
    pub fn is_ready(&self, ask: impl Fn(Key) -> Answer) -> bool {
        self.items.iter().any(|(key, item)| {
            let answer = ask(*key);
            item.ready(answer) != 0 && item.since(answer).is_some()
        })
    }

    /// When it last became ready itself, for who waits for it.
    pub fn pulse(&self, ask: impl Fn(Key) -> Answer) -> Pulse {
        let woken = self.items.iter().filter(|(_, item)| item.wanted() != 0);
        let last = woken.map(|(key, item)| ask(*key).pulse.last(item.wanted())).max();
        Pulse::of_input(self.changed.max(last.unwrap_or_default()))
    }

    /// Gives up to `max` events, each with what comes with it. Returns how many. `take`: hears which moments of which files are told to this instance alone.
    ///
    /// # Errors
    /// That of `give`, if it took none.
    pub fn collect(
        &mut self,
        max: usize,
        ask: impl Fn(Key) -> Answer,
        mut take: impl FnMut(usize, u64),
        mut give: impl FnMut(usize, Interest) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        let mut queue = Vec::new();
        for (key, item) in &mut self.items {
            let answer = ask(*key);
            let was_queued = item.queued.is_some();
            item.queued = item.since(answer);
            if item.is_exclusive() && item.queued.is_some() && !was_queued && item.ready(answer) != 0 {
                take(key.file, answer.pulse.last(item.wanted()));
            }
            item.seen = item.seen.max(answer.pulse.last(u16::MAX));
            if let Some(since) = item.queued {
                queue.push((since, *key, item.ready(answer)));
            }
        }
        queue.sort_unstable_by_key(|(since, key, _)| (*since, *key));
        let mut given = 0;
        for (_, key, ready) in queue {
            let Some(item) = self.items.get_mut(&key) else { continue };
            if ready == 0 {
                item.queued = None;
            } else if given < max {
                match give(given, Interest { events: ready.into(), data: item.interest.data }) {
                    Ok(()) => given += 1,
                    Err(_) if given > 0 => break,
                    Err(error) => return Err(error),
                }
                item.tell();
            } else {
                break;
            }
        }
        Ok(given)
    }
}

/// Which instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpollId(u32);

/// All instances.
#[derive(Debug, Default)]
pub struct Epolls {
    epolls: BTreeMap<EpollId, Epoll>,
    /// The last moment of each file that an instance was told of alone.
    taken: BTreeMap<usize, u64>,
    made: u32,
}

impl Epolls {
    /// Makes an instance without items.
    pub fn create(&mut self) -> EpollId {
        // Numbers come round after 2^32 instances; those that live on are passed over.
        while self.epolls.contains_key(&EpollId(self.made)) {
            self.made = self.made.wrapping_add(1);
        }
        let id = EpollId(self.made);
        self.made = self.made.wrapping_add(1);
        self.epolls.insert(id, Epoll::default());
        id
    }

    /// Removes an instance that nobody has open any more.
    pub fn remove(&mut self, id: EpollId) {
        self.epolls.remove(&id);
    }

    /// Forgets a file that nobody has open any more.
    pub fn forget(&mut self, file: usize) {
        self.taken.remove(&file);
        self.epolls.values_mut().for_each(|epoll| epoll.forget(file));
    }

    /// An instance. `None`: there is none, or it is being asked.
    #[must_use]
    pub fn get(&self, id: EpollId) -> Option<&Epoll> {
        self.epolls.get(&id)
    }

    /// All of them, but for one that is being asked.
    pub fn ids(&self) -> impl Iterator<Item = EpollId> {
        self.epolls.keys().copied()
    }

    /// The last moment of a file that an instance was told of alone.
    #[must_use]
    pub fn taken(&self, file: usize) -> u64 {
        self.taken.get(&file).copied().unwrap_or_default()
    }

    /// Takes note that an instance is told of a moment of a file, and no other need be.
    pub fn take_moment(&mut self, file: usize, moment: u64) {
        self.taken.insert(file, moment);
    }

    /// Takes an instance out while it asks the files of its items.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub fn take(&mut self, id: EpollId) -> Result<Epoll, Errno> {
        self.epolls.remove(&id).ok_or(Errno::EINVAL)
    }

    /// Puts it back.
    pub fn put(&mut self, id: EpollId, epoll: Epoll) {
        self.epolls.insert(id, epoll);
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Epoll, Interest, Key, how};
    use crate::errno::Errno;
    use crate::files::poll::{POLLIN, READING};
    use crate::files::pulse::Pulse;
    use std::vec::Vec;

    const KEY: Key = Key { file: 3, fd: 3 };

    fn wanting(events: u32) -> Interest {
        Interest { events: u32::from(POLLIN) | events, data: 7 }
    }

    fn told(epoll: &mut Epoll, answer: Answer) -> Vec<(u32, u64)> {
        let mut told = Vec::new();
        let count = epoll.collect(
            10,
            |_| answer,
            |_, _| {},
            |_, Interest { events, data }| {
                told.push((events, data));
                Ok(())
            },
        );
        assert_eq!(count, Ok(told.len()));
        told
    }

    #[test]
    fn level_tells_what_is_edge_what_happens_and_one_shot_once() {
        let mut answer = Answer { ready: READING, pulse: Pulse::default(), taken: 0 };
        answer.pulse.input();
        let mut epoll = Epoll::default();
        epoll.add(KEY, wanting(0), answer).expect("it is not there");
        assert_eq!(epoll.add(KEY, wanting(0), answer), Err(Errno::EEXIST));
        assert_eq!((told(&mut epoll, answer).len(), told(&mut epoll, answer)), (1, std::vec![(1, 7)]));
        epoll.change(KEY, wanting(how::EDGE), answer).expect("it is there");
        assert_eq!((told(&mut epoll, answer).len(), told(&mut epoll, answer).len()), (1, 0));
        answer.pulse.output();
        assert_eq!(told(&mut epoll, answer).len(), 0, "it does not want to know");
        answer.pulse.input();
        assert_eq!((told(&mut epoll, answer).len(), told(&mut epoll, answer).len()), (1, 0));
        epoll.change(KEY, wanting(how::ONE_SHOT), answer).expect("it is there");
        assert_eq!(told(&mut epoll, answer).len(), 1);
        answer.pulse.input();
        assert_eq!(told(&mut epoll, answer).len(), 0);
        epoll.forget(KEY.file);
        assert_eq!(epoll.remove(KEY), Err(Errno::ENOENT));
    }

    #[test]
    fn what_one_was_told_alone_others_are_not() {
        let mut answer = Answer { ready: READING, pulse: Pulse::default(), taken: 0 };
        let mut epolls = [Epoll::default(), Epoll::default()];
        for epoll in &mut epolls {
            epoll.add(KEY, wanting(how::EXCLUSIVE | how::EDGE), Answer::default()).expect("it is not there");
        }
        answer.pulse.input();
        let mut taken = 0;
        let counts = epolls.each_mut().map(|epoll| {
            let answer = Answer { taken, ..answer };
            epoll.collect(10, |_| answer, |_, moment| taken = moment, |_, _| Ok(()))
        });
        assert_eq!(counts, [Ok(1), Ok(0)]);
        // That the other end is gone is told to all.
        answer.pulse.other();
        assert_eq!(epolls.each_mut().map(|epoll| told(epoll, Answer { taken: u64::MAX, ..answer }).len()), [1, 1]);
    }

    #[test]
    fn those_who_waited_longest_are_told_first() {
        let answer = Answer { ready: READING, pulse: Pulse::default(), taken: 0 };
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
            assert_eq!(count, Ok(2));
        }
        assert_eq!(order, [5, 3, 4, 5, 3, 4, 5, 3]);
        assert_eq!(epoll.collect(2, |_| answer, |_, _| {}, |_, _| Err(Errno::EFAULT)), Err(Errno::EFAULT));
    }
}
