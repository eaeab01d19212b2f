// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's files as `stat` describes them: their attributes, identities and versions.

use std::{
    fs::File,
    io,
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use pando_erofs::HostIdentity;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, open, statat},
    io::{Errno, retry_on_intr},
};

use crate::{
    Attributes, Timestamp,
    tables::{ChangeTime, Version},
};

/// Read permission for owner, group and others.
const READABLE: u16 = 0o444;
/// Twice the longest tick that Linux is built with.
const TICK: Duration = Duration::from_millis(20);
/// Inode numbers from here on are not recorded: the libOS gives them to files that cells make.
const INODE_END: u64 = 1 << 47;

impl Version {
    pub(crate) fn of(stat: &Stat) -> Self {
        Version {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size.cast_unsigned(),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            permissions: (stat.st_mode & 0o7777) as u16,
            changed: ChangeTime { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 },
        }
    }

    /// Whether it has the same content as an earlier version, judged by inode, size and modification time, and may be read by all who could
    /// read that. Additional names change none of these.
    pub(crate) fn has_content_of(&self, earlier: &Version) -> bool {
        let is_closed = earlier.permissions & !self.permissions & READABLE != 0;
        Version { changed: earlier.changed, permissions: earlier.permissions, ..*self } == *earlier && !is_closed
    }

    /// Waits until another change would show in the times.
    pub(crate) fn settle(&self) {
        let Ok(seconds) = u64::try_from(self.changed.seconds) else { return };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, self.changed.nanoseconds);
        // A modification time in the future, after the clock was set back, cannot be waited for.
        if let Ok(age) = changed.elapsed() {
            thread::sleep(TICK.saturating_sub(age));
        }
    }
}

/// The status of a file, without following a link or triggering an automatic mount.
pub(crate) fn lstat(path: &Path) -> Result<Stat, Errno> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// Opens a file without blocking, whatever its type, and without following a link.
pub(crate) fn open_at(path: &Path, more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    Ok(retry_on_intr(|| open(path, flags, Mode::empty()))?.into())
}

/// The present version of an open file.
pub(crate) fn version(file: &File) -> io::Result<Version> {
    Ok(Version::of(&fstat(file)?))
}

/// The attributes of a host file in an image.
pub(crate) fn attributes(stat: &Stat) -> Attributes {
    Attributes {
        permissions: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified: Timestamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
    }
}

/// The identity from a file's status; `None` if its number is not recorded.
pub(crate) fn host_identity(stat: &Stat) -> Option<HostIdentity> {
    let changed = Timestamp { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 };
    let links = u32::try_from(stat.st_nlink).unwrap_or(u32::MAX);
    (stat.st_ino < INODE_END).then_some(HostIdentity { device: Some(stat.st_dev), inode: stat.st_ino, changed, links })
}
