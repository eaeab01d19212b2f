// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings the names in a cached image up to date: lists the changed directories of the host again, and no others.
//!
//! A changed directory keeps its inode, which then refers to a new copy of its entries. An entry keeps its inode if it names the same
//! directory or regular file as before; a file that changed in place is a [revision](crate::revision). Other entries get new inodes, in
//! room that the image has for them. The cache file does not change.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::{Duration, SystemTime},
};

use pando_erofs::{BLOCK_SIZE, Corrupt, DiskInode, FileType, HostIdentity, ISLOT_SIZE, IdentityTable, Nid};
use rustix::fs::{RawDirEntry, Stat};

use crate::{
    Attributes, BlockError, Builder, CachedImage, Error, Image, Scan,
    block::{BLOCK, BlockNumber},
    host::{ChangedDirectory, HostBlocks, RecordedDirectory},
    host_stat::{attributes, lstat},
    image::BlockSource,
    inspect::entries,
    layout::{Update, UpdateRoom},
    scan::{Directory, Linked, list},
    tables::{DirectoryRecord, NONE},
    tree::{Content, InodeId},
};

/// Maximal bytes of a directory.
const DIRECTORY_MAX: u64 = 64 << 20;
/// Approximate bytes of an entry in a directory.
const ENTRY: u64 = 32;

/// The directories of the host that have changed since an image was cached, or may have.
#[derive(Debug)]
pub struct DirectoryChanges {
    changed: Vec<ChangedDirectory>,
    all: Vec<RecordedDirectory>,
    /// Entries of the changed directories, and files and directories of the whole tree. Both are estimates.
    entries: u64,
    total: u64,
}

impl DirectoryChanges {
    /// Whether no directory has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// The changed directories' share of the tree, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.entries as f64 / self.total.max(1) as f64
    }

    /// Whether no directory has changed within this time.
    #[must_use]
    pub fn are_older_than(&self, age: Duration) -> bool {
        let is_older = |stat: &Stat| {
            let seconds = Duration::from_secs(stat.st_ctime.max(0).cast_unsigned());
            (SystemTime::UNIX_EPOCH + seconds).elapsed().is_ok_and(|passed| passed > age)
        };
        self.changed.iter().all(|changed| changed.stat.as_ref().is_none_or(is_older))
    }
}

impl CachedImage {
    /// The directories of the host that have changed since. Reads the status of each directory, but not of files.
    ///
    /// # Errors
    /// The cache file is damaged.
    pub fn changes(&self) -> Result<DirectoryChanges, Error> {
        let Some(host) = self.image.host() else { return Err(Corrupt("it has no host files").into()) };
        let (changed, all) = host.changed_directories()?;
        let mut entries = 0;
        for directory in &changed {
            entries += stored_inode(&self.image, all[directory.number].1.slot)?.size.div_ceil(ENTRY);
        }
        Ok(DirectoryChanges { changed, all, entries, total: host.tables().count() })
    }

    /// The image, if each directory and file of the host is as it was when it was made: what a new scan would give. A file that changes
    /// later is an error when it is read. Reads the status of each.
    #[must_use]
    pub fn into_image_if_unchanged(mut self) -> Option<Image> {
        let is_same = self.changes().is_ok_and(|changes| changes.is_empty()) && self.image.host().is_some_and(HostBlocks::has_same_files);
        self.image.forbid_revisions();
        is_same.then_some(self.image)
    }

    /// Updates the image's names. Returns the attributes of the changed directories and the new files, each with whether it is a directory.
    /// `None`: the tree must be scanned again, and this image is unusable. `size_max` limits the updated image.
    #[must_use]
    pub fn update(&mut self, changes: &DirectoryChanges, walk: &Scan<'_>, size_max: u64) -> Option<Vec<(Attributes, bool)>> {
        let mut update = ImageUpdate::new(&self.image, changes)?;
        update.list(walk).ok()??;
        let ImageUpdate { builder, room, names, .. } = update;
        let attributes = builder.attributes().map(|(attributes, is_directory)| (*attributes, is_directory)).collect();
        apply(&mut self.image, &builder, &room, &names, size_max).ok()??;
        Some(attributes)
    }
}

/// An update in progress. Its steps return `None` if the tree must be scanned again.
struct ImageUpdate<'a> {
    image: &'a Image,
    host: &'a HostBlocks,
    changes: &'a DirectoryChanges,
    /// The new inodes.
    builder: Builder,
    room: UpdateRoom,
    /// The recorded directories by their inodes.
    records: HashMap<u32, &'a DirectoryRecord>,
    /// Inodes of the image that are in the builder's tree.
    kept: HashMap<u32, InodeId>,
    /// Directories that are gone.
    gone: HashSet<u32>,
    /// Files of the image that got or lost names, and how many.
    names: HashMap<u32, i64>,
}

/// A file's device and inode number.
type FileKey = (u64, u64);
/// An entry of a directory in the image: its inode and type.
type OldEntry = (u32, Option<FileType>);
/// The entries of a directory in the image, by name.
type OldEntries = HashMap<Box<[u8]>, OldEntry>;

impl<'a> ImageUpdate<'a> {
    fn new(image: &'a Image, changes: &'a DirectoryChanges) -> Option<ImageUpdate<'a>> {
        let host = image.host()?;
        let room = UpdateRoom::of(image.blocks(), image.identities()?)?;
        let mut builder = Builder::new();
        builder.keep_identities();
        let records = changes.all.iter().map(|(_, record)| (record.slot, record)).collect();
        let (kept, gone, names) = (HashMap::new(), HashSet::new(), HashMap::new());
        Some(ImageUpdate { image, host, changes, builder, room, records, kept, gone, names })
    }

    /// Lists the changed directories, and directories that are new in them.
    fn list(&mut self, walk: &Scan<'_>) -> Result<Option<()>, Error> {
        let mut level: Vec<(Directory, u32)> = Vec::new();
        for ChangedDirectory { number, stat } in &self.changes.changed {
            let (path, record) = &self.changes.all[*number];
            let is_same = |stat: &&Stat| {
                let is_directory = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
                is_directory && (stat.st_dev, stat.st_ino) == (record.device, record.inode)
            };
            match stat.as_ref().filter(is_same) {
                Some(stat) => level.push((self.change(path, record, stat, walk)?, *number as u32)),
                // The directory that had it must have changed too. A mount changes none.
                None if record.parent != NONE && self.is_changed(record.parent) => {
                    self.gone.insert(record.slot);
                }
                None => return Ok(None),
            }
        }
        let (mut linked, mut below, mut total) = (Linked::new(), Vec::new(), 0);
        for (directory, number) in &level {
            let Some(mut old) = self.old_entries(directory)? else { return Ok(None) };
            let mut kept = Vec::new();
            // An entry with a known number and type needs no `stat`.
            let mut is_known = |entry: &RawDirEntry<'_>| {
                let name = entry.file_name().to_bytes();
                let kind = FileType::from_mode(entry.file_type().as_raw_mode());
                match self.decide(*number, name, kind, (directory.device, entry.ino()), old.get(name).copied()) {
                    Ok(Reuse::Same(id)) => kept.push((Box::from(name), id)),
                    _ => return false,
                }
                true
            };
            let Ok(listing) = list(directory, walk.readable, walk.limit, &mut is_known) else { return Ok(None) };
            total += (listing.len() + kept.len()) as u64;
            if total > walk.limit {
                return Ok(None);
            }
            for found in listing.iter().filter(|found| found.is_taken) {
                let (stat, name) = (&found.stat, &found.name);
                let kind = FileType::from_mode(stat.st_mode);
                match self.decide(*number, name, kind, (stat.st_dev, stat.st_ino), old.get(name).copied())? {
                    Reuse::Same(id) => kept.push((name.clone(), id)),
                    Reuse::New => below.extend(self.builder.take(directory, found, walk, &mut linked)?),
                    Reuse::Unknown => return Ok(None),
                }
            }
            for (name, id) in kept {
                old.remove(&name);
                self.builder.tree.link(directory.id, &name, id)?;
            }
            for (slot, kind) in old.into_values() {
                self.unlink(slot, kind)?;
            }
        }
        let top = self.changes.all.first().map_or(Path::new("/"), |(path, _)| path);
        self.builder.walk_levels(top, below, walk, total, &mut linked)?;
        self.join_links()
    }

    /// Whether the directory with this record has changed.
    fn is_changed(&self, number: u32) -> bool {
        self.changes.changed.binary_search_by_key(&(number as usize), |changed| changed.number).is_ok()
    }

    /// Adds a changed directory to the tree.
    fn change(&mut self, path: &Path, record: &DirectoryRecord, stat: &Stat, walk: &Scan<'_>) -> Result<Directory, Error> {
        let content = Content::Directory { parent: InodeId::ROOT, implied: false };
        let id = self.builder.tree.add(attributes(stat), content)?;
        self.builder.identify(id, stat, walk);
        self.room.directories.insert(id, record.slot);
        self.kept.insert(record.slot, id);
        let name = self.builder.tree.intern(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))?;
        let number = self.builder.record(walk, NONE, name, stat, id)?;
        Ok(Directory { id, record: number, path: path.into(), device: stat.st_dev, inode: stat.st_ino, crossed: true })
    }

    /// The entries of a changed directory in the image, without `.` and `..`. Sets its parent.
    fn old_entries(&mut self, directory: &Directory) -> Result<Option<OldEntries>, Error> {
        let Some(&slot) = self.room.directories.get(&directory.id) else { return Ok(None) };
        let data = stored_data(self.image, slot)?;
        let mut old = HashMap::new();
        for entry in entries(&data)? {
            let Ok(target) = u32::try_from(entry.nid.number()) else { return Ok(None) };
            match entry.name {
                b"." => {}
                b".." => {
                    let parent = if target == slot { directory.id } else { self.reused(target, FileType::Directory)? };
                    self.builder.tree.inode_mut(directory.id).content = Content::Directory { parent, implied: false };
                }
                name => {
                    old.insert(name.into(), (target, entry.file_type));
                }
            }
        }
        Ok(Some(old))
    }

    /// The inode of the image, in the builder's tree.
    fn reused(&mut self, slot: u32, kind: FileType) -> Result<InodeId, Error> {
        if let Some(id) = self.kept.get(&slot) {
            return Ok(*id);
        }
        let id = self.builder.tree.add(Attributes::root(0), Content::Existing { kind, slot })?;
        self.kept.insert(slot, id);
        Ok(id)
    }

    /// Decides whether an entry of a directory, of this type, device and inode number, names the same file as in the image.
    fn decide(&mut self, directory: u32, name: &[u8], kind: Option<FileType>, key: FileKey, old: Option<OldEntry>) -> Result<Reuse, Error> {
        let Some((slot, Some(kind))) = old.filter(|(_, before)| *before == kind) else { return Ok(Reuse::New) };
        match kind {
            FileType::Directory => match self.records.get(&slot) {
                Some(record) if (record.device, record.inode) != key => Ok(Reuse::New),
                Some(_) if !self.gone.contains(&slot) => self.reused(slot, kind).map(Reuse::Same),
                _ => Ok(Reuse::Unknown),
            },
            FileType::Regular => {
                let tables = self.host.tables();
                let [file] = tables.slots(u64::from(slot)..u64::from(slot) + 1)?[..] else { return Ok(Reuse::New) };
                let record = tables.file(file.file)?;
                if (record.version.device, record.version.inode) != key {
                    return Ok(Reuse::New);
                }
                // It is read by the name that is recorded, which may be another one.
                let is_readable = record.directory == directory && tables.name(record.name)? == name || is_at(&tables.path(&record)?, key);
                if is_readable { self.reused(slot, kind).map(Reuse::Same) } else { Ok(Reuse::Unknown) }
            }
            _ => Ok(Reuse::New),
        }
    }

    /// Takes note that a name of an inode is gone, and those of all below.
    fn unlink(&mut self, slot: u32, kind: Option<FileType>) -> Result<(), Error> {
        let mut pending = vec![(slot, kind)];
        while let Some((slot, kind)) = pending.pop() {
            match kind {
                Some(FileType::Directory) => {
                    let data = stored_data(self.image, slot)?;
                    let below = entries(&data)?.into_iter().filter(|entry| !matches!(entry.name, b"." | b".."));
                    pending.extend(below.filter_map(|entry| Some((u32::try_from(entry.nid.number()).ok()?, entry.file_type))));
                }
                Some(FileType::Regular) if stored_inode(self.image, slot)?.nlink > 1 => {
                    *self.names.entry(slot).or_default() -= 1;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Finds new names of files that the image has under other names.
    fn join_links(&mut self) -> Result<Option<()>, Error> {
        let tree = &mut self.builder.tree;
        let mut names: HashMap<InodeId, u32> = HashMap::new();
        for entry in &tree.entries {
            let inode = tree.inode(entry.inode);
            if matches!(inode.content, Content::Host { .. }) && inode.identity.is_none_or(|identity| identity.links > 1) {
                *names.entry(entry.inode).or_default() += 1;
            }
        }
        let mut outside = HashMap::new();
        for (id, count) in names {
            let inode = tree.inode(id);
            // Otherwise all of its names are new.
            if let Content::Host { file, .. } = inode.content
                && inode.identity.is_none_or(|identity| identity.links != count)
            {
                let version = tree.files[file as usize].version;
                outside.insert((version.device, version.inode), (id, count));
            }
        }
        if outside.is_empty() {
            return Ok(Some(()));
        }
        for slot in self.host.tables().all_slots() {
            let slot = slot?;
            let record = self.host.tables().file(slot.file)?;
            let key = (record.version.device, record.version.inode);
            if let Some(&(id, count)) = outside.get(&key) {
                if !is_at(&self.host.tables().path(&record)?, key) {
                    return Ok(None);
                }
                tree.inode_mut(id).content = Content::Existing { kind: FileType::Regular, slot: slot.slot };
                *self.names.entry(slot.slot).or_default() += i64::from(count);
            }
        }
        Ok(Some(()))
    }
}

/// Whether an entry names the same file as in the image.
enum Reuse {
    /// Yes: this inode.
    Same(InodeId),
    /// No.
    New,
    /// It cannot be said.
    Unknown,
}

/// Whether a path names this file, given by device and inode.
fn is_at(path: &Path, file: FileKey) -> bool {
    lstat(path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == file)
}

/// Writes an update into the image; `None` if it would become too large.
fn apply(image: &mut Image, builder: &Builder, room: &UpdateRoom, names: &HashMap<u32, i64>, size_max: u64) -> Result<Option<()>, Error> {
    let update = Update::new(&builder.tree, room)?;
    let blocks = update.head_blocks.saturating_add(update.data_blocks);
    BlockNumber::new(image.blocks().saturating_add(blocks))?;
    if image.size().saturating_add(blocks.saturating_mul(BLOCK_SIZE)) > size_max {
        return Ok(None);
    }
    image.append(update.head_blocks, None);
    image.append(update.data_blocks, Some(BlockSource::Host(Box::new(update.content()))));
    let mut outcome = Ok(());
    update.write(&mut |offset, bytes| {
        if outcome.is_ok() {
            outcome = put(image, room.next, offset, bytes);
        }
    })?;
    outcome?;
    for (slot, change) in names {
        count_names(image, room.identities, *slot, *change)?;
    }
    image.change_superblock(|_| ())?;
    Ok(Some(()))
}

/// Changes bytes of an image that had `stored` blocks.
fn put(image: &mut Image, stored: u64, mut offset: u64, mut bytes: &[u8]) -> Result<(), BlockError> {
    while !bytes.is_empty() {
        let (number, within) = (offset / BLOCK_SIZE, (offset % BLOCK_SIZE) as usize);
        if !image.altered.contains_key(&number) {
            let mut block = vec![0; BLOCK].into_boxed_slice();
            if number < stored && image.is_metadata(number) {
                image.read_stored(number * BLOCK_SIZE, &mut block)?;
            }
            image.altered.insert(number, block);
        }
        let (piece, rest) = bytes.split_at(bytes.len().min(BLOCK - within));
        if let Some(block) = image.altered.get_mut(&number) {
            block[within..][..piece.len()].copy_from_slice(piece);
        }
        (offset, bytes) = (offset + piece.len() as u64, rest);
    }
    Ok(())
}

/// Records that names of a file came or went. It has an identity of its own only if all of the host's names are in the image, which the
/// [revision](crate::revision) of its record compares.
fn count_names(image: &mut Image, identities: IdentityTable, slot: u32, change: i64) -> Result<(), Error> {
    let Some(offset) = identities.offset(IdentityTable::index(Nid::new(slot.into()))) else { return Ok(()) };
    let mut record = [0; HostIdentity::SIZE];
    image.read_stored(offset, &mut record)?;
    let identity = HostIdentity::decode(&record).unwrap_or_default();
    let names = i64::from(stored_inode(image, slot)?.nlink).saturating_add(change);
    let stored = image.blocks();
    put(image, stored, offset, &HostIdentity { links: u32::try_from(names).unwrap_or(0), ..identity }.encode())?;
    Ok(())
}

/// An inode as it was stored.
fn stored_inode(image: &Image, slot: u32) -> Result<DiskInode, Error> {
    let mut bytes = [0; DiskInode::SIZE_MAX];
    if slot == 0 {
        return Err(Corrupt("a directory has no inode").into());
    }
    image.read_stored(u64::from(slot) * ISLOT_SIZE, &mut bytes)?;
    Ok(DiskInode::decode(&bytes)?)
}

/// The entries of a directory as they were stored.
fn stored_data(image: &Image, slot: u32) -> Result<Vec<u8>, Error> {
    let inode = stored_inode(image, slot)?;
    if inode.size > DIRECTORY_MAX {
        return Err(Corrupt("a directory is too large").into());
    }
    let mut data = vec![0; inode.size as usize];
    let (head, tail) = data.split_at_mut((inode.size - inode.inline_size()) as usize);
    if !head.is_empty() {
        image.read_stored(u64::from(inode.startblk_or_rdev) * BLOCK_SIZE, head)?;
    }
    if !tail.is_empty() {
        image.read_stored(u64::from(slot) * ISLOT_SIZE + inode.header_size(), tail)?;
    }
    Ok(data)
}
