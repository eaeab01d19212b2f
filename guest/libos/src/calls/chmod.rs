// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that change the attributes of files: permissions, owners, times.

use pando_rt::clock;

use crate::credentials::WRITE;
use crate::erofs::Time;
use crate::errno::Errno;
use crate::files::status::time;
use crate::files::tree::InodeRef;
use crate::system::System;
use crate::uapi::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, CAP_CHOWN, IN_ATTRIB, S_ISGID, UTIME_NOW, UTIME_OMIT};
use crate::user::{self, NANOSECONDS, words};

/// Leaves an owner unchanged.
const SAME: u32 = u32::MAX;

fn now() -> Time {
    time(clock::wall())
}

/// `chmod(path, mode)`.
pub fn chmod(system: &mut System, [path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    fchmodat2(system, [AT_FDCWD, path, mode, 0, 0, 0])
}

/// `fchmodat(directory, path, mode)`.
pub fn fchmodat(system: &mut System, [directory, path, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    fchmodat2(system, [directory, path, mode, 0, 0, 0])
}

/// `fchmodat2(directory, path, mode, flags)`.
pub fn fchmodat2(system: &mut System, [directory, path, mode, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let inode = system.files.find_at(directory, &path, flags)?;
    set_permissions(system, inode, mode)?;
    system.files.notify_at(directory, &path, flags, IN_ATTRIB);
    Ok(0)
}

/// `fchmod(fd, mode)`.
pub fn fchmod(system: &mut System, [fd, mode, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.file(fd)?;
    let inode = system.files.inode(fd)?;
    set_permissions(system, inode, mode)?;
    system.files.notify_open(fd, IN_ATTRIB);
    Ok(0)
}

fn set_permissions(system: &mut System, inode: InodeRef, mode: u64) -> Result<u64, Errno> {
    if let InodeRef::Descriptor(_) = inode {
        return Ok(0);
    }
    let files = &mut system.files;
    let status = files.status(inode)?;
    if !files.current.credentials.owns(status.owner()) {
        return Err(Errno::EPERM);
    }
    if status.kind() == Some(crate::erofs::FileType::Symlink) {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut permissions = (mode & 0o7777) as u16;
    if !files.current.credentials.keeps_group_id(status.gid) {
        permissions &= !S_ISGID;
    }
    // Only files of the overlay have seals.
    if let InodeRef::Node(id) = inode
        && let Ok(content) = files.tree.node(id)?.content()
    {
        content.check_permissions(status.owner().permissions, permissions)?;
    }
    files.chmod_live(inode, permissions)?;
    files.owner_mut(inode, now())?.permissions = permissions;
    Ok(0)
}

/// `chown(path, user, group)`.
pub fn chown(system: &mut System, [path, user, group, ..]: [u64; 6]) -> Result<u64, Errno> {
    fchownat(system, [AT_FDCWD, path, user, group, 0, 0])
}

/// `lchown(path, user, group)`.
pub fn lchown(system: &mut System, [path, user, group, ..]: [u64; 6]) -> Result<u64, Errno> {
    fchownat(system, [AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW, 0])
}

/// `fchownat(directory, path, user, group, flags)`.
pub fn fchownat(system: &mut System, [directory, path, user, group, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = user::path(path)?;
    let inode = system.files.find_at(directory, &path, flags)?;
    set_owner(system, inode, user as u32, group as u32)?;
    system.files.notify_at(directory, &path, flags, IN_ATTRIB);
    Ok(0)
}

/// `fchown(fd, user, group)`.
pub fn fchown(system: &mut System, [fd, user, group, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.file(fd)?;
    let inode = system.files.inode(fd)?;
    set_owner(system, inode, user as u32, group as u32)?;
    system.files.notify_open(fd, IN_ATTRIB);
    Ok(0)
}

fn set_owner(system: &mut System, inode: InodeRef, user: u32, group: u32) -> Result<u64, Errno> {
    if let InodeRef::Descriptor(_) = inode {
        return Ok(0);
    }
    let files = &mut system.files;
    let status = files.status(inode)?;
    let credentials = &files.current.credentials;
    let same_user = user == SAME || user == status.uid && credentials.owns(status.owner());
    let own_group = group == SAME || credentials.owns(status.owner()) && (group == status.gid || credentials.is_in(group));
    let may = credentials.is_capable(CAP_CHOWN) || same_user && own_group;
    if !may {
        return Err(Errno::EPERM);
    }
    let (is_directory, keeps_group_id) = (status.is_directory(), credentials.keeps_group_id(status.gid));
    let owner = files.owner_mut(inode, now())?;
    if user != SAME {
        owner.uid = user;
    }
    if group != SAME {
        owner.gid = group;
    }
    if !is_directory {
        owner.remove_privileges(keeps_group_id);
    }
    files.note_owner(inode);
    Ok(0)
}

/// The change of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewTime {
    Now,
    Same,
    At(Time),
}

/// `utimensat(directory, path, times, flags)`.
pub fn utimensat(system: &mut System, [directory, path, times, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mut wanted = [NewTime::Now; 2];
    if times != 0 {
        for (wanted, address) in wanted.iter_mut().zip([times, times.wrapping_add(16)]) {
            let [seconds, nanoseconds] = words(address)?;
            *wanted = match nanoseconds {
                UTIME_NOW => NewTime::Now,
                UTIME_OMIT => NewTime::Same,
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
    // Without a path, the call changes the descriptor's file.
    if path == 0 {
        system.files.file(directory)?;
        return set_times_open(system, directory, wanted);
    }
    set_times_at(system, directory, path, flags, wanted)
}

/// `utime(path, times)`.
pub fn utime(system: &mut System, [path, times, ..]: [u64; 6]) -> Result<u64, Errno> {
    let wanted = if times == 0 {
        [NewTime::Now; 2]
    } else {
        words::<2>(times)?.map(|seconds| NewTime::At(Time { seconds: seconds.cast_signed(), nanoseconds: 0 }))
    };
    set_times_at(system, AT_FDCWD, path, 0, wanted)
}

/// `utimes(path, times)`.
pub fn utimes(system: &mut System, [path, times, ..]: [u64; 6]) -> Result<u64, Errno> {
    futimesat(system, [AT_FDCWD, path, times, 0, 0, 0])
}

/// `futimesat(directory, path, times)`.
pub fn futimesat(system: &mut System, [directory, path, times, ..]: [u64; 6]) -> Result<u64, Errno> {
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
    if path == 0 { set_times_open(system, directory, wanted) } else { set_times_at(system, directory, path, 0, wanted) }
}

fn set_times_open(system: &mut System, fd: u64, wanted: [NewTime; 2]) -> Result<u64, Errno> {
    let inode = system.files.inode(fd)?;
    set_times(system, inode, wanted)?;
    system.files.notify_open(fd, IN_ATTRIB);
    Ok(0)
}

fn set_times_at(system: &mut System, directory: u64, path: u64, flags: u64, wanted: [NewTime; 2]) -> Result<u64, Errno> {
    let path = user::path(path)?;
    let inode = system.files.find_at(directory, &path, flags)?;
    set_times(system, inode, wanted)?;
    system.files.notify_at(directory, &path, flags, IN_ATTRIB);
    Ok(0)
}

fn set_times(system: &mut System, inode: InodeRef, [accessed, modified]: [NewTime; 2]) -> Result<u64, Errno> {
    if let InodeRef::Descriptor(_) = inode {
        return Ok(0);
    }
    let files = &mut system.files;
    let status = files.status(inode)?;
    let only_now = [accessed, modified] == [NewTime::Now; 2];
    if !files.current.credentials.owns(status.owner()) {
        if !only_now {
            return Err(Errno::EPERM);
        }
        files.check(inode, WRITE)?;
    }
    let now = now();
    let at = |wanted| match wanted {
        NewTime::Now => Some(None),
        NewTime::Same => None,
        NewTime::At(time) => Some(Some(time)),
    };
    files.set_times_live(inode, at(accessed), at(modified))?;
    let id = files.tree.copy_up(inode)?;
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
