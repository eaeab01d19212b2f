// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached images that are opened again for memory that was made with them: a template's, or a paused session's.
//!
//! That memory knows files by block numbers. The numbers in the tables are always the same. Those of files that changed later
//! ([`crate::revision`]) are given in the order in which their inodes are read, so they are recorded with the memory, and restored before
//! anything is read. Files that the memory depends on are compared with the host, and are shown in that version or not at all.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;

use crate::{
    BlockError, Image,
    dependencies::FileDependencies,
    host::{HostBlocks, lock},
    revision::OpenDirectory,
    tables::{Extent, FileRecord},
    version::{ChangeTime, Version},
};

/// A version of a file that is later than the image: the first block of its content in the image, the file's number in the image, its
/// device, inode, size and modification time, the lower twelve bits of its mode, and its change time.
pub type LaterVersion = (u32, u32, (u64, u64, u64, i64, u32), u16, (i64, u32));

impl Image {
    /// Prepares a cached image for memory that depends on these files, which are given by their first blocks, and knows these later
    /// versions of files. Nothing else may have been read of the image.
    ///
    /// # Errors
    /// [`BlockError::Changed`]: the host's file is another. [`BlockError::Damaged`]: these are not of this image.
    pub fn restore(&mut self, used: &[u32], later: &[LaterVersion]) -> Result<(), BlockError> {
        match self.host_mut() {
            Some(host) => host.restore(used, later),
            None if used.is_empty() && later.is_empty() => Ok(()),
            None => Err(BlockError::Damaged("it has no host files")),
        }
    }

    /// The files of which content was read since the image was opened, by their first blocks.
    #[must_use]
    pub fn read_files(&self) -> Vec<u32> {
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
            // Ranges are of mapped files, so there are no gaps.
            while block < range.end {
                let Some((extent, _)) = host.extent(block)?.filter(|(extent, _)| extent.blocks_left(block) > 0) else { break };
                found.insert(extent.first);
                block += extent.blocks_left(block);
            }
        }
        Ok(found)
    }

    /// The versions of files that have been shown and are later than the image, at most as many as [`Image::restore`] accepts.
    #[must_use]
    pub fn later_versions(&self) -> Vec<LaterVersion> {
        let revisions = self.host().and_then(|host| host.revisions.as_ref());
        revisions.map(|revisions| lock(revisions).list().map(record_of).collect()).unwrap_or_default()
    }

    /// Whether files that cannot be read could be read, or their change would be noticed earlier, if the image were opened again.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        let restored = self.host().and_then(|host| host.restored.as_ref());
        restored.is_none_or(|restored| restored.is_stale.load(Ordering::Relaxed))
    }
}

impl HostBlocks {
    fn restore(&mut self, used: &[u32], later: &[LaterVersion]) -> Result<(), BlockError> {
        let is_known = |file: &u32| self.tables().file(*file).is_ok();
        let mut revisions = self.revisions.as_ref().map(lock);
        for version @ (_, file, ..) in later {
            let (extent, version) = version_of(*version);
            let is_restored = is_known(file) && revisions.as_mut().is_some_and(|revisions| revisions.restore(extent, version));
            if !is_restored {
                return Err(BlockError::Damaged("a later version of a file cannot be restored"));
            }
        }
        drop(revisions);
        let mut files = HashSet::with_capacity(used.len());
        let mut directory = OpenDirectory::default();
        for first in used {
            let found = self.extent((*first).into())?.filter(|(extent, _)| extent.first == *first);
            let (extent, later) = found.ok_or(BlockError::Damaged("no file has this first block"))?;
            let record = self.tables().file(extent.file)?;
            let version = later.unwrap_or(record.version);
            let stat = directory.status(self.tables(), &record)?;
            let same = stat.filter(|stat| {
                FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && Version::of(stat).has_content_of(&version)
            });
            let stat = same.ok_or_else(|| self.changed_file(&record))?;
            if let Some(revisions) = &self.revisions {
                // From now on the file is this version or an error, as in the cells that have read it.
                lock(revisions).settle(extent.file, later.map(|_| (stat, extent.first)));
            }
            files.insert(extent.file);
        }
        self.restored = Some(FileDependencies { used: files, is_stale: AtomicBool::new(false) });
        Ok(())
    }

    fn changed_file(&self, record: &FileRecord) -> BlockError {
        self.tables().path(record).map_or_else(|error| error, BlockError::Changed)
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
