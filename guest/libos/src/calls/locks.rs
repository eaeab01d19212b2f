// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advisory locks: `flock`, and the record locks of `fcntl`.

use pando_rt::user::{read, write};

use crate::calls::blocking::{forever, with_timeout};
use crate::errno::Errno;
use crate::files::locks::{Lock, LockMode, LockOwner, LockScope, Range};
use crate::system::System;
use crate::uapi::{F_GETLK, F_OFD_GETLK, F_RDLCK, F_SETLK, F_SETLKW, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN};
use crate::wait::Channel;

/// Commands for locks of open file descriptions.
const OPEN_FILE: u64 = F_OFD_GETLK - F_GETLK;

/// `struct flock`.
#[derive(Clone, Copy, Debug)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    process: u32,
}

impl Flock {
    const SIZE: usize = 32;

    fn read(address: u64) -> Result<Flock, Errno> {
        let mut bytes = [0; Flock::SIZE];
        read(address, &mut bytes)?;
        let word = |at: usize| i64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[at + byte]));
        let (kind, whence) = (i16::from_le_bytes([bytes[0], bytes[1]]), i16::from_le_bytes([bytes[2], bytes[3]]));
        Ok(Flock { kind, whence, start: word(8), length: word(16), process: word(24) as u32 })
    }

    fn write(self, address: u64) -> Result<(), Errno> {
        write(address, &self.kind.to_le_bytes())?;
        write(address + 2, &self.whence.to_le_bytes())?;
        write(address + 8, &self.start.to_le_bytes())?;
        write(address + 16, &self.length.to_le_bytes())?;
        Ok(write(address + 24, &self.process.to_le_bytes())?)
    }

    /// The access that is locked; `None`: unlock.
    fn access(self) -> Result<Option<LockMode>, Errno> {
        match self.kind {
            F_RDLCK => Ok(Some(LockMode::Read)),
            F_WRLCK => Ok(Some(LockMode::Write)),
            F_UNLCK => Ok(None),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The range of the open file.
    fn range(self, system: &System, fd: u64) -> Result<Range, Errno> {
        let file = system.files.raw_file(fd)?;
        let base = match self.whence {
            0 => 0,
            1 => file.offset,
            2 => system.files.status_of(file)?.size,
            _ => return Err(Errno::EINVAL),
        };
        Range::new(base, self.start, self.length)
    }
}

/// Commands of `fcntl` for locks. `None`: it is another command.
pub fn control(system: &mut System, fd: u64, command: u64, argument: u64) -> Option<Result<u64, Errno>> {
    let (command, by_open_file) = if command >= OPEN_FILE + F_GETLK { (command - OPEN_FILE, true) } else { (command, false) };
    match command {
        F_GETLK => Some(get(system, fd, argument, by_open_file)),
        F_SETLK | F_SETLKW => Some(set(system, fd, argument, by_open_file, command == F_SETLKW)),
        _ => None,
    }
}

fn owner(system: &System, fd: u64, by_open_file: bool) -> Result<LockOwner, Errno> {
    if by_open_file { system.files.number(fd).map(LockOwner::OpenFile) } else { Ok(LockOwner::Process(system.process.number)) }
}

fn get(system: &mut System, fd: u64, argument: u64, by_open_file: bool) -> Result<u64, Errno> {
    let wanted = Flock::read(argument)?;
    if !by_open_file && !matches!(wanted.kind, F_RDLCK | F_WRLCK) {
        return Err(Errno::EINVAL);
    }
    let range = wanted.range(system, fd)?;
    let access = wanted.access()?;
    if by_open_file && wanted.process != 0 {
        return Err(Errno::EINVAL);
    }
    let (owner, key) = (owner(system, fd, by_open_file)?, system.files.lock_key(fd)?);
    let found = access.and_then(|access| system.files.locks.conflict(key, LockScope::Ranges, &Lock { owner, access, range }));
    let answer = match found {
        None => Flock { kind: F_UNLCK, ..wanted },
        Some(Lock { owner, access, range }) => Flock {
            kind: if access == LockMode::Read { F_RDLCK } else { F_WRLCK },
            whence: 0,
            start: range.first.cast_signed(),
            length: range.length().cast_signed(),
            process: if let LockOwner::Process(number) = owner { number } else { u32::MAX },
        },
    };
    answer.write(argument).map(|()| 0)
}

fn set(system: &mut System, fd: u64, argument: u64, by_open_file: bool, waits: bool) -> Result<u64, Errno> {
    let wanted = Flock::read(argument)?;
    let range = wanted.range(system, fd)?;
    let access = wanted.access()?;
    let file = system.files.raw_file(fd)?;
    match access {
        Some(LockMode::Read) if !file.readable() => return Err(Errno::EBADF),
        Some(LockMode::Write) if !file.writable() => return Err(Errno::EBADF),
        _ if by_open_file && wanted.process != 0 => return Err(Errno::EINVAL),
        _ => {}
    }
    let (owner, key) = (owner(system, fd, by_open_file)?, system.files.lock_key(fd)?);
    let Some(access) = access else {
        system.files.changed.push(Channel::Locks);
        return system.files.locks.unlock(key, LockScope::Ranges, owner, range).map(|_| 0);
    };
    let attempt = |system: &mut System| {
        let locks = &mut system.files.locks;
        locks.stop_waiting(owner);
        match locks.lock(key, LockScope::Ranges, Lock { owner, access, range }) {
            Ok(None) => {
                // The lock may have been a write lock before.
                system.files.changed.push(Channel::Locks);
                Ok(0)
            }
            // Deadlocks are detected among processes only, as on Linux.
            Ok(Some(other)) if waits && !by_open_file => locks.wait(owner, other).and(Err(Errno::EAGAIN)),
            Ok(Some(_)) => Err(Errno::EAGAIN),
            Err(error) => Err(error),
        }
    };
    let result = with_timeout(system, |_| [Channel::Locks].into(), forever(waits), attempt);
    // Deadlock detection searches waiting owners only.
    if result != Err(Errno::WAITS) {
        system.files.locks.stop_waiting(owner);
    }
    result
}

/// `flock(fd, operation)`.
pub fn flock(system: &mut System, [fd, operation, ..]: [u64; 6]) -> Result<u64, Errno> {
    let operation = operation as u32;
    let access = match operation & !LOCK_NB {
        LOCK_SH => Some(LockMode::Read),
        LOCK_EX => Some(LockMode::Write),
        LOCK_UN => None,
        _ => return Err(Errno::EINVAL),
    };
    system.files.file(fd)?;
    let (owner, key) = (LockOwner::OpenFile(system.files.number(fd)?), system.files.lock_key(fd)?);
    let attempt = |system: &mut System| {
        let locks = &mut system.files.locks;
        let Some(access) = access else {
            system.files.changed.push(Channel::Locks);
            return locks.unlock(key, LockScope::WholeFile, owner, Range::ALL).map(|_| 0);
        };
        let wanted = Lock { owner, access, range: Range::ALL };
        // A conversion that must wait loses the present lock.
        if locks.conflict(key, LockScope::WholeFile, &wanted).is_some() {
            if locks.unlock(key, LockScope::WholeFile, owner, Range::ALL)? {
                system.files.changed.push(Channel::Locks);
            }
            return Err(Errno::EAGAIN);
        }
        let result = locks.lock(key, LockScope::WholeFile, wanted).map(|_| 0);
        system.files.changed.push(Channel::Locks);
        result
    };
    with_timeout(system, |_| [Channel::Locks].into(), forever(operation & LOCK_NB == 0), attempt)
}
