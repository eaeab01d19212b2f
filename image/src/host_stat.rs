// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening host files and reading their status: attributes, identities and versions.

use std::{fs::File, io, path::Path};

use pando_erofs::HostIdentity;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, open, statat},
    io::{Errno, retry_on_intr},
};

use crate::{Attributes, Error, Timestamp, version::Version};

/// Inode numbers from here on are not recorded: the libOS gives them to files that cells make.
const INODE_END: u64 = 1 << 47;

impl Attributes {
    /// The attributes of a file or directory of the host. A link is not followed.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn of_host(path: &Path) -> Result<Self, Error> {
        lstat(path).map(|stat| attributes(&stat)).map_err(|errno| Error::Host { path: path.into(), source: errno.into() })
    }
}

/// The status of a file, without following a link or triggering an automatic mount.
pub(crate) fn lstat(path: &Path) -> Result<Stat, Errno> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// The same for a name in an open directory.
pub(crate) fn lstat_in(directory: &File, name: &[u8]) -> Result<Stat, Errno> {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
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
