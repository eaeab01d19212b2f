// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data in host files: opened at their first read, read with `pread`, and compared with their recorded versions before and after.
//!
//! Reading a file that differs from its record is an error: inode, size and modification time are compared when it is opened and after
//! each read. A changed change time leads to a [check](crate::read_log) of the data that was read before. A link at the path's end is
//! never followed, and nothing but a regular file is opened: a replacement differs in its inode.
//!
//! A file's times have the granularity of the clock's tick, so a change in the tick in which the file was recorded would not show. So
//! opening a file that changed in this tick waits for the next one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    hash::Hasher,
    io,
    num::NonZero,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use pando_erofs::IdentityTable;
use rustix::{
    fs::{FileType, OFlags, Stat, fstat},
    io::Errno,
};

use crate::{
    BLOCK_SIZE, BlockError,
    host_stat::{lstat, open_at, version},
    open_files::{OpenFiles, with_descriptor},
    read_log::ReadLog,
    replaced::Replaced,
    revision::{OpenDirectory, Revisions},
    tables::{DirectoryRecord, Extent, FileRecord, Sizes, Tables},
    version::Version,
};

/// How often one read retries a file whose change time moves.
const CHECKS_MAX: usize = 4;
/// Directories that are worth a second thread.
const SHARE: usize = 256;
/// Files that are worth another thread.
const FILES_SHARE: usize = 2048;
/// Threads that compare files.
const THREADS_MAX: usize = 8;

/// The part of an image whose blocks are in host files.
#[derive(Debug)]
pub(crate) struct HostBlocks {
    tables: Tables,
    /// Files that stay open whatever happens.
    held: HashMap<u32, Arc<File>>,
    open: OpenFiles,
    /// The log of what was read from them.
    pub(crate) log: Mutex<ReadLog>,
    pub(crate) revisions: Option<Mutex<Revisions>>,
    /// The files on which memory depends that was made with it, by number, if it was opened again for that.
    pub(crate) used: Option<HashSet<u32>>,
    /// A file has changed, and if the image were opened again, that would be known, or the file could be read.
    pub(crate) is_stale: AtomicBool,
    /// The content of files that need not be read, by first block.
    pub(crate) contents: BTreeMap<u32, Arc<[u8]>>,
    /// Identifies the content of all files.
    content_id: Option<[u8; 32]>,
}

impl HostBlocks {
    pub(crate) fn new(tables: Tables, held: impl IntoIterator<Item = (u32, Arc<File>)>) -> Self {
        HostBlocks {
            tables,
            held: held.into_iter().collect(),
            open: OpenFiles::new(),
            log: Mutex::default(),
            revisions: None,
            used: None,
            is_stale: AtomicBool::new(false),
            contents: BTreeMap::new(),
            content_id: None,
        }
    }

    /// Adds the recorded files to a fingerprint, or what identifies their content.
    pub(crate) fn hash_content(&self, hasher: &mut impl Hasher) {
        match &self.content_id {
            Some(id) => hasher.write(id),
            None => self.tables.hash_content(hasher),
        }
    }

    /// Sets what identifies the content of all files.
    pub(crate) fn identify_content(&mut self, id: [u8; 32]) {
        self.content_id = Some(id);
    }

    /// The tables, if they are in memory and no file is held open.
    pub(crate) fn tables_in_memory(&self) -> Option<(&[u8], Sizes)> {
        if self.held.is_empty() { self.tables.in_memory() } else { None }
    }

    /// The recorded files and directories.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Whether a directory of the host has changed. Costs a `stat` for each.
    pub(crate) fn is_outdated(&self) -> bool {
        let Ok(directories) = self.tables.all_directories().collect::<Result<Vec<_>, _>>() else { return true };
        !directories_where(&directories, |path, record| !is_same(record, lstat(path).ok().as_ref())).is_empty()
    }

    /// The directories of the host that have changed since, or may have; and all directories.
    pub(crate) fn changed_directories(&self) -> Result<(Vec<ChangedDirectory>, Vec<RecordedDirectory>), BlockError> {
        let directories = self.tables.all_directories().collect::<Result<Vec<_>, _>>()?;
        let changed = directories_where(&directories, |path, record| !record.is_settled || !is_same(record, lstat(path).ok().as_ref()));
        let changed = changed.into_iter().map(|number| ChangedDirectory { number, stat: lstat(&directories[number].0).ok() });
        Ok((changed.collect(), directories))
    }

    /// Whether the host's files are those that were recorded. Costs a `stat` for each.
    pub(crate) fn has_same_files(&self) -> bool {
        let is_same = |range: Range<u32>| {
            let mut directory = OpenDirectory::default();
            range.into_iter().all(|number| {
                let record = self.tables.file(number).ok();
                let stat = record.and_then(|record| directory.status(&self.tables, &record).ok().flatten());
                record.is_some_and(|record| stat.is_some_and(|stat| Version::of(&stat) == record.version))
            })
        };
        let Range { end, .. } = self.tables.all_files();
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(end as usize / FILES_SHARE + 1) as u32;
        let part = |index: u32| (u64::from(end) * u64::from(index) / u64::from(threads)) as u32;
        thread::scope(|scope| {
            let others = (1..threads).map(|index| {
                let work = move || is_same(part(index)..part(index + 1));
                // A process that may start no more threads does it alone.
                thread::Builder::new().spawn_scoped(scope, work).map_err(|_| index)
            });
            let others: Vec<_> = others.collect();
            let first = is_same(0..part(1));
            let mut rest = others.into_iter().map(|other| match other {
                Ok(thread) => thread.join().unwrap_or(false),
                Err(index) => is_same(part(index)..part(index + 1)),
            });
            first & rest.all(|same| same)
        })
    }

    /// Reads whole blocks; those without an extent are zero. Spare ones without an extent are an error: memory that knows them had a file
    /// there.
    pub(crate) fn read(&self, mut first: u64, buffer: &mut [u8], replaced: Option<&Replaced>) -> Result<(), BlockError> {
        let mut rest = buffer;
        while !rest.is_empty() {
            let blocks = rest.len() as u64 / BLOCK_SIZE;
            let run = self.run(first)?.min(blocks);
            let (piece, remaining) = rest.split_at_mut((run * BLOCK_SIZE) as usize);
            match self.extent(first)?.filter(|(extent, _)| extent.blocks_left(first) > 0) {
                Some((extent, version)) => self.read_extent(&extent, version, first, piece, replaced)?,
                None if first >= self.tables.content_end()? => return Err(BlockError::NoFile { block: first }),
                None => piece.fill(0),
            }
            (rest, first) = (remaining, first + run);
        }
        Ok(())
    }

    /// How many blocks from this one on come from the same file; at least one.
    pub(crate) fn run(&self, first: u64) -> Result<u64, BlockError> {
        Ok(self.extent(first)?.map_or(0, |(extent, _)| extent.blocks_left(first)).max(1))
    }

    /// The last extent that begins with a block or before it, and the version of the file if it is a later one than the tables say.
    pub(crate) fn extent(&self, block: u64) -> Result<Option<(Extent, Option<Version>)>, BlockError> {
        let revised = self.revisions.as_ref().and_then(|revisions| lock(revisions).extent(block));
        Ok(match revised {
            Some((extent, version)) => Some((extent, Some(version))),
            None => self.tables.extent(block)?.map(|extent| (extent, None)),
        })
    }

    fn read_extent(
        &self,
        extent: &Extent,
        revised: Option<Version>,
        first: u64,
        buffer: &mut [u8],
        replaced: Option<&Replaced>,
    ) -> Result<(), BlockError> {
        let skipped = (first - u64::from(extent.first)) * BLOCK_SIZE;
        let left = usize::try_from(extent.size - skipped).unwrap_or(usize::MAX);
        let (data, tail) = buffer.split_at_mut(left.min(buffer.len()));
        tail.fill(0);
        if let Some(content) = self.contents.get(&extent.first) {
            let part = content.get(skipped as usize..).and_then(|content| content.get(..data.len()));
            data.copy_from_slice(part.ok_or(BlockError::Damaged("the content of a file is incomplete"))?);
            return Ok(());
        }
        let mut record = self.tables.file(extent.file)?;
        record.version = revised.unwrap_or(record.version);
        let outcome = self.read_named(extent, &record, first, data);
        if outcome.is_ok() {
            return outcome;
        }
        // Other errors of the host may be gone at the next attempt.
        if matches!(outcome, Err(BlockError::Changed(_))) {
            self.note_changed(extent.file, &record.version);
        }
        // It may just have been replaced or removed.
        match replaced.and_then(|replaced| replaced.read(&record.version, extent.offset.saturating_add(skipped), data)) {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(BlockError::Changed(self.tables.path(&record)?)),
            Some(Err(error)) => Err(failure(error, self.tables.path(&record)?)),
            None => outcome,
        }
    }

    /// Reads a file that still has its name, from a block on.
    fn read_named(&self, extent: &Extent, record: &FileRecord, first: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        let path = || self.tables.path(record);
        let failed = |error: io::Error| match path() {
            Ok(path) => failure(error, path),
            Err(error) => error,
        };
        let file = match self.opened(extent.file) {
            Some(file) => file,
            None => {
                record.version.await_clock_tick();
                let file = Arc::new(open_version(&path()?, &record.version)?);
                self.open.insert(extent.file, &file);
                file
            }
        };
        let offset = extent.offset.saturating_add((first - u64::from(extent.first)) * BLOCK_SIZE);
        let known = lock(&self.log).changed(extent, &record.version);
        file.read_exact_at(buffer, offset).map_err(failed)?;
        let mut log = lock(&self.log);
        let mut read = version(&file).map_err(failed)?;
        if read.changed != known || log.changed(extent, &record.version) != known {
            // It may have got a link or another mode. The lock is held, so no other thread reads it meanwhile.
            for _ in 0..CHECKS_MAX {
                let before = read;
                before.await_clock_tick();
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
        // A concurrent write would have changed its times: the bytes are of one version and not a mixture.
        if !read.has_content_of(&record.version) || read.changed != log.changed(extent, &record.version) {
            return Err(BlockError::Changed(path()?));
        }
        log.add(extent, first, buffer, read.changed);
        Ok(())
    }

    /// Records that the host no longer has a file in the version that the image shows.
    fn note_changed(&self, file: u32, shown: &Version) {
        if self.used.as_ref().is_none_or(|used| used.contains(&file)) || self.has_newer_version(file, shown) {
            self.is_stale.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the image would show another version of a file if it were opened again.
    fn has_newer_version(&self, file: u32, shown: &Version) -> bool {
        let Some(revisions) = self.revisions.as_ref().filter(|revisions| !lock(revisions).is_full()) else { return false };
        let present = || {
            let record = self.tables().file(file).ok()?;
            OpenDirectory::default().status(self.tables(), &record).ok()?
        };
        present().is_some_and(|stat| {
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            is_file && !Version::of(&stat).has_content_of(shown) && lock(revisions).can_show(file, &Version::of(&stat))
        })
    }

    /// Allows revisions if the tables give the inodes of the host's files. The image has `blocks` blocks; the last
    /// [`SPARE_BLOCKS`](crate::revision::SPARE_BLOCKS) are spare.
    pub(crate) fn allow_revisions(&mut self, blocks: u64, identities: Option<IdentityTable>) {
        if self.tables.has_slots() {
            self.revisions = Some(Mutex::new(Revisions::new(blocks, identities)));
        }
    }

    /// Forbids revisions: a file that differs from its record is an error.
    pub(crate) fn forbid_revisions(&mut self) {
        self.revisions = None;
    }

    /// Whether its inodes are compared with the host when they are read.
    pub(crate) fn is_revised(&self) -> bool {
        self.revisions.is_some()
    }

    /// Updates the inodes and identities in blocks that were just read to the host's present state.
    pub(crate) fn revise(&self, first: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        match &self.revisions {
            Some(revisions) => lock(revisions).revise(&self.tables, first, blocks),
            None => Ok(()),
        }
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

/// A directory of the host: its path, and its state when the image was made.
pub(crate) type RecordedDirectory = (PathBuf, DirectoryRecord);

/// A directory of the host that has changed.
#[derive(Debug)]
pub(crate) struct ChangedDirectory {
    /// The number of its record.
    pub(crate) number: usize,
    /// Its present status; `None` if it has none.
    pub(crate) stat: Option<Stat>,
}

/// Whether a directory is the recorded one, with the same names and permissions.
fn is_same(record: &DirectoryRecord, stat: Option<&Stat>) -> bool {
    let same = |version: Version| (version.device, version.inode, version.changed) == (record.device, record.inode, record.changed);
    stat.is_some_and(|stat| same(Version::of(stat)))
}

/// The numbers of the directories for which this holds, found by two threads.
fn directories_where(all: &[RecordedDirectory], holds: impl Fn(&Path, &DirectoryRecord) -> bool + Sync) -> Vec<usize> {
    let search = |range: Range<usize>| range.filter(|&number| holds(&all[number].0, &all[number].1)).collect::<Vec<_>>();
    let middle = if all.len() < SHARE { 0 } else { all.len() / 2 };
    if middle == 0 {
        return search(0..all.len());
    }
    let mut found = thread::scope(|scope| {
        // A process that may start no more threads does it alone.
        let first = thread::Builder::new().spawn_scoped(scope, || search(0..middle));
        let second = search(middle..all.len());
        let mut found = first.map_or_else(|_| search(0..middle), |first| first.join().expect("comparing a directory does not panic"));
        found.extend(second);
        found
    });
    found.sort_unstable();
    found
}

impl Extent {
    /// The number of its blocks from this one on.
    pub(crate) fn blocks_left(&self, block: u64) -> u64 {
        (u64::from(self.first) + self.size.div_ceil(BLOCK_SIZE)).saturating_sub(block)
    }
}

/// Opens a file if it is still this version.
fn open_version(path: &Path, version: &Version) -> Result<File, BlockError> {
    let changed = || BlockError::Changed(path.into());
    let is_the_same =
        |stat: &Stat| Version::of(stat).has_content_of(version) && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let failed = |error: Errno| failure(error.into(), path.into());
    // Checked before it is opened, because opening a device may have effects.
    if !is_the_same(&lstat(path).map_err(failed)?) {
        return Err(changed());
    }
    let file = with_descriptor(|| open_at(path, OFlags::empty())).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    if is_the_same(&stat) { Ok(file) } else { Err(changed()) }
}

/// The block error for a host's error on a file that existed.
fn failure(error: io::Error, path: PathBuf) -> BlockError {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => BlockError::Changed(path),
        None if error.kind() == io::ErrorKind::UnexpectedEof => BlockError::Changed(path),
        _ => BlockError::Host { path, source: error },
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The data is consistent even if a thread panicked while it held the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
