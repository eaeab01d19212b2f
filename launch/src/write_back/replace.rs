// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic replacement of files and links: at every moment the name refers to the complete old or the complete new one.

use super::temporary_files::{claim, unique_name};
use super::write_target::{PERMISSIONS, WriteTarget};
use pando_abi::channel::ExportedFile;
use pando_image::Replaced;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat, Timestamps, Uid, fchmod, fchown, fsync, ftruncate, futimens, openat, renameat, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::{Errno, pwrite, retry_on_intr};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// A temporary file in a place's directory; removed unless it was moved to the place.
#[derive(Debug)]
struct Temporary {
    destination: WriteTarget,
    name: OsString,
    moved: bool,
}

impl Temporary {
    /// Creates a file under a temporary name in the directory of the place.
    fn new<T>(destination: WriteTarget, make: impl Fn(&WriteTarget, &OsStr) -> Result<T, Errno>) -> Result<(Temporary, T), Errno> {
        loop {
            let name = unique_name();
            match make(&destination, &name) {
                Ok(created) => return Ok((Temporary { destination, name, moved: false }, created)),
                // A leftover of a process with the same ID, or a file with such a name.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves it to its place.
    fn finish(mut self, replaced: &Replaced) -> Result<(), Errno> {
        self.destination.keep(replaced);
        let WriteTarget { directory, name } = &self.destination;
        renameat(directory, &self.name, directory, name)?;
        self.moved = true;
        fsync(directory)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.moved {
            // It may have been removed meanwhile.
            let _ = unlinkat(&self.destination.directory, &self.name, AtFlags::empty());
        }
    }
}

/// A regular file that is being received, under a temporary name until it is complete.
#[derive(Debug)]
pub(super) struct Replacement {
    temporary: Temporary,
    export: u32,
    file: OwnedFd,
    path: Vec<u8>,
    /// The file that it replaces.
    before: Option<Stat>,
    size: u64,
    permissions: u32,
    times: Timestamps,
}

impl Replacement {
    /// Starts to receive a file.
    ///
    /// # Errors
    /// The place holds a file that must not be replaced, or the host refuses.
    pub(super) fn begin(destination: WriteTarget, path: &[u8], entry: &ExportedFile, times: Timestamps) -> Result<Replacement, Errno> {
        let before = destination.replaceable()?.filter(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |destination: &WriteTarget, name: &OsStr| claim(openat(&destination.directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        let (temporary, file) = Temporary::new(destination, open)?;
        let export = entry.export;
        Ok(Replacement { temporary, export, file, path: path.to_vec(), before, size: entry.size, permissions: entry.permissions, times })
    }

    /// The number of its export.
    pub(super) fn export(&self) -> u32 {
        self.export
    }

    /// Its path in the export.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Writes some of its bytes.
    ///
    /// # Errors
    /// They are beyond its end, or the host refuses.
    pub(super) fn write(&self, mut offset: u64, mut bytes: &[u8]) -> Result<(), Errno> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size) {
            return Err(Errno::FBIG);
        }
        while !bytes.is_empty() {
            let written = retry_on_intr(|| pwrite(&self.file, bytes, offset))?;
            offset += written as u64;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Moves it to its place; unwritten parts are zero.
    ///
    /// # Errors
    /// The host refuses; the old file remains.
    pub(super) fn finish(self, replaced: &Replaced) -> Result<(), Errno> {
        let Replacement { temporary, file, before, size, permissions, times, .. } = self;
        retry_on_intr(|| ftruncate(&file, size))?;
        if let Some(before) = before {
            // The owner is kept if the caller may set it: the cell does not control it.
            let _ = fchown(&file, Some(Uid::from_raw(before.st_uid)), Some(Gid::from_raw(before.st_gid)));
        }
        fchmod(&file, Mode::from_raw_mode(permissions & PERMISSIONS))?;
        futimens(&file, &times)?;
        retry_on_intr(|| fsync(&file))?;
        replaced.record_created(&File::from(file));
        temporary.finish(replaced)
    }
}

/// Creates a symbolic link, replacing the file at the destination.
///
/// # Errors
/// The place holds a file that must not be replaced, or the host refuses.
pub(super) fn symlink(destination: WriteTarget, target: &[u8], times: &Timestamps, replaced: &Replaced) -> Result<(), Errno> {
    if target.is_empty() || target.len() > pando_abi::channel::MAX_PATH || target.contains(&0) {
        return Err(Errno::INVAL);
    }
    destination.replaceable()?;
    let (temporary, ()) =
        Temporary::new(destination, |destination, name| symlinkat(OsStr::from_bytes(target), &destination.directory, name))?;
    utimensat(&temporary.destination.directory, &temporary.name, times, AtFlags::SYMLINK_NOFOLLOW)?;
    temporary.finish(replaced)
}
