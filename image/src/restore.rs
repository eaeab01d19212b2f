// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached images that are opened again for memory that was made with them: a template's, or a paused session's.
//!
//! That memory knows files by block numbers. The numbers in the tables are always the same. Those of files that changed later
//! ([`crate::revision`]) are given in the order in which their inodes are read, so they are recorded with the memory, and restored before
//! anything is read. Files that the memory depends on are compared with the host, and are shown in that version or not at all.
//!
//! Versions that the host no longer has are not recorded, because they cannot be read. Their blocks stay reserved: reading them is an
//! error, and they never become another file's.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FileType, Stat};

use crate::{
    BlockError, Image,
    host::{HostBlocks, lock},
    revision::OpenDirectory,
    tables::{Extent, FileRecord},
    version::{ChangeTime, Version},
};

/// A version of a file that is later than the image: the first block of its content in the image, the file's number in the image, its
/// device, inode, size and modification time, the lower twelve bits of its mode, and its change time.
pub type LaterVersion = (u32, u32, (u64, u64, u64, i64, u32), u16, (i64, u32));

/// The block numbers of files that have changed since the image was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaterVersions {
    /// How many spare blocks have been allocated. Memory that was made with the image may know all of them.
    pub allocated_blocks: u32,
    /// The versions that can be read, in the order of their first blocks.
    pub readable: Vec<LaterVersion>,
}

/// A file of the host, as an image has recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOnHost {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// The lower twelve bits of its mode.
    pub permissions: u16,
}

impl Image {
    /// Prepares a cached image for memory that depends on these files, which are given by their first blocks, and knows these later
    /// versions of files. Nothing else may have been read of the image.
    ///
    /// # Errors
    /// [`BlockError::Changed`]: the host's file is another. [`BlockError::Damaged`]: these are not of this image.
    pub fn restore(&mut self, used: &BTreeSet<u32>, later: &LaterVersions) -> Result<(), BlockError> {
        match self.host_mut() {
            Some(host) => host.restore(used, later),
            None if used.is_empty() && later.allocated_blocks == 0 => Ok(()),
            None => Err(BlockError::Damaged("it has no host files")),
        }
    }

    /// The files of which content was read since the image was opened, by their first blocks.
    #[must_use]
    pub fn read_files(&self) -> BTreeSet<u32> {
        self.host().map(|host| lock(&host.log).extents().collect()).unwrap_or_default()
    }

    /// The files to which blocks in these ranges belong, by their first blocks.
    ///
    /// # Errors
    /// A table is damaged.
    pub fn files_of(&self, ranges: &[Range<u64>]) -> Result<BTreeSet<u32>, BlockError> {
        let mut found = BTreeSet::new();
        let Some(host) = self.host() else { return Ok(found) };
        for range in ranges {
            let mut block = range.start;
            // Ranges are of mapped files. Those without an extent cannot be read any more.
            while block < range.end {
                let Some((extent, _)) = host.extent(block)?.filter(|(extent, _)| extent.blocks_left(block) > 0) else { break };
                found.insert(extent.first);
                block += extent.blocks_left(block);
            }
        }
        Ok(found)
    }

    /// Those of these files, given by their first blocks, that the host has no longer in the version of the image; with their paths.
    /// Costs a `stat` for each.
    ///
    /// # Errors
    /// A table is damaged, or these are not of this image.
    pub fn changed_files(&self, used: &BTreeSet<u32>) -> Result<BTreeMap<u32, PathBuf>, BlockError> {
        self.host().map_or_else(|| Ok(BTreeMap::new()), |host| host.changed_files(used))
    }

    /// The later versions of files that memory may know: those that the host still has, and those of these used files. Costs a `stat` for
    /// each.
    ///
    /// # Errors
    /// A table is damaged.
    pub fn later_versions(&self, used: &BTreeSet<u32>) -> Result<LaterVersions, BlockError> {
        self.host().map_or_else(|| Ok(LaterVersions::default()), |host| host.later_versions(used))
    }

    /// Whether a file has changed that could be read, or whose change would be noticed earlier, if the image were opened again.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.hosts().any(|host| host.is_stale.load(Ordering::Relaxed))
    }

    /// A single file that was added to the image and has changed. Costs a `stat` for each.
    ///
    /// # Errors
    /// A table is damaged.
    pub fn changed_single_file(&self) -> Result<Option<PathBuf>, BlockError> {
        for host in self.hosts().filter(|host| host.used.is_none() && host.tables().all_files().len() == 1) {
            let record = host.tables().file(0)?;
            if host.present(&record, &record.version, &mut OpenDirectory::default())?.is_none() {
                return Ok(Some(host.tables().path(&record)?));
            }
        }
        Ok(None)
    }

    /// The file on the host whose content begins with this block. `None`: it is a later version.
    ///
    /// # Errors
    /// A table is damaged, or no content begins there.
    pub fn file_of(&self, first: u32) -> Result<Option<FileOnHost>, BlockError> {
        let host = self.host().ok_or(BlockError::Damaged("it has no host files"))?;
        let (extent, later, record) = host.file_at(first)?;
        let found = || Ok(FileOnHost { path: host.tables().path(&record)?, size: extent.size, permissions: record.version.permissions });
        later.is_none().then(found).transpose()
    }

    /// Sets the content of files, by their first blocks. They are not read from the host any more, and their changes do not matter. Content
    /// of another size than the file's, or of no file, is left out.
    pub fn set_contents(&mut self, contents: BTreeMap<u32, Arc<[u8]>>) {
        let Some(host) = self.host_mut() else { return };
        let is_whole = |first: u32, content: &[u8]| {
            host.file_at(first).is_ok_and(|(extent, later, _)| later.is_none() && extent.size == content.len() as u64)
        };
        host.contents = contents.into_iter().filter(|(first, content)| is_whole(*first, content)).collect();
    }
}

impl HostBlocks {
    fn restore(&mut self, used: &BTreeSet<u32>, later: &LaterVersions) -> Result<(), BlockError> {
        let is_known = |file: &u32| self.tables().file(*file).is_ok();
        let mut revisions = self.revisions.as_ref().map(lock);
        for version @ (_, file, ..) in &later.readable {
            let (extent, version) = version_of(*version);
            let is_valid = is_known(file) && version.changed.nanoseconds < 1_000_000_000;
            if !is_valid || !revisions.as_mut().is_some_and(|revisions| revisions.restore(extent, version)) {
                return Err(BlockError::Damaged("a later version of a file cannot be restored"));
            }
        }
        if !revisions.as_mut().map_or(later.allocated_blocks == 0, |revisions| revisions.reserve(later.allocated_blocks)) {
            return Err(BlockError::Damaged("the blocks of later versions cannot be reserved"));
        }
        drop(revisions);
        let mut files = HashSet::with_capacity(used.len());
        let mut directory = OpenDirectory::default();
        for first in used {
            let (extent, later, record) = self.file_at(*first)?;
            files.insert(extent.file);
            if self.contents.contains_key(first) {
                if let Some(revisions) = &self.revisions {
                    lock(revisions).pin_version(extent.file, None);
                }
                continue;
            }
            let stat = self.present(&record, &later.unwrap_or(record.version), &mut directory)?;
            let stat = stat.ok_or_else(|| self.tables().path(&record).map_or_else(|error| error, BlockError::Changed))?;
            if let Some(revisions) = &self.revisions {
                // From now on the file is this version or an error, as in the cells that have read it.
                lock(revisions).pin_version(extent.file, later.map(|_| (stat, extent.first)));
            }
        }
        self.used = Some(files);
        Ok(())
    }

    fn changed_files(&self, used: &BTreeSet<u32>) -> Result<BTreeMap<u32, PathBuf>, BlockError> {
        let mut changed = BTreeMap::new();
        let mut directory = OpenDirectory::default();
        for first in used.iter().filter(|first| !self.contents.contains_key(first)) {
            let (_, later, record) = self.file_at(*first)?;
            if self.present(&record, &later.unwrap_or(record.version), &mut directory)?.is_none() {
                changed.insert(*first, self.tables().path(&record)?);
            }
        }
        Ok(changed)
    }

    fn later_versions(&self, used: &BTreeSet<u32>) -> Result<LaterVersions, BlockError> {
        let Some(revisions) = &self.revisions else { return Ok(LaterVersions::default()) };
        // Copied, because the lock is not held over I/O.
        let (allocated_blocks, all) = {
            let revisions = lock(revisions);
            let all: Vec<(Extent, Version)> = revisions.list().copied().collect();
            (revisions.allocated_blocks(), all)
        };
        let mut readable = Vec::new();
        let mut directory = OpenDirectory::default();
        for later in &all {
            let (extent, version) = later;
            let record = self.tables().file(extent.file)?;
            if used.contains(&extent.first) || self.present(&record, version, &mut directory)?.is_some() {
                readable.push(record_of(later));
            }
        }
        Ok(LaterVersions { allocated_blocks, readable })
    }

    /// The content that begins with this block, the version if it is a later one, and the file's record.
    fn file_at(&self, first: u32) -> Result<(Extent, Option<Version>, FileRecord), BlockError> {
        let found = self.extent(first.into())?.filter(|(extent, _)| extent.first == first);
        let (extent, later) = found.ok_or(BlockError::Damaged("no file has this first block"))?;
        Ok((extent, later, self.tables().file(extent.file)?))
    }

    /// The status of a file if the host has it in this version.
    fn present(&self, record: &FileRecord, version: &Version, directory: &mut OpenDirectory) -> Result<Option<Stat>, BlockError> {
        let is_same =
            |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && Version::of(stat).has_content_of(version);
        Ok(directory.status(self.tables(), record)?.filter(is_same))
    }
}

fn record_of((extent, version): &(Extent, Version)) -> LaterVersion {
    let Version { device, inode, size, modified, permissions, changed } = *version;
    let changed = (changed.seconds, changed.nanoseconds);
    (extent.first, extent.file, (device, inode, size, modified.0, modified.1), permissions, changed)
}

fn version_of((first, file, (device, inode, size, seconds, nanoseconds), permissions, changed): LaterVersion) -> (Extent, Version) {
    let changed = ChangeTime { seconds: changed.0, nanoseconds: changed.1 };
    let version = Version { device, inode, size, modified: (seconds, nanoseconds), permissions, changed };
    (Extent { first, file, offset: 0, size }, version)
}
