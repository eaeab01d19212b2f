// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advisory locks: those of whole open files (`flock`), and those of byte ranges, which belong to processes (`F_SETLK`) or to open files
//! (`F_OFD_SETLK`).
//!
//! The two kinds are independent. Nothing here waits. A request that conflicts with a lock gets that lock's owner. It can register as
//! waiting for the owner, so that deadlocks are detected.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::errno::Errno;

/// The last byte that a lock can cover.
pub const LAST_BYTE: u64 = i64::MAX as u64;
/// Upper limit on the locks of one file, of either kind.
const LOCKS_MAX: usize = 1 << 16;

/// Which file: the device it lies on, and its number there.
pub type FileKey = (u64, u64);

/// The owner of a lock (`fl_owner` of Linux's `struct file_lock`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockOwner {
    /// A process, by its number.
    Process(u32),
    /// An open file, by its number.
    OpenFile(usize),
}

/// The access that a lock denies to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
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

    /// The range of a `struct flock`: so many bytes (0: to the end, negative: before it) from `start` on, relative to `base`.
    ///
    /// # Errors
    /// `EINVAL`: it begins before the file. `EOVERFLOW`: it ends beyond the maximum file size.
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

    /// Its length in bytes, in the format of `struct flock`.
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
    /// Its owner.
    pub owner: LockOwner,
    /// The access that it denies to others.
    pub access: LockMode,
    /// Its byte range.
    pub range: Range,
}

impl Lock {
    fn stops(&self, other: &Lock) -> bool {
        let both_read = self.access == LockMode::Read && other.access == LockMode::Read;
        self.owner != other.owner && !both_read && self.range.overlaps(other.range)
    }
}

/// The locks of one kind on one file: grouped by owner, sorted by range within each, without overlapping or equal adjacent ranges.
#[derive(Clone, Debug, Default)]
struct List(Vec<Lock>);

impl List {
    fn conflict(&self, wanted: &Lock) -> Option<Lock> {
        self.0.iter().find(|lock| lock.stops(wanted)).copied()
    }

    /// Replaces an owner's locks on a range; `None`: unlocks it.
    fn set(&mut self, owner: LockOwner, range: Range, access: Option<LockMode>) -> Result<(), Errno> {
        // Unlocking the middle of a lock splits it in two.
        self.0.try_reserve(2).map_err(|_| Errno::ENOLCK)?;
        if access.is_some() && self.0.len() + 2 > LOCKS_MAX {
            return Err(Errno::ENOLCK);
        }
        let start = self.0.iter().position(|lock| lock.owner == owner).unwrap_or(self.0.len());
        let count = self.0[start..].iter().take_while(|lock| lock.owner == owner).count();
        let mut pieces: Vec<Lock> = Vec::with_capacity(count + 2);
        for lock in self.0.drain(start..start + count) {
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
        self.0.splice(start..start, pieces);
        Ok(())
    }

    fn release(&mut self, owner: LockOwner) {
        self.0.retain(|lock| lock.owner != owner);
    }
}

/// The locks on one file.
#[derive(Clone, Debug, Default)]
struct FileLocks {
    ranges: List,
    whole: List,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockScope {
    /// Byte ranges.
    Ranges,
    /// Whole open files.
    WholeFile,
}

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    files: BTreeMap<FileKey, FileLocks>,
    /// The owner that each waiting owner waits for.
    waiting: BTreeMap<LockOwner, LockOwner>,
}

impl Locks {
    /// Whether there are no locks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The first conflicting lock.
    #[must_use]
    pub fn conflict(&self, file: FileKey, kind: LockScope, wanted: &Lock) -> Option<Lock> {
        let locks = self.files.get(&file)?;
        match kind {
            LockScope::Ranges => locks.ranges.conflict(wanted),
            LockScope::WholeFile => locks.whole.conflict(wanted),
        }
    }

    /// Sets a lock, or returns the owner of a conflicting one.
    ///
    /// # Errors
    /// `ENOLCK`: there are too many.
    pub fn lock(&mut self, file: FileKey, kind: LockScope, wanted: Lock) -> Result<Option<LockOwner>, Errno> {
        if let Some(lock) = self.conflict(file, kind, &wanted) {
            return Ok(Some(lock.owner));
        }
        self.set(file, kind, wanted.owner, wanted.range, Some(wanted.access)).map(|()| None)
    }

    /// Removes an owner's locks on a range. Returns whether there were any.
    ///
    /// # Errors
    /// `ENOLCK`: splitting a lock would exceed the limit.
    pub fn unlock(&mut self, file: FileKey, kind: LockScope, owner: LockOwner, range: Range) -> Result<bool, Errno> {
        let Some(locks) = self.files.get(&file) else { return Ok(false) };
        let list = if kind == LockScope::Ranges { &locks.ranges } else { &locks.whole };
        if !list.0.iter().any(|lock| lock.owner == owner && lock.range.overlaps(range)) {
            return Ok(false);
        }
        self.set(file, kind, owner, range, None).map(|()| true)
    }

    fn set(&mut self, file: FileKey, kind: LockScope, owner: LockOwner, range: Range, access: Option<LockMode>) -> Result<(), Errno> {
        let locks = self.files.entry(file).or_default();
        let list = if kind == LockScope::Ranges { &mut locks.ranges } else { &mut locks.whole };
        let result = list.set(owner, range, access);
        self.tidy(file);
        result
    }

    /// Releases all locks of an owner on a file: a process's when it closes a descriptor of the file, an open file's at its last close.
    pub fn release(&mut self, file: FileKey, owner: LockOwner) {
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

    /// Records that `waiter` waits for a lock of `holder`.
    ///
    /// # Errors
    /// `EDEADLK`: the holder waits for the waiter, directly or through others.
    pub fn wait(&mut self, waiter: LockOwner, holder: LockOwner) -> Result<(), Errno> {
        let mut last = holder;
        // The chain has no cycle, because none is ever added.
        while let Some(next) = self.waiting.get(&last) {
            if *next == waiter {
                return Err(Errno::EDEADLK);
            }
            last = *next;
        }
        self.waiting.insert(waiter, holder);
        Ok(())
    }

    /// Removes a waiting owner.
    pub fn stop_waiting(&mut self, waiter: LockOwner) {
        self.waiting.remove(&waiter);
    }
}

#[cfg(test)]
mod tests;
