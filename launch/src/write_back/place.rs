// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places in an export: a directory that surely lies in it, and a name there.
//!
//! Every name is resolved by `openat2` below the export's own directory, without following any link on the way; the last name is only ever used by calls that do not follow
//! links either. So nothing outside can be reached, whatever the cell says and whatever others do to the tree meanwhile.

use pando_image::Replaced;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timestamps, fchmod, fsync, futimens, mkdirat, openat, openat2, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Bits of a mode that a cell may decide about.
pub(super) const PERMISSIONS: u32 = 0o777;
/// The longest name in a directory.
const MAX_NAME: usize = 255;

/// Something of the host that a cell may change.
#[derive(Debug)]
pub enum Export {
    /// A directory, with all that lies in it: opened for reading.
    Directory(OwnedFd),
    /// One file.
    File {
        /// The directory in which it lies, opened for reading.
        directory: OwnedFd,
        /// Its name there.
        name: OsString,
    },
}

/// A name in a directory; there may be something or nothing.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory.
    pub(super) directory: OwnedFd,
    /// The name: not empty, without a slash, neither `.` nor `..`.
    pub(super) name: OsString,
}

/// How often a path is resolved again because something was renamed meanwhile.
const RENAMED_MEANWHILE: u32 = 100;

/// Opens a directory that lies below another, whatever the path says.
pub(super) fn below(directory: &OwnedFd, path: &OsStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = || openat2(directory, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve);
    // Linux asks to try again where something was renamed meanwhile; who renames without end is refused.
    (0..RENAMED_MEANWHILE).map(|_| retry_on_intr(open)).find(|opened| !matches!(opened, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN))
}

impl Place {
    /// The place that a path names.
    ///
    /// # Errors
    /// The path is none, or leads through what is no directory.
    pub(super) fn find(export: &Export, path: &[u8]) -> Result<Place, Errno> {
        match export {
            Export::File { directory, name } if path.is_empty() => {
                Ok(Place { directory: directory.try_clone().map_err(errno)?, name: name.clone() })
            }
            Export::File { .. } => Err(Errno::NOTDIR),
            Export::Directory(root) => {
                let good = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && name.len() <= MAX_NAME && !name.contains(&0);
                if !path.split(|byte| *byte == b'/').all(good) {
                    return Err(Errno::INVAL);
                }
                let split = path.iter().rposition(|byte| *byte == b'/');
                let (parent, name) = split.map_or((&b"."[..], path), |at| (&path[..at], &path[at + 1..]));
                Ok(Place { directory: below(root, OsStr::from_bytes(parent))?, name: OsStr::from_bytes(name).into() })
            }
        }
    }

    /// What is there now; `None`: nothing.
    pub(super) fn look(&self) -> Result<Option<Stat>, Errno> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is there now, if that may be replaced by a file or a link: one of these, or nothing.
    pub(super) fn replaceable(&self) -> Result<Option<Stat>, Errno> {
        let found = self.look()?;
        match found.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            None | Some(FileType::RegularFile | FileType::Symlink) => Ok(found),
            Some(FileType::Directory) => Err(Errno::ISDIR),
            Some(_) => Err(Errno::PERM),
        }
    }

    /// Makes a directory, if there is none, and sets its permissions and times.
    pub(super) fn make_directory(&self, permissions: u32, times: &Timestamps) -> Result<(), Errno> {
        match mkdirat(&self.directory, &self.name, Mode::RWXU) {
            Ok(()) => fsync(&self.directory)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let before = rustix::fs::fstat(&made)?.st_mode;
        let mode = before & !PERMISSIONS & 0o7777 | permissions & PERMISSIONS;
        if mode != before & 0o7777 {
            fchmod(&made, Mode::from_raw_mode(mode))?;
        }
        futimens(&made, times)
    }

    /// Sees to it that the file that is there can still be read when it is not there any more.
    pub(super) fn keep(&self, replaced: &Replaced) {
        let is_regular = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if self.look().is_ok_and(|stat| stat.is_some_and(is_regular))
            && let Ok(file) = openat(&self.directory, &self.name, flags, Mode::empty())
        {
            replaced.keep(file.into());
        }
    }

    /// Removes what is there, if it is not a directory with something in it.
    pub(super) fn remove(&self, replaced: &Replaced) -> Result<(), Errno> {
        let Some(stat) = self.look()? else { return Ok(()) };
        self.keep(replaced);
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        unlinkat(&self.directory, &self.name, if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() })?;
        fsync(&self.directory)
    }
}

/// The number of an error that the standard library reports.
fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
