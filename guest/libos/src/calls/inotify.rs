// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on inotify.

use crate::errno::Errno;
use crate::system::System;
use crate::uapi::{IN_MASK_ADD, IN_MASK_CREATE, O_CLOEXEC, O_NONBLOCK};
use crate::user;

/// `inotify_init()`.
pub fn inotify_init(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    system.files.create_inotify(0, false)
}

/// `inotify_init1(flags)`.
pub fn inotify_init1(system: &mut System, [flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if u64::from(flags as u32) & !(O_NONBLOCK | O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    system.files.create_inotify(flags & O_NONBLOCK, flags & O_CLOEXEC != 0)
}

/// `inotify_add_watch(fd, path, mask)`.
pub fn inotify_add_watch(system: &mut System, [fd, path, mask, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// All known bits, including those that only events have.
    const KNOWN: u32 = 0xf700_efff;
    const BOTH: u32 = IN_MASK_ADD | IN_MASK_CREATE;
    let mask = mask as u32;
    if mask & KNOWN == 0 {
        return Err(Errno::EINVAL);
    }
    system.files.raw_file(fd)?;
    if mask & BOTH == BOTH {
        return Err(Errno::EINVAL);
    }
    let id = system.files.inotify(fd)?;
    system.files.watch(id, &user::path(path)?, mask).map(|number| number as u64)
}

/// `inotify_rm_watch(fd, number)`.
pub fn inotify_rm_watch(system: &mut System, [fd, number, ..]: [u64; 6]) -> Result<u64, Errno> {
    let id = system.files.inotify(fd)?;
    system.files.inotifies.get_mut(id)?.remove(number as i32).map(|()| 0)
}
