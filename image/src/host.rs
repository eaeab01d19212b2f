// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data that lies in files of the host: opened when it is first wanted, read with `pread`, compared with what was
//! recorded before and after.
//!
//! A file is what it was recorded as, or reading it is an error: its inode, size and modification time are compared when it is
//! opened and after each read. A change time that has moved leads to a [check](crate::read_log) of what was read before. It is never followed through a link at its end, and nothing but a regular file is
//! opened: whatever took its place meanwhile differs in its inode.
//!
//! A file's times move with the clock's tick, so a change in the very tick in which the file was recorded would not
//! show. Who opens a file that changed in this tick therefore waits for the next one.

use std::{
    collections::HashMap,
    fs::File,
    hash::Hasher,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, open, statat},
    io::{Errno, retry_on_intr},
};

use crate::{
    Attributes, BlockError, Time,
    format::BLOCK_SIZE,
    open_files::{OpenFiles, with_descriptor},
    read_log::ReadLog,
    replaced::Replaced,
    tables::{ChangeTime, Extent, FileRecord, Sizes, Tables, Version},
};

/// Permissions to read, of anybody.
const READABLE: u16 = 0o444;
/// How often a file whose change time moves is looked at again in one read.
const CHECKS_MAX: usize = 4;
/// Twice the longest tick that Linux is built with.
const TICK: Duration = Duration::from_millis(20);

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

    /// Whether it has the same content as an earlier version, as far as inode, size and modification time say it, and may be read by all who could
    /// read that. Another name changes none of these.
    pub(crate) fn has_content_of(&self, earlier: &Version) -> bool {
        let is_closed = earlier.permissions & !self.permissions & READABLE != 0;
        Version { changed: earlier.changed, permissions: earlier.permissions, ..*self } == *earlier && !is_closed
    }

    /// Waits until another change would show in the times.
    pub(crate) fn settle(&self) {
        let Ok(seconds) = u64::try_from(self.changed.seconds) else { return };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, self.changed.nanoseconds);
        // A file from the future, where the clock was set back, cannot be waited for.
        if let Ok(age) = changed.elapsed() {
            thread::sleep(TICK.saturating_sub(age));
        }
    }
}

/// What a file is now, without following a link or having an automatic mount made.
pub(crate) fn look(path: &Path) -> Result<Stat, Errno> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// Opens a file without waiting for anything that stands at its name, and without following a link.
pub(crate) fn open_at(path: &Path, more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    Ok(retry_on_intr(|| open(path, flags, Mode::empty()))?.into())
}

/// The part of an image whose blocks lie in host files.
#[derive(Debug)]
pub(crate) struct HostBlocks {
    tables: Tables,
    /// Files that stay open whatever happens.
    held: HashMap<u32, Arc<File>>,
    open: OpenFiles,
    /// What was read of them.
    log: Mutex<ReadLog>,
}

impl HostBlocks {
    pub(crate) fn new(tables: Tables, held: impl IntoIterator<Item = (u32, Arc<File>)>) -> Self {
        HostBlocks { tables, held: held.into_iter().collect(), open: OpenFiles::new(), log: Mutex::default() }
    }

    /// Adds to a sign which files they come from, as they were looked at.
    pub(crate) fn sign(&self, hasher: &mut impl Hasher) {
        self.tables.sign(hasher);
    }

    /// The tables, if they lie in memory and no file is held.
    pub(crate) fn tables_in_memory(&self) -> Option<(&[u8], Sizes)> {
        if self.held.is_empty() { self.tables.in_memory() } else { None }
    }

    /// Whether a directory of the host is not as it was. Costs a look at each.
    pub(crate) fn is_outdated(&self) -> bool {
        let unchanged = |path: &Path, modified| look(path).is_ok_and(|stat| Version::of(&stat).modified == modified);
        !self.tables.all_directories().all(|directory| directory.is_ok_and(|(path, modified)| unchanged(&path, modified)))
    }

    /// Reads whole blocks, those that no extent has as zero.
    pub(crate) fn read(&self, mut first: u64, buffer: &mut [u8], replaced: Option<&Replaced>) -> Result<(), BlockError> {
        let mut rest = buffer;
        while !rest.is_empty() {
            let blocks = rest.len() as u64 / BLOCK_SIZE;
            let run = self.run(first)?.min(blocks);
            let (piece, behind) = rest.split_at_mut((run * BLOCK_SIZE) as usize);
            match self.tables.extent(first)?.filter(|extent| extent.rest(first) > 0) {
                Some(extent) => self.read_extent(&extent, first, piece, replaced)?,
                None => piece.fill(0),
            }
            (rest, first) = (behind, first + run);
        }
        Ok(())
    }

    /// How many blocks from this one on come from the same file; at least one.
    pub(crate) fn run(&self, first: u64) -> Result<u64, BlockError> {
        Ok(self.tables.extent(first)?.map_or(0, |extent| extent.rest(first)).max(1))
    }

    fn read_extent(&self, extent: &Extent, first: u64, buffer: &mut [u8], replaced: Option<&Replaced>) -> Result<(), BlockError> {
        let skipped = (first - u64::from(extent.first)) * BLOCK_SIZE;
        let left = usize::try_from(extent.size - skipped).unwrap_or(usize::MAX);
        let (data, tail) = buffer.split_at_mut(left.min(buffer.len()));
        tail.fill(0);
        let record = self.tables.file(extent.file)?;
        let outcome = self.read_named(extent, &record, first, data);
        if outcome.is_ok() {
            return outcome;
        }
        // It may have lost its name just now.
        match replaced.and_then(|replaced| replaced.read(&record.version, extent.offset.saturating_add(skipped), data)) {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(BlockError::Changed(self.tables.path(&record)?)),
            Some(Err(error)) => Err(failure(error, self.tables.path(&record)?)),
            None => outcome,
        }
    }

    /// Reads a file that has its name still, from a block on.
    fn read_named(&self, extent: &Extent, record: &FileRecord, first: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        let path = || self.tables.path(record);
        let failed = |error: io::Error| match path() {
            Ok(path) => failure(error, path),
            Err(error) => error,
        };
        let file = match self.opened(extent.file) {
            Some(file) => file,
            None => {
                record.version.settle();
                let file = Arc::new(open_version(&path()?, &record.version)?);
                self.open.keep(extent.file, &file);
                file
            }
        };
        let offset = extent.offset.saturating_add((first - u64::from(extent.first)) * BLOCK_SIZE);
        let known = lock(&self.log).changed(extent, &record.version);
        file.read_exact_at(buffer, offset).map_err(failed)?;
        let mut log = lock(&self.log);
        let mut read = version(&file).map_err(failed)?;
        if read.changed != known || log.changed(extent, &record.version) != known {
            // It got a link or another mode perhaps. Nobody else reads it meanwhile.
            for _ in 0..CHECKS_MAX {
                let before = read;
                before.settle();
                if !before.has_content_of(&record.version) || !log.is_same(extent, &file).map_err(failed)? {
                    break;
                }
                file.read_exact_at(buffer, offset).map_err(failed)?;
                read = version(&file).map_err(failed)?;
                if read == before {
                    log.accept(extent, read.changed);
                    break;
                }
            }
        }
        // Whoever wrote to it meanwhile has moved its times: what was read is one content and not a mixture.
        if !read.has_content_of(&record.version) || read.changed != log.changed(extent, &record.version) {
            return Err(BlockError::Changed(path()?));
        }
        log.add(extent, first, buffer, read.changed);
        Ok(())
    }

    fn opened(&self, number: u32) -> Option<Arc<File>> {
        if let Some(file) = self.held.get(&number) {
            return Some(Arc::clone(file));
        }
        self.open.get(number)
    }

    /// Closes the files that can be opened again.
    pub(crate) fn close_files(&self) {
        self.open.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The data is consistent even if a thread panicked while it held the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which version of it an open file is now.
fn version(file: &File) -> io::Result<Version> {
    Ok(Version::of(&fstat(file)?))
}

impl Extent {
    /// Blocks of it from this one on.
    fn rest(&self, block: u64) -> u64 {
        (u64::from(self.first) + self.size.div_ceil(BLOCK_SIZE)).saturating_sub(block)
    }
}

/// Opens a file if it is still this version of it.
fn open_version(path: &Path, version: &Version) -> Result<File, BlockError> {
    let changed = || BlockError::Changed(path.into());
    let is_the_same =
        |stat: &Stat| Version::of(stat).has_content_of(version) && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let failed = |error: Errno| failure(error.into(), path.into());
    // Looked at before it is opened, because opening a device may have effects.
    if !is_the_same(&look(path).map_err(failed)?) {
        return Err(changed());
    }
    let file = with_descriptor(|| open_at(path, OFlags::empty())).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    if is_the_same(&stat) { Ok(file) } else { Err(changed()) }
}

/// What an error of the host means for a file that was there.
fn failure(error: io::Error, path: PathBuf) -> BlockError {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => BlockError::Changed(path),
        None if error.kind() == io::ErrorKind::UnexpectedEof => BlockError::Changed(path),
        _ => BlockError::Host { path, source: error },
    }
}

/// What an image says of a file of the host.
pub(crate) fn attributes(stat: &Stat) -> Attributes {
    Attributes {
        permissions: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified: Time { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
    }
}
