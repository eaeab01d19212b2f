// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that changed since a cached image was made.
//!
//! Opening a cached image compares its directories with the host ([`crate::CachedImage::is_outdated`]), but not its files, which
//! are ten times as many. A file is compared when the block with its inode is first read. If the file has changed by then, its
//! inode describes the new version, and the new content gets blocks behind all others. Later changes do not alter the inode again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;

use pando_erofs::{BLOCK_SIZE, DiskInode, HostIdentity, ISLOT_SIZE, IdentityTable, NULL_ADDR};
use rustix::fs::{FileType, OFlags, Stat, fstat};

use crate::{
    BlockError,
    block::BLOCK,
    host_stat::{attributes, host_identity, lstat, lstat_in, open_at},
    open_files::with_descriptor,
    tables::{Extent, FileRecord, NONE, SlotRecord, Tables},
    version::Version,
};

/// Blocks for the content of files that changed: 4 GiB.
pub(crate) const SPARE_BLOCKS: u64 = 1 << 20;
/// Maximal number of later versions of files, because they are recorded with each template and paused session, some 100 bytes each.
const LATER_MAX: usize = 1 << 13;
/// Units of [`ISLOT_SIZE`] in a block.
const SLOTS: u64 = BLOCK_SIZE / ISLOT_SIZE;
/// Records of the identity table in a block.
const RECORDS: u64 = BLOCK_SIZE / HostIdentity::SIZE as u64;

/// The changes of an image's files.
#[derive(Debug)]
pub(crate) struct Revisions {
    /// The first free spare block, and the end of the spare blocks.
    spare: (u64, u64),
    identities: Option<IdentityTable>,
    /// Files that were compared, by number; `None`: the file has not changed.
    files: HashMap<u32, Option<Box<Revision>>>,
    /// Content in spare blocks, by first block.
    extents: BTreeMap<u64, (Extent, Version)>,
    /// The first blocks of each file's later versions.
    by_file: HashMap<u32, Vec<u32>>,
    /// Files with several names that another file has replaced at one of them.
    ambiguous: HashSet<u32>,
    /// A later version of a file had no room.
    is_full: bool,
}

/// The present state of a file.
#[derive(Clone, Copy, Debug)]
struct Revision {
    stat: Stat,
    /// The first block of its content; [`NULL_ADDR`]: it has none. `None`: the content is that of the image.
    first: Option<u32>,
}

impl Revisions {
    /// None, for an image of this many blocks.
    pub(crate) fn new(blocks: u64, identities: Option<IdentityTable>) -> Self {
        let spare = (blocks.saturating_sub(SPARE_BLOCKS), blocks);
        Revisions {
            spare,
            identities,
            files: HashMap::new(),
            extents: BTreeMap::new(),
            by_file: HashMap::new(),
            ambiguous: HashSet::new(),
            is_full: false,
        }
    }

    /// Updates the inodes and identities in blocks that were just read to the host's present state.
    pub(crate) fn revise(&mut self, tables: &Tables, first: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let mut directory = OpenDirectory::default();
        for (number, block) in (first..).zip(blocks.chunks_mut(BLOCK)) {
            for record in tables.slots(number * SLOTS..(number + 1) * SLOTS)? {
                let inode = &mut block[(u64::from(record.slot) % SLOTS) as usize * ISLOT_SIZE as usize..];
                let has_one_name = DiskInode::decode(inode)?.nlink == 1;
                if let Some(revision) = self.revision(tables, record, has_one_name, &mut directory)? {
                    revision.write_inode(inode)?;
                }
            }
            let index = self.identities.and_then(|table| number.checked_sub(table.first_block.into()).filter(|n| *n < table.blocks()));
            let Some(index) = index else { continue };
            for record in tables.slots(index * RECORDS * 2..(index + 1) * RECORDS * 2)? {
                let offset = (u64::from(record.slot) / 2 % RECORDS) as usize * HostIdentity::SIZE;
                let bytes = &mut block[offset..][..HostIdentity::SIZE];
                // Without a device, the file has names outside the image, and that stays so.
                let Some(identity) = HostIdentity::decode(bytes).filter(|identity| identity.device.is_some()) else { continue };
                if let Some(revision) = self.revision(tables, record, identity.links == 1, &mut directory)? {
                    revision.write_identity(bytes);
                }
            }
        }
        Ok(())
    }

    /// The change of a file, which is compared with the host only once.
    fn revision(
        &mut self,
        tables: &Tables,
        SlotRecord { slot: _, file }: SlotRecord,
        has_one_name: bool,
        directory: &mut OpenDirectory,
    ) -> Result<Option<&Revision>, BlockError> {
        if !self.files.contains_key(&file) {
            let record = tables.file(file)?;
            let later = directory
                .status(tables, &record)?
                .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && Version::of(stat) != record.version);
            let revision = later.and_then(|stat| self.add(file, &record.version, has_one_name, stat));
            self.files.insert(file, revision.map(Box::new));
        }
        Ok(self.files.get(&file).and_then(|known| known.as_deref()))
    }

    /// The content to which a spare block belongs.
    pub(crate) fn extent(&self, block: u64) -> Option<(Extent, Version)> {
        self.extents.range(..=block).next_back().map(|(_, found)| *found)
    }

    /// Records a later version of a file; `None` if too few spare blocks are left for its content, or if it may be the version of one of
    /// its names only.
    fn add(&mut self, file: u32, before: &Version, has_one_name: bool, stat: Stat) -> Option<Revision> {
        let version = Version::of(&stat);
        if version.has_content_of(before) {
            return Some(Revision { stat, first: None });
        }
        if !has_one_name && (version.device, version.inode) != (before.device, before.inode) {
            self.ambiguous.insert(file);
            return None;
        }
        let blocks = version.size.div_ceil(BLOCK as u64);
        if blocks == 0 {
            return Some(Revision { stat, first: Some(NULL_ADDR) });
        }
        if let Some(first) = self.known(file, &version) {
            return Some(Revision { stat, first: Some(first) });
        }
        let first = u32::try_from(self.spare.0).ok().filter(|_| self.has_room(&version));
        self.is_full |= first.is_none();
        let first = first?;
        self.insert(Extent { first, file, offset: 0, size: version.size }, version);
        Some(Revision { stat, first: Some(first) })
    }

    /// The first block of a version of a file that has spare blocks already.
    fn known(&self, file: u32, version: &Version) -> Option<u32> {
        let is_same = |first: &&u32| self.extents.get(&u64::from(**first)).is_some_and(|(_, known)| version.has_content_of(known));
        self.by_file.get(&file)?.iter().find(is_same).copied()
    }

    /// Whether a later version of a file could be shown.
    pub(crate) fn can_show(&self, file: u32, version: &Version) -> bool {
        !self.ambiguous.contains(&file) && self.has_room(version)
    }

    fn has_room(&self, version: &Version) -> bool {
        let (next, end) = self.spare;
        self.extents.len() < LATER_MAX && next.saturating_add(version.size.div_ceil(BLOCK as u64)) <= end
    }

    fn insert(&mut self, extent: Extent, version: Version) {
        self.spare.0 = u64::from(extent.first) + version.size.div_ceil(BLOCK as u64);
        self.extents.insert(extent.first.into(), (extent, version));
        self.by_file.entry(extent.file).or_default().push(extent.first);
    }

    /// Restores content that had these spare blocks in another image of the same file. They come in the order of their first blocks.
    /// `false`: it cannot have had them.
    pub(crate) fn restore(&mut self, extent: Extent, version: Version) -> bool {
        let (next, end) = self.spare;
        let first = u64::from(extent.first);
        let behind = first.saturating_add(version.size.div_ceil(BLOCK as u64));
        let is_possible = version.size > 0 && first >= next && behind <= end && self.extents.len() < LATER_MAX;
        if is_possible {
            self.insert(extent, version);
        }
        is_possible
    }

    /// How many spare blocks have been allocated.
    pub(crate) fn allocated_blocks(&self) -> u32 {
        let (next, end) = self.spare;
        u32::try_from(next.saturating_sub(end.saturating_sub(SPARE_BLOCKS))).unwrap_or(u32::MAX)
    }

    /// Reserves this many spare blocks, which other content has had. `false`: there are not as many, or some behind them have content.
    pub(crate) fn reserve(&mut self, allocated_blocks: u32) -> bool {
        let (next, end) = self.spare;
        let reserved = end.saturating_sub(SPARE_BLOCKS).saturating_add(allocated_blocks.into());
        let is_possible = (next..=end).contains(&reserved);
        if is_possible {
            self.spare.0 = reserved;
        }
        is_possible
    }

    /// All content in spare blocks, in the order of the blocks.
    pub(crate) fn list(&self) -> impl Iterator<Item = &(Extent, Version)> {
        self.extents.values()
    }

    /// Shows a file as the image has it, or as this later version, by its status and its first block, whatever the host has.
    pub(crate) fn pin_version(&mut self, file: u32, later: Option<(Stat, u32)>) {
        self.files.insert(file, later.map(|(stat, first)| Box::new(Revision { stat, first: Some(first) })));
    }

    /// Whether a later version of a file had no room.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }
}

/// The directory of the file that was compared last: those in a block have few.
#[derive(Debug, Default)]
pub(crate) struct OpenDirectory {
    number: Option<u32>,
    /// `None` if it is not the recorded one, whose place a link to somewhere else may have taken.
    file: Option<File>,
}

impl OpenDirectory {
    /// The present status of a file; `None` if there is none.
    pub(crate) fn status(&mut self, tables: &Tables, record: &FileRecord) -> Result<Option<Stat>, BlockError> {
        if record.directory == NONE {
            return Ok(lstat(&tables.path(record)?).ok());
        }
        if self.number != Some(record.directory) {
            let (path, found) = tables.directory(record.directory)?;
            // It is neither read nor listed, so that needs no permission.
            let opened = with_descriptor(|| open_at(&path, OFlags::PATH | OFlags::DIRECTORY)).ok();
            let is_same = |stat: Stat| (stat.st_dev, stat.st_ino) == (found.device, found.inode);
            self.file = opened.filter(|file| fstat(file).is_ok_and(is_same));
            self.number = Some(record.directory);
        }
        let Some(directory) = &self.file else { return Ok(None) };
        Ok(lstat_in(directory, &tables.name(record.name)?).ok())
    }
}

impl Revision {
    /// Updates an extended inode whose content lies in whole blocks.
    fn write_inode(&self, bytes: &mut [u8]) -> Result<(), BlockError> {
        let now = attributes(&self.stat);
        let mut inode = DiskInode::decode(bytes)?;
        inode.permissions = now.permissions;
        inode.size = self.stat.st_size.cast_unsigned();
        inode.startblk_or_rdev = self.first.unwrap_or(inode.startblk_or_rdev);
        (inode.uid, inode.gid, inode.mtime) = (now.uid, now.gid, Some(now.modified));
        inode.encode_into(bytes);
        Ok(())
    }

    /// Updates a record of the identity table. If the link count changed, names may lie outside the image: the record then has
    /// no device.
    fn write_identity(&self, record: &mut [u8]) {
        let Some(mut now) = host_identity(&self.stat) else { return record.fill(0) };
        let is_whole = HostIdentity::decode(record).is_some_and(|before| before.device.is_some() && before.links == now.links);
        now.device = now.device.filter(|_| is_whole);
        record.copy_from_slice(&now.encode());
    }
}
