// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replacing a file or a link: at every moment its name leads to the old one or to the new one, whole.

use super::leftovers::{claim, make_up};
use super::place::{PERMISSIONS, Place};
use pando_abi::channel::Entry;
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

/// A name in a place's directory that nothing has yet, with what was made there; gone again unless it was moved to the place.
#[derive(Debug)]
struct Temporary {
    place: Place,
    name: OsString,
    moved: bool,
}

impl Temporary {
    /// Makes something under a name of its own in the directory of the place.
    fn new<T>(place: Place, make: impl Fn(&Place, &OsStr) -> Result<T, Errno>) -> Result<(Temporary, T), Errno> {
        loop {
            let name = make_up();
            match make(&place, &name) {
                Ok(made) => return Ok((Temporary { place, name, moved: false }, made)),
                // What a process of the same number left, or somebody's joke.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves it to its place.
    fn finish(mut self, replaced: &Replaced) -> Result<(), Errno> {
        self.place.keep(replaced);
        let Place { directory, name } = &self.place;
        renameat(directory, &self.name, directory, name)?;
        self.moved = true;
        fsync(directory)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.moved {
            // Whoever removed it meanwhile has done the same.
            let _ = unlinkat(&self.place.directory, &self.name, AtFlags::empty());
        }
    }
}

/// A regular file that is being received, under a name of its own until it is complete.
#[derive(Debug)]
pub(super) struct Replacement {
    temporary: Temporary,
    export: u32,
    file: OwnedFd,
    path: Vec<u8>,
    /// What it replaces.
    before: Option<Stat>,
    size: u64,
    permissions: u32,
    times: Timestamps,
}

impl Replacement {
    /// Begins a file.
    ///
    /// # Errors
    /// Something is there that is not to be replaced, or the host refuses.
    pub(super) fn begin(place: Place, path: &[u8], entry: &Entry, times: Timestamps) -> Result<Replacement, Errno> {
        let before = place.replaceable()?.filter(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |place: &Place, name: &OsStr| claim(openat(&place.directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        let (temporary, file) = Temporary::new(place, open)?;
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
    /// They lie beyond its end, or the host refuses.
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

    /// Puts it in its place; what was not written of it is zero.
    ///
    /// # Errors
    /// The host refuses; what was there before still is.
    pub(super) fn finish(self, replaced: &Replaced) -> Result<(), Errno> {
        let Replacement { temporary, file, before, size, permissions, times, .. } = self;
        retry_on_intr(|| ftruncate(&file, size))?;
        if let Some(before) = before {
            // The owner stays, where the caller may see to that: who owns a file is not the cell's to say.
            let _ = fchown(&file, Some(Uid::from_raw(before.st_uid)), Some(Gid::from_raw(before.st_gid)));
        }
        fchmod(&file, Mode::from_raw_mode(permissions & PERMISSIONS))?;
        futimens(&file, &times)?;
        retry_on_intr(|| fsync(&file))?;
        replaced.is_new(&File::from(file));
        temporary.finish(replaced)
    }
}

/// Makes a symbolic link, in place of what is there.
///
/// # Errors
/// Something is there that is not to be replaced, or the host refuses.
pub(super) fn symlink(place: Place, target: &[u8], times: &Timestamps, replaced: &Replaced) -> Result<(), Errno> {
    if target.is_empty() || target.len() > pando_abi::channel::MAX_PATH || target.contains(&0) {
        return Err(Errno::INVAL);
    }
    place.replaceable()?;
    let (temporary, ()) = Temporary::new(place, |place, name| symlinkat(OsStr::from_bytes(target), &place.directory, name))?;
    utimensat(&temporary.place.directory, &temporary.name, times, AtFlags::SYMLINK_NOFOLLOW)?;
    temporary.finish(replaced)
}
