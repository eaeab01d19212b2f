// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on System V shared memory.

use pando_abi::PAGE_SIZE;

use super::{now, set_owner, words_of};
use crate::errno::Errno;
use crate::ipc::objects::{Object, READ, WRITE};
use crate::ipc::{SEGMENTS_MAX, Segment};
use crate::system::System;
use crate::uapi::{
    CAP_IPC_LOCK, IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, SHM_DEST, SHM_EXEC, SHM_HUGETLB, SHM_INFO, SHM_LOCK, SHM_LOCKED, SHM_RDONLY,
    SHM_REMAP, SHM_RND, SHM_STAT, SHM_STAT_ANY, SHM_UNLOCK,
};
use crate::user::{set_words, words};

/// Most bytes of a segment, and most pages of all.
const BYTES_MAX: u64 = u64::MAX - (1 << 24);

/// `shmget(key, size, flags)`.
pub fn shmget(system: &mut System, [key, bytes, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let key = key as i32;
    if let Some(number) = system.ipc.segments.find(&system.files.current.credentials, key, flags, |segment| bytes <= segment.bytes)? {
        return Ok(number);
    }
    if bytes == 0 || bytes > BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    if flags & SHM_HUGETLB != 0 {
        return Err(Errno::ENOMEM);
    }
    let number = system.ipc.segments.next_number(SEGMENTS_MAX)?;
    let pages = system.make_segment(number, bytes)?;
    let segment = Segment { bytes, pages, is_removed: false, is_locked: false, times: [0; 2], processes: [system.process.number, 0] };
    system.ipc.segments.add(number, key, flags, &system.files.current.credentials, now(), segment);
    Ok(number.into())
}

/// `shmat(segment, address, flags)`. A segment lies at the same address in all processes.
pub fn shmat(system: &mut System, [number, address, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let wanted = match address {
        0 if flags & SHM_REMAP != 0 => return Err(Errno::EINVAL),
        0 => None,
        _ if address.is_multiple_of(PAGE_SIZE) => Some(address),
        _ if flags & SHM_RND == 0 => return Err(Errno::EINVAL),
        _ => Some(address / PAGE_SIZE * PAGE_SIZE),
    };
    let write = if flags & SHM_RDONLY == 0 { WRITE } else { 0 };
    let execute = if flags & SHM_EXEC != 0 { 0o111 } else { 0 };
    let object = system.ipc.segments.get(number)?;
    object.check(&system.files.current.credentials, READ | write | execute)?;
    let (number, pages) = (object.number, object.data.pages);
    if wanted.is_some_and(|wanted| wanted != pages.start()) {
        return Err(Errno::EINVAL);
    }
    system.attach(number, pages, flags & SHM_RDONLY == 0)?;
    Ok(pages.start())
}

/// `shmdt(address)`.
pub fn shmdt(system: &mut System, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.detach(address).map(|()| 0)
}

/// `shmctl(segment, command, buffer)`.
pub fn shmctl(system: &mut System, [number, wanted, buffer, ..]: [u64; 6]) -> Result<u64, Errno> {
    if (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    match u64::from(wanted as u32) {
        IPC_INFO => {
            set_words(buffer, &[BYTES_MAX, 1, SEGMENTS_MAX as u64, SEGMENTS_MAX as u64, BYTES_MAX, 0, 0, 0, 0])?;
            Ok(system.ipc.segments.last_index())
        }
        SHM_INFO => {
            let pages: u64 = system.ipc.segments.all().map(|object| object.data.pages.pages()).sum();
            set_words(buffer, &[system.ipc.segments.all().count() as u64, pages, pages, 0, 0, 0])?;
            Ok(system.ipc.segments.last_index())
        }
        wanted @ (IPC_STAT | SHM_STAT | SHM_STAT_ANY) => {
            let object = if wanted == IPC_STAT { system.ipc.segments.get(number) } else { system.ipc.segments.at(number) }?;
            if wanted != SHM_STAT_ANY {
                object.check(&system.files.current.credentials, READ)?;
            }
            set_words(buffer, &status(system, object))?;
            Ok(if wanted == IPC_STAT { 0 } else { object.number.into() })
        }
        IPC_SET => {
            words::<14>(buffer)?;
            let object = system.ipc.segments.get_mut(number)?;
            object.check_owner(&system.files.current.credentials)?;
            set_owner(object, buffer).map(|()| 0)
        }
        IPC_RMID => {
            let object = system.ipc.segments.get_mut(number)?;
            object.check_owner(&system.files.current.credentials)?;
            let number = object.number;
            object.data.is_removed = true;
            system.ipc.segments.hide(number);
            system.release_segment(number);
            Ok(0)
        }
        wanted @ (SHM_LOCK | SHM_UNLOCK) => {
            check_locking(system, number, wanted == SHM_LOCK)?;
            system.ipc.segments.get_mut(number)?.data.is_locked = wanted == SHM_LOCK;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Checks that the process may lock a segment, or unlock it.
fn check_locking(system: &mut System, number: u64, locks: bool) -> Result<(), Errno> {
    let all: u64 = system.ipc.segments.all().filter(|object| object.data.is_locked).map(|object| object.data.bytes).sum();
    let (limit, credentials) = (system.process.limits.locked(), &system.files.current.credentials);
    let object = system.ipc.segments.get_mut(number)?;
    if credentials.is_capable(CAP_IPC_LOCK) {
        return Ok(());
    }
    if !object.is_of(credentials) {
        return Err(Errno::EPERM);
    }
    match limit.filter(|_| locks && !object.data.is_locked) {
        Some(0) => Err(Errno::EPERM),
        Some(limit) if all.saturating_add(object.data.bytes) > limit => Err(Errno::ENOMEM),
        _ => Ok(()),
    }
}

/// The words of a `struct shmid_ds`.
fn status(system: &System, object: &Object<Segment>) -> [u64; 14] {
    let Segment { bytes, is_removed, is_locked, times: [attached, detached], processes: [maker, last], .. } = object.data;
    let flags = if is_removed { SHM_DEST } else { 0 } | if is_locked { SHM_LOCKED } else { 0 };
    let mut words = [0; 14];
    words[..6].copy_from_slice(&words_of(object, flags));
    let users = system.attachments(object.number);
    words[6..12].copy_from_slice(&[bytes, attached, detached, object.changed, u64::from(maker) | u64::from(last) << 32, users]);
    words
}
