// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advisory locks: those of whole open files (`flock`), and those of ranges of bytes, which belong to processes (`F_SETLK`) or to open files (`F_OFD_SETLK`).
//!
//! The two kinds do not see each other. Nothing here waits: who finds another's lock in the way is told whose it is, and may say that it waits for that owner, so that
//! a circle of processes that wait for each other is found.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::errno::Errno;

/// The last byte that a lock can cover.
pub const LAST_BYTE: u64 = i64::MAX as u64;
/// Locks on one file, of either kind.
const LOCKS_MAX: usize = 1 << 16;

/// Which file: the device it lies on, and its number there.
pub type FileKey = (u32, u64);

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A process, by its number.
    Process(u32),
    /// An open file, by its number.
    OpenFile(usize),
}

/// What a lock keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writing: others may lock for reading too.
    Read,
    /// Reading and writing.
    Write,
}

/// A range of bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl Range {
    /// The whole file.
    pub const ALL: Range = Range { first: 0, last: LAST_BYTE };

    /// The range that `struct flock` gives: so many bytes (0: all that follow, below 0: before it) from `start` on, counted from `base`.
    ///
    /// # Errors
    /// `EINVAL`: it begins before the file. `EOVERFLOW`: it ends where no file does.
    pub fn new(base: u64, start: i64, length: i64) -> Result<Range, Errno> {
        let base = i64::try_from(base).map_err(|_| Errno::EOVERFLOW)?;
        let start = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
        let (first, last) = match length {
            _ if start < 0 => return Err(Errno::EINVAL),
            0 => (start, i64::MAX),
            1.. => (start, start.checked_add(length - 1).ok_or(Errno::EOVERFLOW)?),
            _ => (start.checked_add(length).ok_or(Errno::EINVAL)?, start - 1),
        };
        if first < 0 { Err(Errno::EINVAL) } else { Ok(Range { first: first.cast_unsigned(), last: last.cast_unsigned() }) }
    }

    /// How many bytes, as `struct flock` says it.
    #[must_use]
    pub const fn length(self) -> u64 {
        if self.last == LAST_BYTE { 0 } else { self.last - self.first + 1 }
    }

    const fn overlaps(self, other: Range) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Whose it is.
    pub owner: Owner,
    /// What it keeps others from.
    pub access: Access,
    /// What it covers.
    pub range: Range,
}

impl Lock {
    fn stops(&self, other: &Lock) -> bool {
        let both_read = self.access == Access::Read && other.access == Access::Read;
        self.owner != other.owner && !both_read && self.range.overlaps(other.range)
    }
}

/// The locks of one kind on one file: together those of an owner, each owner's in the order of what they cover, none overlapping or touching one like it.
#[derive(Clone, Debug, Default)]
struct List(Vec<Lock>);

impl List {
    fn conflict(&self, wanted: &Lock) -> Option<Lock> {
        self.0.iter().find(|lock| lock.stops(wanted)).copied()
    }

    /// What a range is locked as by an owner becomes this; `None`: nothing.
    fn set(&mut self, owner: Owner, range: Range, access: Option<Access>) -> Result<(), Errno> {
        // An unlocked middle makes two of one.
        self.0.try_reserve(2).map_err(|_| Errno::ENOLCK)?;
        if access.is_some() && self.0.len() + 2 > LOCKS_MAX {
            return Err(Errno::ENOLCK);
        }
        let place = self.0.iter().position(|lock| lock.owner == owner).unwrap_or(self.0.len());
        let count = self.0[place..].iter().take_while(|lock| lock.owner == owner).count();
        let mut pieces: Vec<Lock> = Vec::with_capacity(count + 2);
        for lock in self.0.drain(place..place + count) {
            if !lock.range.overlaps(range) {
                pieces.push(lock);
                continue;
            }
            if lock.range.first < range.first {
                pieces.push(Lock { range: Range { last: range.first - 1, ..lock.range }, ..lock });
            }
            if lock.range.last > range.last {
                pieces.push(Lock { range: Range { first: range.last + 1, ..lock.range }, ..lock });
            }
        }
        pieces.extend(access.map(|access| Lock { owner, access, range }));
        pieces.sort_unstable_by_key(|lock| lock.range.first);
        pieces.dedup_by(|next, lock| {
            let touches = lock.access == next.access && lock.range.last + 1 == next.range.first;
            if touches {
                lock.range.last = next.range.last;
            }
            touches
        });
        self.0.splice(place..place, pieces);
        Ok(())
    }

    fn release(&mut self, owner: Owner) {
        self.0.retain(|lock| lock.owner != owner);
    }
}

/// The locks on one file.
#[derive(Clone, Debug, Default)]
struct FileLocks {
    ranges: List,
    whole: List,
}

/// Which kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of ranges.
    Ranges,
    /// Of whole open files.
    Whole,
}

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    files: BTreeMap<FileKey, FileLocks>,
    /// Who waits for whom.
    waiting: BTreeMap<Owner, Owner>,
}

impl Locks {
    /// Whether there is none at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The first lock that would be in the way.
    #[must_use]
    pub fn conflict(&self, file: FileKey, kind: Kind, wanted: &Lock) -> Option<Lock> {
        let locks = self.files.get(&file)?;
        match kind {
            Kind::Ranges => locks.ranges.conflict(wanted),
            Kind::Whole => locks.whole.conflict(wanted),
        }
    }

    /// Locks, unless another's lock is in the way, whose owner is returned.
    ///
    /// # Errors
    /// `ENOLCK`: there are too many.
    pub fn lock(&mut self, file: FileKey, kind: Kind, wanted: Lock) -> Result<Option<Owner>, Errno> {
        if let Some(lock) = self.conflict(file, kind, &wanted) {
            return Ok(Some(lock.owner));
        }
        self.set(file, kind, wanted.owner, wanted.range, Some(wanted.access)).map(|()| None)
    }

    /// Unlocks what an owner has locked of a range. Says whether there was anything.
    ///
    /// # Errors
    /// `ENOLCK`: what is left would be too many.
    pub fn unlock(&mut self, file: FileKey, kind: Kind, owner: Owner, range: Range) -> Result<bool, Errno> {
        let Some(locks) = self.files.get(&file) else { return Ok(false) };
        let list = if kind == Kind::Ranges { &locks.ranges } else { &locks.whole };
        if !list.0.iter().any(|lock| lock.owner == owner && lock.range.overlaps(range)) {
            return Ok(false);
        }
        self.set(file, kind, owner, range, None).map(|()| true)
    }

    fn set(&mut self, file: FileKey, kind: Kind, owner: Owner, range: Range, access: Option<Access>) -> Result<(), Errno> {
        let locks = self.files.entry(file).or_default();
        let list = if kind == Kind::Ranges { &mut locks.ranges } else { &mut locks.whole };
        let result = list.set(owner, range, access);
        self.tidy(file);
        result
    }

    /// Unlocks all that an owner has locked of a file: a process, because it closes one of its descriptors; an open file, because nobody has it any more.
    pub fn release(&mut self, file: FileKey, owner: Owner) {
        if let Some(locks) = self.files.get_mut(&file) {
            locks.ranges.release(owner);
            locks.whole.release(owner);
            self.tidy(file);
        }
    }

    fn tidy(&mut self, file: FileKey) {
        if self.files.get(&file).is_some_and(|locks| locks.ranges.0.is_empty() && locks.whole.0.is_empty()) {
            self.files.remove(&file);
        }
    }

    /// Takes note that a process waits for a lock's owner.
    ///
    /// # Errors
    /// `EDEADLK`: that one waits for it.
    pub fn wait(&mut self, who: Owner, for_whom: Owner) -> Result<(), Errno> {
        let mut last = for_whom;
        // A chain has no circle in it, for none was let in.
        while let Some(next) = self.waiting.get(&last) {
            if *next == who {
                return Err(Errno::EDEADLK);
            }
            last = *next;
        }
        self.waiting.insert(who, for_whom);
        Ok(())
    }

    /// Takes note that it does not wait any more.
    pub fn stop_waiting(&mut self, who: Owner) {
        self.waiting.remove(&who);
    }
}

#[cfg(test)]
mod tests;
