// SPDX-License-Identifier: MIT OR Apache-2.0
//! Semaphore sets: several semaphores change at once or not at all, and a process's changes may be undone when it ends.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::errno::Errno;
use crate::pid::Pid;
use crate::uapi::{IPC_NOWAIT, SEM_UNDO};

/// Upper limit on a semaphore's value.
pub const VALUE_MAX: i32 = 32_767;
/// Upper limit on the semaphores of a set.
pub const SEMAPHORES_MAX: usize = 32_000;

/// A semaphore.
#[derive(Clone, Copy, Debug, Default)]
pub struct Semaphore {
    /// Its value.
    pub value: i32,
    /// The process that changed it last.
    pub changed_by: Pid,
}

/// An operation on a semaphore: add, subtract an available amount, or wait for zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreOperation {
    /// The semaphore's index in the set.
    pub index: u16,
    /// The number to add; 0: wait until the value is zero.
    pub change: i16,
    /// `IPC_NOWAIT` and `SEM_UNDO`.
    pub flags: i16,
}

/// The result of a list of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// All were done.
    Done,
    /// None was done: this one has to wait.
    Waits(SemaphoreOperation),
}

/// A set of semaphores.
#[derive(Debug)]
pub struct Semaphores {
    /// The semaphores.
    pub all: Vec<Semaphore>,
    /// When they were operated on last, in seconds since 1970; 0: never.
    pub operated: u64,
    /// The numbers to add for each process when it ends.
    undone: BTreeMap<Pid, Vec<i32>>,
}

impl Semaphores {
    /// A set of so many semaphores of value zero.
    #[must_use]
    pub fn new(count: usize) -> Semaphores {
        Semaphores { all: alloc::vec![Semaphore::default(); count], operated: 0, undone: BTreeMap::new() }
    }

    /// Does all operations for a process, or none.
    ///
    /// # Errors
    /// `ERANGE`: a value would exceed its limit. `EAGAIN`: an operation would have to wait, but may not. `EFBIG`: there is no such
    /// semaphore.
    pub fn attempt(&mut self, operations: &[SemaphoreOperation], process: Pid) -> Result<Attempt, Errno> {
        // Several operations may name one semaphore, so each sees the effect of those before it.
        let mut values: BTreeMap<u16, (i32, i32)> = BTreeMap::new();
        for operation in operations {
            let index = usize::from(operation.index);
            let before = (self.all.get(index).ok_or(Errno::EFBIG)?.value, self.undone.get(&process).map_or(0, |undone| undone[index]));
            let (value, undone) = values.entry(operation.index).or_insert(before);
            let after = *value + i32::from(operation.change);
            if after < 0 || operation.change == 0 && *value != 0 {
                return if operation.flags & IPC_NOWAIT as i16 != 0 { Err(Errno::EAGAIN) } else { Ok(Attempt::Waits(*operation)) };
            }
            if after > VALUE_MAX {
                return Err(Errno::ERANGE);
            }
            *value = after;
            if operation.flags & SEM_UNDO != 0 {
                *undone -= i32::from(operation.change);
                if !(-VALUE_MAX - 1..=VALUE_MAX).contains(undone) {
                    return Err(Errno::ERANGE);
                }
            }
        }
        for (index, (value, undone)) in values {
            let index = usize::from(index);
            self.all[index] = Semaphore { value, changed_by: process };
            if undone != 0 || self.undone.contains_key(&process) {
                self.undone.entry(process).or_insert_with(|| alloc::vec![0; self.all.len()])[index] = undone;
            }
        }
        Ok(Attempt::Done)
    }

    /// Sets semaphores from `first` on, and drops the pending undo of earlier operations on them.
    pub fn set(&mut self, first: usize, values: &[i32], process: Pid) {
        let range = first..first + values.len();
        for undone in self.undone.values_mut() {
            undone[range.clone()].fill(0);
        }
        for (semaphore, value) in self.all[range].iter_mut().zip(values) {
            *semaphore = Semaphore { value: *value, changed_by: process };
        }
    }

    /// Undoes the operations of a process that ends. Returns whether there were any.
    pub fn undo(&mut self, process: Pid) -> bool {
        let Some(undone) = self.undone.remove(&process) else { return false };
        for (semaphore, undone) in self.all.iter_mut().zip(undone).filter(|(_, undone)| *undone != 0) {
            *semaphore = Semaphore { value: (semaphore.value + undone).clamp(0, VALUE_MAX), changed_by: process };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Attempt, SemaphoreOperation, Semaphores, VALUE_MAX};
    use crate::errno::Errno;
    use crate::uapi::{IPC_NOWAIT, SEM_UNDO};

    fn operation(index: u16, change: i16, flags: i16) -> SemaphoreOperation {
        SemaphoreOperation { index, change, flags }
    }

    #[test]
    fn all_is_done_or_nothing() {
        let mut set = Semaphores::new(2);
        let waits = operation(1, -1, 0);
        assert_eq!(set.attempt(&[operation(0, 3, 0), waits], 5), Ok(Attempt::Waits(waits)));
        assert_eq!(set.attempt(&[operation(0, 3, 0), operation(1, -1, IPC_NOWAIT as i16)], 5), Err(Errno::EAGAIN));
        assert_eq!(set.attempt(&[operation(0, 3, 0), operation(2, 1, 0)], 5), Err(Errno::EFBIG));
        assert_eq!((set.all[0].value, set.all[0].changed_by), (0, 0));
        assert_eq!(set.attempt(&[operation(0, 3, 0), operation(0, -2, 0), operation(1, 0, 0)], 5), Ok(Attempt::Done));
        assert_eq!((set.all[0].value, set.all[1].changed_by), (1, 5));
        assert_eq!(set.attempt(&[operation(0, i16::MAX, 0)], 5), Err(Errno::ERANGE));
    }

    #[test]
    fn semaphore_adjustments_are_undone_at_exit() {
        let mut set = Semaphores::new(2);
        set.set(0, &[4, 4], 1);
        assert_eq!(set.attempt(&[operation(0, -3, SEM_UNDO), operation(1, -1, SEM_UNDO)], 7), Ok(Attempt::Done));
        assert_eq!(set.attempt(&[operation(0, 2, SEM_UNDO)], 8), Ok(Attempt::Done));
        set.set(1, &[2], 1);
        assert_eq!((set.undo(7), set.undo(7)), (true, false));
        assert_eq!((set.all[0].value, set.all[1].value), (6, 2));
        set.set(0, &[1], 1);
        assert!(set.undo(8));
        assert_eq!(set.all[0].value, 1);
        set.set(0, &[VALUE_MAX], 1);
        assert_eq!(set.attempt(&[operation(0, -5, SEM_UNDO)], 9), Ok(Attempt::Done));
        assert_eq!(set.attempt(&[operation(0, 3, 0)], 1), Ok(Attempt::Done));
        assert!(set.undo(9));
        assert_eq!(set.all[0].value, VALUE_MAX);
    }
}
