// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changing what files say about themselves: permissions, owners, times.

use pando_rt::clock;

use crate::credentials::WRITE;
use crate::erofs::Time;
use crate::errno::Errno;
use crate::files::names::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, CURRENT};
use crate::files::status::time;
use crate::files::transfer::drop_privileges;
use crate::files::tree::Place;
use crate::process::Process;
use crate::user::{self, NANOSECONDS, words};

const SET_GROUP: u16 = 0o2000;
/// In place of an owner: leave it as it is.
const SAME: u32 = u32::MAX;

fn now() -> Time {
    time(clock::wall())
}

/// `chmod(path, mode)`.
pub fn chmod(process: &mut Process, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    fchmodat2(process, [CURRENT, path, mode, 0, 0, 0])
}

/// `fchmodat(directory, path, mode)`.
pub fn fchmodat(process: &mut Process, [directory, path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    fchmodat2(process, [directory, path, mode, 0, 0, 0])
}

/// `fchmodat2(directory, path, mode, flags)`.
pub fn fchmodat2(process: &mut Process, [directory, path, mode, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let place = process.files.find_at(directory, &path, flags)?;
    set_permissions(process, place, mode)
}

/// `fchmod(fd, mode)`.
pub fn fchmod(process: &mut Process, [fd, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.file(fd)?;
    let place = process.files.place(fd)?;
    set_permissions(process, place, mode)
}

fn set_permissions(process: &mut Process, place: Place, mode: u64) -> Result<u64, Errno> {
    if let Place::Descriptor(_) = place {
        return Ok(0);
    }
    let files = &mut process.files;
    let status = files.status(place)?;
    if !files.who.owns(status.owner()) {
        return Err(Errno::EPERM);
    }
    if status.kind() == Some(crate::erofs::FileType::Symlink) {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut permissions = (mode & 0o7777) as u16;
    if !files.who.is_root() && !files.who.is_in(status.gid) {
        permissions &= !SET_GROUP;
    }
    files.owner_mut(place, now())?.permissions = permissions;
    Ok(0)
}

/// `chown(path, user, group)`.
pub fn chown(process: &mut Process, [path, user, group, ..]: [u64; 6]) -> Result<u64, Errno> {
    fchownat(process, [CURRENT, path, user, group, 0, 0])
}

/// `lchown(path, user, group)`.
pub fn lchown(process: &mut Process, [path, user, group, ..]: [u64; 6]) -> Result<u64, Errno> {
    fchownat(process, [CURRENT, path, user, group, AT_SYMLINK_NOFOLLOW, 0])
}

/// `fchownat(directory, path, user, group, flags)`.
pub fn fchownat(process: &mut Process, [directory, path, user, group, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let place = process.files.find_at(directory, &path, flags)?;
    set_owner(process, place, user as u32, group as u32)
}

/// `fchown(fd, user, group)`.
pub fn fchown(process: &mut Process, [fd, user, group, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.files.file(fd)?;
    let place = process.files.place(fd)?;
    set_owner(process, place, user as u32, group as u32)
}

fn set_owner(process: &mut Process, place: Place, user: u32, group: u32) -> Result<u64, Errno> {
    if let Place::Descriptor(_) = place {
        return Ok(0);
    }
    let files = &mut process.files;
    let status = files.status(place)?;
    let who = &files.who;
    let same_user = user == SAME || user == status.uid && who.owns(status.owner());
    let own_group = group == SAME || who.owns(status.owner()) && (group == status.gid || who.is_in(group));
    let may = who.is_root() || same_user && own_group;
    if !may {
        return Err(Errno::EPERM);
    }
    let is_directory = status.is_directory();
    let owner = files.owner_mut(place, now())?;
    if user != SAME {
        owner.uid = user;
    }
    if group != SAME {
        owner.gid = group;
    }
    if !is_directory {
        drop_privileges(&mut owner.permissions);
    }
    Ok(0)
}

/// What happens to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewTime {
    Now,
    Same,
    At(Time),
}

/// `utimensat(directory, path, times, flags)`.
pub fn utimensat(process: &mut Process, [directory, path, times, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// In place of nanoseconds.
    const NOW: u64 = (1 << 30) - 1;
    const OMIT: u64 = (1 << 30) - 2;
    let mut wanted = [NewTime::Now; 2];
    if times != 0 {
        for (wanted, address) in wanted.iter_mut().zip([times, times.wrapping_add(16)]) {
            let [seconds, nanoseconds] = words(address)?;
            *wanted = match nanoseconds {
                NOW => NewTime::Now,
                OMIT => NewTime::Same,
                0..NANOSECONDS => NewTime::At(Time { seconds: seconds.cast_signed(), nanoseconds: nanoseconds as u32 }),
                _ => return Err(Errno::EINVAL),
            };
        }
    }
    if wanted == [NewTime::Same; 2] {
        return Ok(0);
    }
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    // Without a path it is the descriptor that is meant.
    let place = if path == 0 {
        process.files.file(directory)?;
        process.files.place(directory)?
    } else {
        process.files.find_at(directory, &user::path(path)?, flags)?
    };
    set_times(process, place, wanted)
}

/// `utime(path, times)`.
pub fn utime(process: &mut Process, [path, times, ..]: [u64; 6]) -> Result<u64, Errno> {
    let wanted = if times == 0 {
        [NewTime::Now; 2]
    } else {
        words::<2>(times)?.map(|seconds| NewTime::At(Time { seconds: seconds.cast_signed(), nanoseconds: 0 }))
    };
    let place = process.files.find_at(CURRENT, &user::path(path)?, 0)?;
    set_times(process, place, wanted)
}

/// `utimes(path, times)`.
pub fn utimes(process: &mut Process, [path, times, ..]: [u64; 6]) -> Result<u64, Errno> {
    futimesat(process, [CURRENT, path, times, 0, 0, 0])
}

/// `futimesat(directory, path, times)`.
pub fn futimesat(process: &mut Process, [directory, path, times, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mut wanted = [NewTime::Now; 2];
    if times != 0 {
        for (wanted, address) in wanted.iter_mut().zip([times, times.wrapping_add(16)]) {
            let [seconds, microseconds] = words(address)?;
            if microseconds >= NANOSECONDS / 1000 {
                return Err(Errno::EINVAL);
            }
            *wanted = NewTime::At(Time { seconds: seconds.cast_signed(), nanoseconds: microseconds as u32 * 1000 });
        }
    }
    let place = if path == 0 { process.files.place(directory)? } else { process.files.find_at(directory, &user::path(path)?, 0)? };
    set_times(process, place, wanted)
}

fn set_times(process: &mut Process, place: Place, [accessed, modified]: [NewTime; 2]) -> Result<u64, Errno> {
    if let Place::Descriptor(_) = place {
        return Ok(0);
    }
    let files = &mut process.files;
    let status = files.status(place)?;
    let only_now = [accessed, modified] == [NewTime::Now; 2];
    if !files.who.owns(status.owner()) {
        if !only_now {
            return Err(Errno::EPERM);
        }
        files.check(place, WRITE)?;
    }
    let now = now();
    let id = files.tree.own(place)?;
    let times = &mut files.tree.node_mut(id)?.times;
    for (time, wanted) in [(&mut times.accessed, accessed), (&mut times.modified, modified)] {
        *time = match wanted {
            NewTime::Now => now,
            NewTime::Same => *time,
            NewTime::At(wanted) => wanted,
        };
    }
    times.changed = now;
    Ok(0)
}
