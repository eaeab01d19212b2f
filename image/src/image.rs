// SPDX-License-Identifier: MIT OR Apache-2.0
//! An image whose blocks can be read, wherever they lie.

use std::{
    collections::BTreeMap,
    fs::File,
    hash::{Hash, Hasher},
    io,
    ops::Range,
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{FileType, OFlags, fstat},
    io::Errno,
};

use crate::{
    BlockError, Error,
    format::{BLOCK, BLOCK_SIZE, MAGIC, SUPERBLOCK_OFFSET},
    host::{HostBlocks, open_at},
    replaced::Replaced,
    sign::Sign,
    store::{Blocks, Bytes},
    tables::{Extent, FileRecord, NONE, Name, Sizes, Tables, Version},
};

/// Data is handed over in pieces of at most so many bytes.
pub const PIECE_SIZE: usize = 1 << 20;

/// Takes a piece of data and its offset in bytes.
pub type Sink<'a, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'a;

/// A read-only image of blocks: some kept in memory or in a file of Pando's, the others in files of the host.
#[derive(Debug)]
pub struct Image {
    blocks: u64,
    /// In the order of their blocks. What no part has is zero.
    parts: Vec<Part>,
    /// Blocks that are not what the parts say.
    pub(crate) altered: BTreeMap<u64, Box<[u8]>>,
    /// Files that are not where they were, and can be read all the same.
    replaced: Option<Arc<Replaced>>,
}

#[derive(Debug)]
pub(crate) struct Part {
    /// Which blocks of the image it has.
    pub(crate) blocks: Range<u64>,
    pub(crate) source: Source,
}

#[derive(Debug)]
pub(crate) enum Source {
    /// Kept by block number.
    Kept(Blocks),
    Host(HostBlocks),
}

impl Image {
    pub(crate) fn new(blocks: u64, parts: Vec<Part>) -> Self {
        Image { blocks, parts, altered: BTreeMap::new(), replaced: None }
    }

    /// Opens a portable image: a file that holds all its blocks, and must keep them while it is used.
    ///
    /// # Errors
    /// [`Error::Host`], [`Error::NotAFile`]; [`Error::NotAnImage`] if it does not begin as an image does, or is shorter
    /// than it says.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (file, version) = open_held(path)?;
        let mut block = [0; BLOCK];
        let refused = |problem| Err(Error::NotAnImage { path: path.into(), problem });
        if version.size < BLOCK_SIZE {
            return refused("it is too short");
        }
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut block, 0).map_err(|source| Error::Host { path: path.into(), source })?;
        if !begins_an_image(&block) {
            return refused("it has no EROFS superblock");
        }
        let superblock = &block[SUPERBLOCK_OFFSET..];
        if superblock[12] != BLOCK_SIZE.trailing_zeros() as u8 {
            return refused("its blocks are not of 4 KiB: make it with `mkfs.erofs -b 4096`, or with `pando image build`");
        }
        let blocks = u64::from(u32::from_le_bytes([superblock[36], superblock[37], superblock[38], superblock[39]]));
        if blocks * BLOCK_SIZE > version.size {
            return refused("it was cut: blocks are missing at its end");
        }
        let extent = Extent { first: 0, file: 0, offset: 0, size: blocks * BLOCK_SIZE };
        let source = Source::Host(one_file(extent, path, version, [(0, Arc::new(file))])?);
        Ok(Image::new(blocks, vec![Part { blocks: 0..blocks, source }]))
    }

    /// Lets whoever replaces or removes files that the image shows keep them readable.
    pub fn read_replaced(&mut self, replaced: Arc<Replaced>) {
        self.replaced = Some(replaced);
    }

    /// Closes the host files that it keeps open; they are opened again when they are read.
    pub fn close_files(&self) {
        for part in &self.parts {
            if let Source::Host(host) = &part.source {
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

    /// Reads the blocks from `first` on that fill the buffer. Blocks of host files are read from there now; when they
    /// are not what they were, nothing in the buffer means anything.
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
            let (piece, behind) = rest.split_at_mut((until - next) as usize * BLOCK);
            match part.map(|part| &part.source) {
                Some(Source::Kept(blocks)) => blocks.read(next, piece)?,
                Some(Source::Host(blocks)) => blocks.read(next, piece, self.replaced.as_deref())?,
                None => piece.fill(0),
            }
            (next, rest) = (until, behind);
        }
        for (&block, bytes) in self.altered.range(first..end) {
            buffer[(block - first) as usize * BLOCK..][..BLOCK].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// How many blocks from `first` on it is wise to read at once: those that come from the same host file, or lie
    /// together elsewhere. At least one.
    #[must_use]
    pub fn run(&self, first: u64) -> u64 {
        let (part, until) = self.part(first);
        let run = match part.map(|part| &part.source) {
            // What is wrong with a table is said when the block is read.
            Some(Source::Host(blocks)) => blocks.run(first).unwrap_or(1),
            _ => u64::MAX,
        };
        run.min(until.saturating_sub(first)).max(1)
    }

    /// A number that is another where the image shows something else: content of host files counts as their size and times say. The same for an image that is fresh and one that was kept. O(metadata in memory).
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = Sign::default();
        self.blocks.hash(&mut hasher);
        for Part { blocks, source } in &self.parts {
            blocks.hash(&mut hasher);
            match source {
                Source::Kept(kept) => kept.sign(blocks.end - blocks.start, &mut hasher),
                Source::Host(host) => host.sign(&mut hasher),
            }
        }
        self.altered.hash(&mut hasher);
        hasher.finish()
    }

    /// Hands the image to `sink`, in pieces of at most [`PIECE_SIZE`] bytes, each with its offset, in order.
    ///
    /// # Errors
    /// A host file cannot be read as it was; then what the sink has seen is worth nothing. And whatever `sink` returns.
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

    /// The part that has a block, if any has, and the first block behind it that may lie elsewhere.
    fn part(&self, block: u64) -> (Option<&Part>, u64) {
        let next = self.parts.partition_point(|part| part.blocks.start <= block);
        match next.checked_sub(1).map(|index| &self.parts[index]).filter(|part| block < part.blocks.end) {
            Some(part) => (Some(part), part.blocks.end),
            None => (None, self.parts.get(next).map_or(self.blocks, |part| part.blocks.start)),
        }
    }

    /// What a fresh image keeps in memory: its first blocks, and the tables of the rest. Nothing for others.
    pub(crate) fn in_memory(&self) -> Option<(&[u8], &[u8], Sizes)> {
        match &self.parts[..] {
            [Part { source: Source::Kept(Blocks::Memory(kept)), .. }, Part { source: Source::Host(host), .. }]
                if self.altered.is_empty() =>
            {
                let (tables, sizes) = host.tables_in_memory()?;
                Some((kept, tables, sizes))
            }
            _ => None,
        }
    }

    /// Whether a directory of the host that it shows is not as it was.
    pub(crate) fn is_outdated(&self) -> bool {
        self.parts.iter().any(|part| matches!(&part.source, Source::Host(host) if host.is_outdated()))
    }

    /// Adds blocks behind the last one, from this source; returns the first.
    pub(crate) fn append(&mut self, blocks: u64, source: Option<Source>) -> u64 {
        let first = self.blocks;
        self.blocks += blocks;
        self.parts.extend(source.map(|source| Part { blocks: first..self.blocks, source }));
        first
    }
}

/// Whether a file begins as an image does, understood or not.
#[must_use]
pub fn is_image(path: &Path) -> bool {
    let mut block = [0; BLOCK];
    let read = open_at(path, OFlags::empty()).is_ok_and(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut block, 0).is_ok());
    read && begins_an_image(&block)
}

/// Whether a block has a superblock.
fn begins_an_image(block: &[u8]) -> bool {
    block.get(SUPERBLOCK_OFFSET..).is_some_and(|superblock| superblock.starts_with(&MAGIC.to_le_bytes()))
}

/// Blocks of one host file.
pub(crate) fn one_file(
    extent: Extent,
    path: &Path,
    version: Version,
    held: impl IntoIterator<Item = (u32, Arc<File>)>,
) -> Result<HostBlocks, Error> {
    let path = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let length = u16::try_from(path.len()).map_err(|_| Error::TooManyNames)?;
    let record = FileRecord { directory: NONE, name: Name { start: 0, length }, version };
    let (bytes, sizes) = Tables::encode(&[extent], &[record], &[], path);
    Ok(HostBlocks::new(Tables::new(Bytes::Memory(bytes), sizes), held))
}

/// Opens a regular file to be kept open, through links, and says which version of it this is.
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
    version.settle();
    let stat = fstat(&file).map_err(refused)?;
    if Version::of(&stat) == version { Ok((file, version)) } else { Err(Error::Changed(path.into())) }
}
