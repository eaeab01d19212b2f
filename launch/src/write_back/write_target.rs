// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets of writes in an export: a directory inside it, and a name in that directory.
//!
//! Every name is resolved by `openat2` below the export's own directory, without following any link on the way; the last name is only
//! used by calls that do not follow links either. So nothing outside can be reached, whatever the cell sends and however the tree changes
//! meanwhile.

use pando_image::Replaced;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timestamps, fchmod, fsync, futimens, mkdirat, openat, openat2, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Mode bits that a cell may set.
pub(super) const PERMISSIONS: u32 = 0o777;
/// The longest name in a directory.
const MAX_NAME: usize = 255;

/// A file or directory of the host that a cell may change.
#[derive(Debug)]
pub enum WritableVolume {
    /// A directory with its content: opened for reading.
    Directory(OwnedFd),
    /// One file.
    File {
        /// Its directory, opened for reading.
        directory: OwnedFd,
        /// Its name.
        name: OsString,
    },
}

/// A name in a directory, which may exist or not.
#[derive(Debug)]
pub(super) struct WriteTarget {
    /// The directory.
    pub(super) directory: OwnedFd,
    /// The name: not empty, without a slash, neither `.` nor `..`.
    pub(super) name: OsString,
}

/// How often a path's resolution is retried because of concurrent renames.
const RENAME_RETRIES: u32 = 100;

/// Opens a directory below another, whatever the path contains.
pub(super) fn below(directory: &OwnedFd, path: &OsStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = || openat2(directory, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve);
    // Linux returns `EAGAIN` after a concurrent rename; endless renames are an error.
    (0..RENAME_RETRIES).map(|_| retry_on_intr(open)).find(|opened| !matches!(opened, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN))
}

impl WriteTarget {
    /// The destination of a path.
    ///
    /// # Errors
    /// The path is invalid, or continues below a file.
    pub(super) fn find(export: &WritableVolume, path: &[u8]) -> Result<WriteTarget, Errno> {
        match export {
            WritableVolume::File { directory, name } if path.is_empty() => {
                Ok(WriteTarget { directory: directory.try_clone().map_err(errno)?, name: name.clone() })
            }
            WritableVolume::File { .. } => Err(Errno::NOTDIR),
            WritableVolume::Directory(root) => {
                let good = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && name.len() <= MAX_NAME && !name.contains(&0);
                if !path.split(|byte| *byte == b'/').all(good) {
                    return Err(Errno::INVAL);
                }
                let split = path.iter().rposition(|byte| *byte == b'/');
                let (parent, name) = split.map_or((&b"."[..], path), |at| (&path[..at], &path[at + 1..]));
                Ok(WriteTarget { directory: below(root, OsStr::from_bytes(parent))?, name: OsStr::from_bytes(name).into() })
            }
        }
    }

    /// The status of the file at the destination; `None` if there is none.
    pub(super) fn stat(&self) -> Result<Option<Stat>, Errno> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same, if the destination is free or holds a regular file or link, which may be replaced.
    pub(super) fn replaceable(&self) -> Result<Option<Stat>, Errno> {
        let found = self.stat()?;
        match found.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            None | Some(FileType::RegularFile | FileType::Symlink) => Ok(found),
            Some(FileType::Directory) => Err(Errno::ISDIR),
            Some(_) => Err(Errno::PERM),
        }
    }

    /// Creates a directory unless it exists, and sets its permissions and times.
    pub(super) fn make_directory(&self, permissions: u32, times: &Timestamps) -> Result<(), Errno> {
        match mkdirat(&self.directory, &self.name, Mode::RWXU) {
            Ok(()) => fsync(&self.directory)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let created = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let before = rustix::fs::fstat(&created)?.st_mode;
        let mode = before & !PERMISSIONS & 0o7777 | permissions & PERMISSIONS;
        if mode != before & 0o7777 {
            fchmod(&created, Mode::from_raw_mode(mode))?;
        }
        futimens(&created, times)
    }

    /// Keeps the file at the destination readable after its removal.
    pub(super) fn keep(&self, replaced: &Replaced) {
        let is_regular = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if self.stat().is_ok_and(|stat| stat.is_some_and(is_regular))
            && let Ok(file) = openat(&self.directory, &self.name, flags, Mode::empty())
        {
            replaced.insert(file.into());
        }
    }

    /// Removes the file, link or empty directory at the destination.
    pub(super) fn remove(&self, replaced: &Replaced) -> Result<(), Errno> {
        let Some(stat) = self.stat()? else { return Ok(()) };
        self.keep(replaced);
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        unlinkat(&self.directory, &self.name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })?;
        fsync(&self.directory)
    }
}

/// The error number of a standard library error.
fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
