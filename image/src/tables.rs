// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of a host image, which locate its data: fixed-size records, searched in place, in memory or in a file.
//!
//! An *extent* is a run of consecutive blocks of a host file. A *file* record holds the file's version, its own name and its *directory*
//! record, which has a parent in turn. So a million files cost about 100 bytes each and their names, and opening an image with so many
//! reads none of it.

use std::{ffi::OsString, hash::Hasher, ops::Range, os::unix::ffi::OsStringExt, path::PathBuf};

use crate::{
    BLOCK_SIZE, BlockError,
    block::BLOCK,
    store::Bytes,
    version::{ChangeTime, Version},
};

/// The parent of a record without one: its name is a whole path.
pub(crate) const NONE: u32 = u32::MAX;
/// Maximal depth of a path; Linux accepts no deeper one.
const DEPTH_MAX: usize = 4096;

/// Bytes in an array of names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) start: u32,
    pub(crate) length: u16,
}

/// Blocks of a host file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first block.
    pub(crate) first: u32,
    /// The file's number.
    pub(crate) file: u32,
    /// The offset of the first block in the file, in bytes.
    pub(crate) offset: u64,
    /// The length in bytes; the rest of the last block is zero.
    pub(crate) size: u64,
}

/// A host file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRecord {
    /// Number of its directory, or [`NONE`].
    pub(crate) directory: u32,
    pub(crate) name: Name,
    pub(crate) version: Version,
}

/// A directory of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryRecord {
    /// Number of its parent, smaller than its own, or [`NONE`].
    pub(crate) parent: u32,
    pub(crate) name: Name,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// When a name in it last came or went, or it got other permissions.
    pub(crate) changed: ChangeTime,
    /// A later change of what the image shows of it has another change time.
    pub(crate) is_settled: bool,
    /// Its inode, in units of 32 bytes from the image's start; 0 if it has none.
    pub(crate) slot: u32,
}

/// Which host file an inode is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRecord {
    /// The inode, in units of 32 bytes from the image's start.
    pub(crate) slot: u32,
    /// Which file.
    pub(crate) file: u32,
}

/// A record of a fixed size. Numbers are little-endian.
pub(crate) trait Record: Sized {
    const SIZE: usize;
    fn encode(&self, bytes: &mut Vec<u8>);
    fn decode(fields: Fields<'_>) -> Self;
}

impl Record for Extent {
    const SIZE: usize = 24;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.file.to_le_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
    }

    fn decode(mut fields: Fields<'_>) -> Self {
        Extent { first: fields.u32(), file: fields.u32(), offset: fields.u64(), size: fields.u64() }
    }
}

impl Record for FileRecord {
    const SIZE: usize = 48;

    fn encode(&self, bytes: &mut Vec<u8>) {
        let Version { device, inode, size, modified, permissions, changed: _ } = self.version;
        for number in [device, inode, size, modified.0.cast_unsigned()] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [modified.1, self.directory, self.name.start, u32::from(permissions) << 16 | u32::from(self.name.length)] {
            bytes.extend(number.to_le_bytes());
        }
    }

    /// Without the change time.
    fn decode(mut fields: Fields<'_>) -> Self {
        let [device, inode, size, modified] = [(); 4].map(|()| fields.u64());
        let [nanoseconds, directory, start, rest] = [(); 4].map(|()| fields.u32());
        let changed = ChangeTime { seconds: 0, nanoseconds: 0 };
        let modified = (modified.cast_signed(), nanoseconds);
        let version = Version { device, inode, size, modified, permissions: (rest >> 16) as u16, changed };
        FileRecord { directory, name: Name { start, length: rest as u16 }, version }
    }
}

impl Record for ChangeTime {
    const SIZE: usize = 12;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.seconds.to_le_bytes());
        bytes.extend(self.nanoseconds.to_le_bytes());
    }

    fn decode(mut fields: Fields<'_>) -> Self {
        ChangeTime { seconds: fields.u64().cast_signed(), nanoseconds: fields.u32() }
    }
}

impl Record for DirectoryRecord {
    const SIZE: usize = 44;

    fn encode(&self, bytes: &mut Vec<u8>) {
        for number in [self.parent, self.name.start, self.name.length.into(), self.changed.nanoseconds, self.slot] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [self.changed.seconds.cast_unsigned(), self.device, self.inode] {
            bytes.extend(number.to_le_bytes());
        }
    }

    /// Without whether it is settled.
    fn decode(mut fields: Fields<'_>) -> Self {
        let [parent, start, length, nanoseconds, slot] = [(); 5].map(|()| fields.u32());
        let [seconds, device, inode] = [(); 3].map(|()| fields.u64());
        let name = Name { start, length: length as u16 };
        let changed = ChangeTime { seconds: seconds.cast_signed(), nanoseconds };
        DirectoryRecord { parent, name, device, inode, changed, is_settled: true, slot }
    }
}

impl Record for SlotRecord {
    const SIZE: usize = 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.slot.to_le_bytes());
        bytes.extend(self.file.to_le_bytes());
    }

    fn decode(mut fields: Fields<'_>) -> Self {
        SlotRecord { slot: fields.u32(), file: fields.u32() }
    }
}

/// Reads numbers one after the other from bytes that suffice.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("a record is as long as its fields");
        self.0 = rest;
        *field
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// How many records and bytes the tables have, in the order in which they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) extents: u64,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) names: u64,
    pub(crate) slots: u64,
}

/// The tables of an image.
#[derive(Debug)]
pub(crate) struct Tables {
    bytes: Bytes,
    sizes: Sizes,
}

impl Tables {
    /// Encodes tables: extents sorted by their first block, then the rest. The tables that do not count in fingerprints are in blocks of
    /// their own.
    pub(crate) fn encode(
        extents: &[Extent],
        files: &[FileRecord],
        directories: &[DirectoryRecord],
        names: &[u8],
        slots: &[SlotRecord],
    ) -> (Vec<u8>, Sizes) {
        let mut bytes = Vec::with_capacity(
            extents.len() * Extent::SIZE + files.len() * FileRecord::SIZE + directories.len() * DirectoryRecord::SIZE + names.len(),
        );
        extents.iter().for_each(|extent| extent.encode(&mut bytes));
        files.iter().for_each(|file| file.encode(&mut bytes));
        directories.iter().for_each(|directory| directory.encode(&mut bytes));
        bytes.extend(names);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        files.iter().for_each(|file| file.version.changed.encode(&mut bytes));
        slots.iter().for_each(|slot| slot.encode(&mut bytes));
        bytes.extend(directories.iter().map(|directory| u8::from(directory.is_settled)));
        let sizes = Sizes {
            extents: extents.len() as u64,
            files: files.len() as u64,
            directories: directories.len() as u64,
            names: names.len() as u64,
            slots: slots.len() as u64,
        };
        (bytes, sizes)
    }

    pub(crate) fn new(bytes: Bytes, sizes: Sizes) -> Self {
        Tables { bytes, sizes }
    }

    /// Adds the tables to a fingerprint, without change times.
    pub(crate) fn hash_content(&self, hasher: &mut impl Hasher) {
        self.bytes.hash_content(self.changes(), hasher);
    }

    pub(crate) fn in_memory(&self) -> Option<(&[u8], Sizes)> {
        match &self.bytes {
            Bytes::Memory(bytes) => Some((bytes, self.sizes)),
            Bytes::File { .. } => None,
        }
    }

    /// The last extent that starts at a block or before it. O(log n).
    pub(crate) fn extent(&self, block: u64) -> Result<Option<Extent>, BlockError> {
        let (mut low, mut high) = (0, self.sizes.extents);
        while low < high {
            let middle = low + (high - low) / 2;
            if u64::from(self.record::<Extent>(0, middle)?.first) <= block { low = middle + 1 } else { high = middle }
        }
        match low.checked_sub(1) {
            Some(index) => self.record(0, index).map(Some),
            None => Ok(None),
        }
    }

    /// The end of the files' blocks; all behind it are spare.
    pub(crate) fn content_end(&self) -> Result<u64, BlockError> {
        let Some(last) = self.sizes.extents.checked_sub(1) else { return Ok(0) };
        let Extent { first, size, .. } = self.record(0, last)?;
        Ok(u64::from(first) + size.div_ceil(BLOCK_SIZE))
    }

    /// The record of a file.
    pub(crate) fn file(&self, number: u32) -> Result<FileRecord, BlockError> {
        if u64::from(number) >= self.sizes.files {
            return Err(BlockError::Damaged("an extent names no file"));
        }
        let mut file: FileRecord = self.record(self.files(), number.into())?;
        file.version.changed = self.record(self.changes(), number.into())?;
        Ok(file)
    }

    /// A file's path on the host.
    pub(crate) fn path(&self, file: &FileRecord) -> Result<PathBuf, BlockError> {
        self.path_of(file.directory, vec![self.name(file.name)?])
    }

    /// The path and the record of a directory of the host.
    pub(crate) fn directory(&self, number: u32) -> Result<(PathBuf, DirectoryRecord), BlockError> {
        let record = self.directory_record(number)?;
        Ok((self.path_of(record.parent, vec![self.name(record.name)?])?, record))
    }

    /// The path that ends with these names, the last one first, in this directory.
    fn path_of(&self, mut directory: u32, mut names: Vec<Vec<u8>>) -> Result<PathBuf, BlockError> {
        while directory != NONE {
            if names.len() == DEPTH_MAX {
                return Err(BlockError::Damaged("a path is too long"));
            }
            let record = self.directory_record(directory)?;
            names.push(self.name(record.name)?);
            directory = record.parent;
        }
        Ok(names.into_iter().rev().map(OsString::from_vec).collect())
    }

    fn directory_record(&self, number: u32) -> Result<DirectoryRecord, BlockError> {
        if u64::from(number) >= self.sizes.directories {
            return Err(BlockError::Damaged("a file has no directory"));
        }
        let mut record: DirectoryRecord = self.record(self.directories(), number.into())?;
        let mut is_settled = [0];
        self.bytes.read(self.slots_start() + self.sizes.slots * SlotRecord::SIZE as u64 + u64::from(number), &mut is_settled)?;
        record.is_settled = is_settled != [0];
        Ok(record)
    }

    /// The inodes that lie in these units and are host files. O(log n).
    pub(crate) fn slots(&self, range: Range<u64>) -> Result<Vec<SlotRecord>, BlockError> {
        let (mut low, mut high) = (0, self.sizes.slots);
        while low < high {
            let middle = low + (high - low) / 2;
            if u64::from(self.slot(middle)?.slot) < range.start { low = middle + 1 } else { high = middle }
        }
        let mut found = Vec::new();
        for index in low..self.sizes.slots {
            let record = self.slot(index)?;
            if u64::from(record.slot) >= range.end {
                break;
            }
            found.push(record);
        }
        Ok(found)
    }

    /// All inodes that are host files, in the order of the image.
    pub(crate) fn all_slots(&self) -> impl Iterator<Item = Result<SlotRecord, BlockError>> + '_ {
        (0..self.sizes.slots).map(|index| self.slot(index))
    }

    fn slot(&self, index: u64) -> Result<SlotRecord, BlockError> {
        self.record(self.slots_start(), index)
    }

    fn slots_start(&self) -> u64 {
        self.changes() + self.sizes.files * ChangeTime::SIZE as u64
    }

    /// All files of the host.
    pub(crate) fn all_files(&self) -> Range<u32> {
        0..u32::try_from(self.sizes.files).unwrap_or(u32::MAX)
    }

    /// How many files and directories of the host there are.
    pub(crate) fn count(&self) -> u64 {
        self.sizes.files + self.sizes.directories
    }

    /// Whether there is a table of inodes.
    pub(crate) fn has_slots(&self) -> bool {
        self.sizes.slots > 0
    }

    /// All directories of the host, with their paths.
    pub(crate) fn all_directories(&self) -> impl Iterator<Item = Result<(PathBuf, DirectoryRecord), BlockError>> + '_ {
        let mut paths: Vec<PathBuf> = Vec::new();
        (0..u32::try_from(self.sizes.directories).unwrap_or(u32::MAX)).map(move |index| {
            let record = self.directory_record(index)?;
            let name = OsString::from_vec(self.name(record.name)?);
            let path = match paths.get(record.parent as usize) {
                Some(parent) => parent.join(name),
                None => name.into(),
            };
            paths.push(path.clone());
            Ok((path, record))
        })
    }

    /// Bytes of the names.
    pub(crate) fn name(&self, name: Name) -> Result<Vec<u8>, BlockError> {
        let mut bytes = vec![0; name.length.into()];
        if u64::from(name.start) + u64::from(name.length) > self.sizes.names {
            return Err(BlockError::Damaged("a file has no name"));
        }
        self.bytes.read(self.names() + u64::from(name.start), &mut bytes)?;
        Ok(bytes)
    }

    fn record<R: Record>(&self, table: u64, index: u64) -> Result<R, BlockError> {
        // A buffer for the largest record.
        let mut bytes = [0; FileRecord::SIZE];
        self.bytes.read(table + index * R::SIZE as u64, &mut bytes[..R::SIZE])?;
        Ok(R::decode(Fields(&bytes[..R::SIZE])))
    }

    fn files(&self) -> u64 {
        self.sizes.extents * Extent::SIZE as u64
    }

    fn directories(&self) -> u64 {
        self.files() + self.sizes.files * FileRecord::SIZE as u64
    }

    fn names(&self) -> u64 {
        self.directories() + self.sizes.directories * DirectoryRecord::SIZE as u64
    }

    fn changes(&self) -> u64 {
        (self.names() + self.sizes.names).next_multiple_of(BLOCK_SIZE)
    }
}
