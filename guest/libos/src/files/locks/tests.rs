// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks against a model that records for every byte how each owner has locked it.

use super::{FileKey, LAST_BYTE, Lock, LockMode, LockOwner, LockScope, Locks, Range};
use crate::errno::Errno;
use proptest::prelude::*;
use std::vec::Vec;

const FILE: FileKey = (1, 2);
const BYTES: u64 = 24;
const OWNERS: [LockOwner; 4] = [LockOwner::Process(1), LockOwner::Process(2), LockOwner::OpenFile(1), LockOwner::OpenFile(2)];

/// How each owner has locked each byte; the last byte stands for all after it.
#[derive(Clone, Default)]
struct Model([[Option<LockMode>; BYTES as usize]; OWNERS.len()]);

impl Model {
    fn bytes(range: Range) -> impl Iterator<Item = usize> {
        (range.first..=range.last.min(BYTES - 1)).map(|byte| byte as usize)
    }

    fn is_free(&self, owner: usize, range: Range, access: LockMode) -> bool {
        let others = self.0.iter().enumerate().filter(|(other, _)| *other != owner);
        let stops = |lock: &Option<LockMode>| lock.is_some_and(|lock| lock == LockMode::Write || access == LockMode::Write);
        others.flat_map(|(_, bytes)| Self::bytes(range).map(|byte| bytes[byte])).all(|lock| !stops(&lock))
    }

    fn set(&mut self, owner: usize, range: Range, access: Option<LockMode>) {
        Self::bytes(range).for_each(|byte| self.0[owner][byte] = access);
    }
}

fn range() -> impl Strategy<Value = Range> {
    prop_oneof![
        (0..BYTES, 0..BYTES).prop_map(|(one, other)| Range { first: one.min(other), last: one.max(other) }),
        (0..BYTES).prop_map(|first| Range { first, last: LAST_BYTE }),
    ]
    // The last byte of the model stands for itself and all after it.
    .prop_map(|range| if range.last == BYTES - 1 { Range { last: LAST_BYTE, ..range } } else { range })
}

fn access() -> impl Strategy<Value = Option<LockMode>> {
    prop_oneof![Just(None), Just(Some(LockMode::Read)), Just(Some(LockMode::Write))]
}

/// Checks the list's invariants: grouped by owner, sorted within each owner, no equal adjacent locks.
fn check_form(locks: &Locks) {
    let list: Vec<Lock> = locks.files.get(&FILE).map(|locks| locks.ranges.0.clone()).unwrap_or_default();
    for pair in list.windows(2) {
        let (one, next) = (pair[0], pair[1]);
        let in_order = one.range.last < next.range.first && (one.access != next.access || one.range.last + 1 < next.range.first);
        assert!(one.owner != next.owner || in_order, "{list:?}");
    }
    let mut owners: Vec<LockOwner> = list.iter().map(|lock| lock.owner).collect();
    owners.dedup();
    let count = owners.len();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), count, "{list:?}");
}

proptest! {
    #[test]
    fn locks_match_a_model_of_each_byte(steps in prop::collection::vec((0..OWNERS.len(), range(), access()), 1..60)) {
        let (mut locks, mut model) = (Locks::default(), Model::default());
        for (owner, range, access) in steps {
            let free = access.is_none_or(|access| model.is_free(owner, range, access));
            match access {
                Some(access) => {
                    let stopped = locks.lock(FILE, LockScope::Ranges, Lock { owner: OWNERS[owner], access, range }).expect("there is room");
                    prop_assert_eq!(stopped.is_none(), free);
                }
                None => drop(locks.unlock(FILE, LockScope::Ranges, OWNERS[owner], range).expect("there is room")),
            }
            if free {
                model.set(owner, range, access);
            }
            check_form(&locks);
            for (owner, byte) in (0..OWNERS.len()).flat_map(|owner| (0..BYTES).map(move |byte| (owner, byte))) {
                let range = Range { first: byte, last: byte };
                for access in [LockMode::Read, LockMode::Write] {
                    let found = locks.conflict(FILE, LockScope::Ranges, &Lock { owner: OWNERS[owner], access, range });
                    prop_assert_eq!(found.is_none(), model.is_free(owner, range, access));
                    prop_assert!(found.is_none_or(|found| found.range.overlaps(range) && found.owner != OWNERS[owner]));
                }
            }
        }
        OWNERS.into_iter().for_each(|owner| locks.release(FILE, owner));
        prop_assert!(locks.is_empty());
    }
}

#[test]
fn ranges_are_relative_to_their_whence() {
    let range = |first, last| Ok(Range { first, last });
    assert_eq!((Range::new(10, 5, 3), Range::new(10, 5, -3), Range::new(10, -5, 0)), (range(15, 17), range(12, 14), range(5, LAST_BYTE)));
    assert_eq!((Range::new(10, -11, 1), Range::new(0, 5, -6), Range::new(0, 5, -5)), (Err(Errno::EINVAL), Err(Errno::EINVAL), range(0, 4)));
    assert_eq!((Range::new(1, i64::MAX, 0), Range::new(0, 2, i64::MAX)), (Err(Errno::EOVERFLOW), Err(Errno::EOVERFLOW)));
    assert_eq!((Range::ALL.length(), Range { first: 3, last: 3 }.length()), (0, 1));
}

#[test]
fn a_circle_of_waiters_is_detected() {
    let mut locks = Locks::default();
    let [one, other, third] = [1, 2, 3].map(LockOwner::Process);
    assert_eq!((locks.wait(one, other), locks.wait(other, third), locks.wait(third, one)), (Ok(()), Ok(()), Err(Errno::EDEADLK)));
    locks.stop_waiting(other);
    assert_eq!(locks.wait(third, one), Ok(()));
}

#[test]
fn locks_of_ranges_and_of_whole_files_do_not_see_each_other() {
    let mut locks = Locks::default();
    let lock = |owner| Lock { owner, access: LockMode::Write, range: Range::ALL };
    assert_eq!(locks.lock(FILE, LockScope::WholeFile, lock(OWNERS[2])), Ok(None));
    assert_eq!(locks.lock(FILE, LockScope::Ranges, lock(OWNERS[3])), Ok(None));
    assert_eq!(locks.lock(FILE, LockScope::WholeFile, lock(OWNERS[3])), Ok(Some(OWNERS[2])));
    locks.release(FILE, OWNERS[2]);
    assert_eq!(locks.lock(FILE, LockScope::WholeFile, lock(OWNERS[3])), Ok(None));
}
