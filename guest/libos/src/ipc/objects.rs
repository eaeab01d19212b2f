// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common part of System V IPC objects: keys, numbers, owners and permissions.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::uapi::{CAP_IPC_OWNER, CAP_SYS_ADMIN, IPC_CREAT, IPC_EXCL, IPC_PRIVATE};

/// Permission to read.
pub const READ: u64 = 0o444;
/// Permission to change.
pub const WRITE: u64 = 0o222;

/// A number is an index into the table and, above it, a count of how often indices have been reused.
const INDEX_BITS: u32 = 15;
const SEQUENCES: u32 = 1 << (31 - INDEX_BITS);

/// An object with its owner and permissions.
#[derive(Debug)]
pub struct Object<T> {
    /// The key by which programs find it.
    pub key: i32,
    /// Its number.
    pub number: u32,
    /// The user and the group that own it.
    pub owner: [u32; 2],
    /// The user and the group that created it.
    pub maker: [u32; 2],
    /// The permission bits of owner, group and others.
    pub permissions: u32,
    /// When owner or permissions were changed last, in seconds since 1970.
    pub changed: u64,
    /// The object itself.
    pub data: T,
}

impl<T> Object<T> {
    /// Whether the credentials have the permissions of the bits, as owner, group or others.
    #[must_use]
    pub fn allows(&self, credentials: &Credentials, wanted: u64) -> bool {
        let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 7;
        let groups = [self.owner[1], self.maker[1]];
        let shift = match () {
            () if self.is_of(credentials) => 6,
            () if groups.into_iter().any(|group| credentials.is_in(group)) => 3,
            () => 0,
        };
        wanted & !u64::from(self.permissions >> shift) == 0 || credentials.is_capable(CAP_IPC_OWNER)
    }

    /// Checks that the credentials have the permissions of the bits.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check(&self, credentials: &Credentials, wanted: u64) -> Result<(), Errno> {
        if self.allows(credentials, wanted) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Checks that the credentials may remove the object and change its owner.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_owner(&self, credentials: &Credentials) -> Result<(), Errno> {
        if self.is_of(credentials) || credentials.is_capable(CAP_SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether it belongs to somebody, or was made by them.
    #[must_use]
    pub fn is_of(&self, credentials: &Credentials) -> bool {
        [self.owner[0], self.maker[0]].contains(&credentials.user.effective)
    }

    /// How often indices had been reused when it got its own.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.number >> INDEX_BITS
    }
}

/// The objects of a kind, by index.
#[derive(Debug)]
pub struct Objects<T> {
    objects: BTreeMap<u32, Object<T>>,
    /// The indices of objects that have keys.
    keys: BTreeMap<i32, u32>,
    /// Freed indices below `end`.
    free: BTreeSet<u32>,
    /// The first index that was never used.
    end: u32,
    sequence: u32,
    last: Option<u32>,
}

impl<T> Default for Objects<T> {
    fn default() -> Objects<T> {
        Objects { objects: BTreeMap::new(), keys: BTreeMap::new(), free: BTreeSet::new(), end: 0, sequence: 0, last: None }
    }
}

impl<T> Objects<T> {
    /// All objects, in order of index.
    pub fn all(&self) -> impl Iterator<Item = &Object<T>> {
        self.objects.values()
    }

    /// All objects, mutably.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Object<T>> {
        self.objects.values_mut()
    }

    /// The highest index in use; 0 if there is none.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.objects.last_key_value().map_or(0, |(index, _)| u64::from(*index))
    }

    /// The object at an index.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub fn at(&self, index: u64) -> Result<&Object<T>, Errno> {
        u32::try_from(index).ok().and_then(|index| self.objects.get(&index)).ok_or(Errno::EINVAL)
    }

    /// The object with a number.
    ///
    /// # Errors
    /// `EINVAL`: there is none. `EIDRM`: its index has been reused.
    pub fn get(&self, number: u64) -> Result<&Object<T>, Errno> {
        let number = number as u32;
        let object = self.objects.get(&index_of(number)).filter(|_| number.cast_signed() >= 0).ok_or(Errno::EINVAL)?;
        if object.number == number { Ok(object) } else { Err(Errno::EIDRM) }
    }

    /// The object with a number, mutably.
    ///
    /// # Errors
    /// As for [`get`](Objects::get).
    pub fn get_mut(&mut self, number: u64) -> Result<&mut Object<T>, Errno> {
        let number = self.get(number)?.number;
        self.objects.get_mut(&index_of(number)).ok_or(Errno::EINVAL)
    }

    /// The number of the object that a `get` call requests. `None`: it must be created.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EACCES`; `EINVAL`: it is smaller than requested.
    pub fn find(&self, credentials: &Credentials, key: i32, flags: u64, is_enough: impl FnOnce(&T) -> bool) -> Result<Option<u64>, Errno> {
        let found = self.keys.get(&key).and_then(|index| self.objects.get(index));
        let Some(object) = found else {
            return if flags & IPC_CREAT != 0 || key == IPC_PRIVATE { Ok(None) } else { Err(Errno::ENOENT) };
        };
        if flags & (IPC_CREAT | IPC_EXCL) == IPC_CREAT | IPC_EXCL {
            return Err(Errno::EEXIST);
        }
        if !is_enough(&object.data) {
            return Err(Errno::EINVAL);
        }
        object.check(credentials, flags)?;
        Ok(Some(object.number.into()))
    }

    /// The number that the next object will have.
    ///
    /// # Errors
    /// `ENOSPC`: the limit is reached.
    pub fn next_number(&self, max: usize) -> Result<u32, Errno> {
        let free = self.free.first().copied().unwrap_or(self.end);
        if free as usize >= max {
            return Err(Errno::ENOSPC);
        }
        let sequence = if self.last.is_some_and(|last| free <= last) { (self.sequence + 1) % SEQUENCES } else { self.sequence };
        Ok(sequence << INDEX_BITS | free)
    }

    /// Adds an object under its number, which [`next_number`](Objects::next_number) returned.
    pub fn add(&mut self, number: u32, key: i32, flags: u64, credentials: &Credentials, now: u64, data: T) {
        let owner = [credentials.user.effective, credentials.group.effective];
        (self.last, self.sequence) = (Some(index_of(number)), number >> INDEX_BITS);
        let permissions = flags as u32 & 0o777;
        self.free.remove(&index_of(number));
        self.end = self.end.max(index_of(number) + 1);
        if key != IPC_PRIVATE {
            self.keys.insert(key, index_of(number));
        }
        self.objects.insert(index_of(number), Object { key, number, owner, maker: owner, permissions, changed: now, data });
    }

    /// Removes an object.
    pub fn remove(&mut self, number: u32) {
        self.hide(number);
        if self.objects.remove(&index_of(number)).is_some() {
            self.free.insert(index_of(number));
        }
    }

    /// Removes an object's key, so that it is found by its number alone.
    pub fn hide(&mut self, number: u32) {
        if let Some(object) = self.objects.get_mut(&index_of(number)) {
            let key = core::mem::replace(&mut object.key, IPC_PRIVATE);
            // An object without a key is in no list.
            self.keys.remove(&key);
        }
    }
}

const fn index_of(number: u32) -> u32 {
    number & ((1 << INDEX_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::{Objects, READ, WRITE};
    use crate::credentials::Credentials;
    use crate::errno::Errno;
    use crate::uapi::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE};

    #[test]
    fn numbers_are_not_given_again_soon() {
        let (mut objects, credentials) = (Objects::<u8>::default(), Credentials::new(0, 0));
        for round in 0..3 {
            let number = objects.next_number(2).expect("there is room");
            objects.add(number, IPC_PRIVATE, 0, &credentials, 0, round);
            assert_eq!(objects.get(number.into()).map(|object| object.data), Ok(round));
            objects.remove(number);
            assert_eq!(objects.get(number.into()).err(), Some(Errno::EINVAL));
        }
        let third = objects.next_number(2).expect("there is room");
        assert_eq!(third, 3 << 15);
        objects.add(third, IPC_PRIVATE, 0, &credentials, 0, 3);
        assert_eq!(
            (objects.get(0).err(), objects.get(1).err(), objects.get(u64::MAX).err()),
            (Some(Errno::EIDRM), Some(Errno::EINVAL), Some(Errno::EINVAL))
        );
        objects.add(objects.next_number(2).expect("there is room"), IPC_PRIVATE, 0, &credentials, 0, 4);
        assert_eq!(objects.next_number(2), Err(Errno::ENOSPC));
    }

    #[test]
    fn keys_lead_to_permitted_objects_only() {
        let (mut objects, owner, other) = (Objects::<u8>::default(), Credentials::new(5, 6), Credentials::new(7, 6));
        objects.add(0, 9, 0o640, &owner, 0, 3);
        assert_eq!((objects.find(&owner, 9, WRITE, |_| true), objects.find(&other, 9, READ, |_| true)), (Ok(Some(0)), Ok(Some(0))));
        assert_eq!(objects.find(&other, 9, WRITE, |_| true), Err(Errno::EACCES));
        assert_eq!(objects.find(&owner, 9, 0, |size| *size > 3), Err(Errno::EINVAL));
        assert_eq!(objects.find(&owner, 9, IPC_CREAT | IPC_EXCL, |_| true), Err(Errno::EEXIST));
        assert_eq!((objects.find(&owner, 8, 0, |_| true), objects.find(&owner, 8, IPC_CREAT, |_| true)), (Err(Errno::ENOENT), Ok(None)));
        assert_eq!(objects.find(&owner, IPC_PRIVATE, 0, |_| true), Ok(None));
    }
}
