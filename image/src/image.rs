// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readable images: their blocks are in memory, in cached images or in host files.

use std::{
    collections::BTreeMap,
    fs::File,
    hash::{Hash, Hasher},
    io,
    ops::Range,
    path::Path,
    sync::Arc,
};

use pando_erofs::{BLOCK_SIZE, IdentityTable, SuperBlock};
use rustix::{
    fs::{FileType, OFlags, fstat},
    io::Errno,
};

use crate::{
    BlockError, Error,
    block::BLOCK,
    fingerprint::Fingerprint,
    host::HostBlocks,
    host_stat::open_at,
    replaced::Replaced,
    store::{Blocks, Bytes},
    tables::{Extent, FileRecord, NONE, Name, Sizes, Tables},
    version::Version,
};

/// Maximal bytes of the pieces of [`Image::write_to`].
pub const PIECE_SIZE: usize = 1 << 20;

/// Blocks of metadata that are read at once if each file in them is compared with the host.
const REVISED_RUN: u64 = 4;

/// Takes a piece of data and its offset in bytes.
pub type Sink<'a, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'a;

/// A read-only image of blocks: some in memory or in a cached image, the others in host files.
#[derive(Debug)]
pub struct Image {
    blocks: u64,
    /// In the order of their blocks. Blocks without a part are zero.
    parts: Vec<BlockRange>,
    /// Blocks that override the parts.
    pub(crate) altered: BTreeMap<u64, Box<[u8]>>,
    /// Replaced or removed files that can still be read.
    replaced: Option<Arc<Replaced>>,
    /// A number that the caller has given it.
    number: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct BlockRange {
    /// Its blocks in the image.
    pub(crate) blocks: Range<u64>,
    pub(crate) source: BlockSource,
}

#[derive(Debug)]
pub(crate) enum BlockSource {
    /// Stored by block number.
    Metadata(Blocks),
    Host(Box<HostBlocks>),
}

impl Image {
    pub(crate) fn new(blocks: u64, parts: Vec<BlockRange>) -> Self {
        Image { blocks, parts, altered: BTreeMap::new(), replaced: None, number: None }
    }

    /// Opens a portable image: a file that contains all its blocks, and must not change while it is used.
    ///
    /// # Errors
    /// [`Error::Host`], [`Error::NotAFile`]; [`Error::NotAnImage`] if it has no valid superblock, or is shorter than that says.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (file, version) = open_held(path)?;
        let mut block = [0; BLOCK];
        let refused = |problem| Err(Error::NotAnImage { path: path.into(), problem });
        if version.size < BLOCK_SIZE {
            return refused("it is too short");
        }
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut block, 0).map_err(|source| Error::Host { path: path.into(), source })?;
        let Some(superblock) = SuperBlock::decode(&block) else {
            return refused("it has no EROFS superblock");
        };
        if !superblock.has_supported_blocks() {
            return refused("its blocks are not of 4 KiB: create it with `mkfs.erofs -b 4096`, or with `pando image build`");
        }
        let blocks = u64::from(superblock.blocks);
        if superblock.size() > version.size {
            return refused("it is truncated: blocks are missing at its end");
        }
        let extent = Extent { first: 0, file: 0, offset: 0, size: superblock.size() };
        let source = BlockSource::Host(Box::new(one_file(extent, path, version, [(0, Arc::new(file))])?));
        Ok(Image::new(blocks, vec![BlockRange { blocks: 0..blocks, source }]))
    }

    /// Sets the store of replaced or removed files, from which they can still be read.
    pub fn read_replaced(&mut self, replaced: Arc<Replaced>) {
        self.replaced = Some(replaced);
    }

    /// Sets what identifies the content of its host files, if these never change: [`fingerprint`](Image::fingerprint) then depends on it,
    /// and not on the files' times.
    pub fn identify_content(&mut self, id: [u8; 32]) {
        if let Some(host) = self.host_mut() {
            host.identify_content(id);
        }
    }

    /// Closes the host files that it keeps open; they are reopened when they are read.
    pub fn close_files(&self) {
        for part in &self.parts {
            if let BlockSource::Host(host) = &part.source {
                host.close_files();
            }
        }
    }

    /// How many blocks of [`BLOCK_SIZE`] it has.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.blocks * BLOCK_SIZE
    }

    /// Reads blocks from `first` on into the buffer. Blocks in host files are read from there; after an error because they changed, the
    /// buffer's content is undefined.
    ///
    /// # Errors
    /// [`BlockError`].
    ///
    /// # Panics
    /// If the buffer's size is not a multiple of [`BLOCK_SIZE`].
    pub fn read_blocks(&self, first: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        assert!(buffer.len().is_multiple_of(BLOCK), "images are read in blocks");
        let count = (buffer.len() / BLOCK) as u64;
        let end = first.checked_add(count).filter(|end| *end <= self.blocks);
        let end = end.ok_or(BlockError::Outside { block: first.max(self.blocks), blocks: self.blocks })?;
        let (mut next, mut rest) = (first, &mut *buffer);
        while next < end {
            let (part, until) = self.part(next);
            let until = until.min(end);
            let (piece, remaining) = rest.split_at_mut((until - next) as usize * BLOCK);
            match part.map(|part| &part.source) {
                Some(BlockSource::Metadata(blocks)) => blocks.read(next, piece)?,
                Some(BlockSource::Host(blocks)) => blocks.read(next, piece, self.replaced.as_deref())?,
                None => piece.fill(0),
            }
            for (&block, bytes) in self.altered.range(next..until) {
                piece[(block - next) as usize * BLOCK..][..BLOCK].copy_from_slice(bytes);
            }
            if let Some(BlockSource::Metadata(_)) = part.map(|part| &part.source) {
                self.revise(next, piece)?;
            }
            (next, rest) = (until, remaining);
        }
        Ok(())
    }

    /// Reads a block: metadata is not updated to the present state of the host's files.
    pub(crate) fn read_unrevised(&self, block: u64, buffer: &mut [u8; BLOCK]) -> Result<(), BlockError> {
        match self.part(block) {
            (Some(BlockRange { source: BlockSource::Metadata(stored), .. }), _) if !self.altered.contains_key(&block) => {
                stored.read(block, buffer)
            }
            _ => self.read_blocks(block, buffer),
        }
    }

    /// Whether all metadata and tables that are in a file are as they were written.
    pub(crate) fn is_intact(&self) -> bool {
        self.parts.iter().all(|part| match &part.source {
            BlockSource::Metadata(Blocks::File(file)) => file.is_intact(),
            _ => true,
        })
    }

    /// Whether a block is metadata that was stored when the image was made.
    pub(crate) fn is_metadata(&self, block: u64) -> bool {
        matches!(self.part(block).0, Some(BlockRange { source: BlockSource::Metadata(_), .. }))
    }

    /// Reads metadata as it was when the image was made.
    pub(crate) fn read_stored(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        let first = offset / BLOCK_SIZE;
        let within = (offset % BLOCK_SIZE) as usize;
        let mut blocks = vec![0; (within + buffer.len()).next_multiple_of(BLOCK)];
        match self.part(first) {
            (Some(BlockRange { source: BlockSource::Metadata(stored), .. }), end) if first + (blocks.len() / BLOCK) as u64 <= end => {
                stored.read(first, &mut blocks)?;
            }
            _ => return Err(BlockError::Damaged("metadata lies elsewhere")),
        }
        buffer.copy_from_slice(&blocks[within..][..buffer.len()]);
        Ok(())
    }

    /// How many blocks from `first` on to read at once: those from the same host file, or stored together elsewhere. At least one.
    #[must_use]
    pub fn run(&self, first: u64) -> u64 {
        let (part, until) = self.part(first);
        let run = match part.map(|part| &part.source) {
            Some(BlockSource::Metadata(_)) if self.host().is_some_and(HostBlocks::is_revised) => REVISED_RUN,
            // An error in a table is reported when the block is read.
            Some(BlockSource::Host(blocks)) => blocks.run(first).unwrap_or(1),
            _ => u64::MAX,
        };
        run.min(until.saturating_sub(first)).max(1)
    }

    /// A fingerprint of the image's content; that of host files counts by their sizes and times. The same for a fresh image and its
    /// cached copy. O(metadata in memory).
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = Fingerprint::default();
        // The host's numbers of files come last.
        let compared = self.identities().map_or(u64::MAX, |table| table.first_block.into());
        self.blocks.hash(&mut hasher);
        for BlockRange { blocks, source } in &self.parts {
            blocks.hash(&mut hasher);
            match source {
                BlockSource::Metadata(metadata) => metadata.hash_content(blocks.end.min(compared) - blocks.start, &mut hasher),
                BlockSource::Host(host) => host.hash_content(&mut hasher),
            }
        }
        self.altered.hash(&mut hasher);
        hasher.finish()
    }

    /// Passes the image to `sink`, in pieces of at most [`PIECE_SIZE`] bytes, each with its offset, in order.
    ///
    /// # Errors
    /// A host file has changed or cannot be read; then the written pieces are unusable. And all errors of `sink`.
    pub fn write_to<E: From<Error>>(&self, sink: &mut Sink<'_, E>) -> Result<(), E> {
        let mut buffer = vec![0; PIECE_SIZE];
        let mut offset = 0;
        while offset < self.size() {
            let length = (self.size() - offset).min(PIECE_SIZE as u64) as usize;
            self.read_blocks(offset / BLOCK_SIZE, &mut buffer[..length]).map_err(Error::from)?;
            sink(offset, &buffer[..length])?;
            offset += length as u64;
        }
        Ok(())
    }

    /// The part that contains a block, if any, and the end of that part or gap.
    fn part(&self, block: u64) -> (Option<&BlockRange>, u64) {
        let next = self.parts.partition_point(|part| part.blocks.start <= block);
        match next.checked_sub(1).map(|index| &self.parts[index]).filter(|part| block < part.blocks.end) {
            Some(part) => (Some(part), part.blocks.end),
            None => (None, self.parts.get(next).map_or(self.blocks, |part| part.blocks.start)),
        }
    }

    /// The memory of a fresh image: its first blocks, and the tables of the rest. `None` for others.
    pub(crate) fn in_memory(&self) -> Option<(&[u8], &[u8], Sizes)> {
        match &self.parts[..] {
            [
                BlockRange { source: BlockSource::Metadata(Blocks::Memory(metadata)), .. },
                BlockRange { source: BlockSource::Host(host), .. },
            ] if self.altered.is_empty() => {
                let (tables, sizes) = host.tables_in_memory()?;
                Some((metadata, tables, sizes))
            }
            _ => None,
        }
    }

    /// Whether a directory of the host that it shows has changed.
    pub(crate) fn is_outdated(&self) -> bool {
        self.parts.iter().any(|part| matches!(&part.source, BlockSource::Host(host) if host.is_outdated()))
    }

    /// The position of the identity table, if the image has one.
    pub(crate) fn identities(&self) -> Option<IdentityTable> {
        IdentityTable::decode(&self.superblock().ok()?.volume_name)
    }

    /// Lets a cached image of this many blocks follow changes of files, if it was built for that.
    pub(crate) fn allow_revisions(&mut self, blocks: u64) {
        let identities = self.identities();
        for part in &mut self.parts {
            if let BlockSource::Host(host) = &mut part.source {
                host.allow_revisions(blocks, identities);
            }
        }
    }

    /// Lets a cached image follow no changes of files any more.
    pub(crate) fn forbid_revisions(&mut self) {
        for part in &mut self.parts {
            if let BlockSource::Host(host) = &mut part.source {
                host.forbid_revisions();
            }
        }
    }

    /// Updates inodes in blocks that were just read to the present state of their files.
    fn revise(&self, first: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        self.host().map_or(Ok(()), |host| host.revise(first, blocks))
    }

    /// The files of the host that it was made from.
    pub(crate) fn host(&self) -> Option<&HostBlocks> {
        self.hosts().next()
    }

    /// Those, and single files that were added later.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &HostBlocks> {
        self.parts.iter().filter_map(|part| if let BlockSource::Host(host) = &part.source { Some(&**host) } else { None })
    }

    /// Removes the position of the identity table, because another image gives the identities of the same files.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn hide_identities(&mut self) -> Result<(), Error> {
        self.change_superblock(|superblock| superblock.volume_name = [0; 16])
    }

    /// The files of the host that it was made from.
    pub(crate) fn host_mut(&mut self) -> Option<&mut HostBlocks> {
        self.parts.iter_mut().find_map(|part| if let BlockSource::Host(host) = &mut part.source { Some(&mut **host) } else { None })
    }

    /// Sets a number for the caller's use.
    pub fn set_number(&mut self, number: u32) {
        self.number = Some(number);
    }

    /// The number that was set.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.number
    }

    /// Adds blocks behind the last one, from this source; returns the first.
    pub(crate) fn append(&mut self, blocks: u64, source: Option<BlockSource>) -> u64 {
        let first = self.blocks;
        self.blocks += blocks;
        self.parts.extend(source.map(|source| BlockRange { blocks: first..self.blocks, source }));
        first
    }
}

/// Whether a file has an EROFS superblock, supported or not.
#[must_use]
pub fn is_image(path: &Path) -> bool {
    let mut block = [0; BLOCK];
    let read = open_at(path, OFlags::empty()).is_ok_and(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut block, 0).is_ok());
    read && SuperBlock::decode(&block).is_some()
}

/// The source for blocks of one host file.
pub(crate) fn one_file(
    extent: Extent,
    path: &Path,
    version: Version,
    held: impl IntoIterator<Item = (u32, Arc<File>)>,
) -> Result<HostBlocks, Error> {
    let path = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let length = u16::try_from(path.len()).map_err(|_| Error::TooManyNames)?;
    let record = FileRecord { directory: NONE, name: Name { start: 0, length }, version };
    let (bytes, sizes) = Tables::encode(&[extent], &[record], &[], path, &[]);
    Ok(HostBlocks::new(Tables::new(Bytes::Memory(bytes), sizes), held))
}

/// Opens a regular file to be kept open, following links, and returns its version.
pub(crate) fn open_held(path: &Path) -> Result<(File, Version), Error> {
    let failed = |source: io::Error| Error::Host { path: path.into(), source };
    let refused = |errno: Errno| failed(errno.into());
    let real = path.canonicalize().map_err(failed)?;
    let file = open_at(&real, OFlags::empty()).map_err(refused)?;
    let stat = fstat(&file).map_err(refused)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::NotAFile(path.into()));
    }
    let version = Version::of(&stat);
    version.await_clock_tick();
    let stat = fstat(&file).map_err(refused)?;
    if Version::of(&stat) == version { Ok((file, version)) } else { Err(Error::Changed(path.into())) }
}
