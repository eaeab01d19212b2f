// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cached host image: a file with all metadata of an image, and none of the host files' data.
//!
//! ```text
//! the image's first blocks, except those in host files
//! the tables of extents, files, directories and names
//! a checksum for each block so far
//! the trailer: magic number, the parts' lengths, and the checksum of the checksums
//! ```
//!
//! Each part fills whole blocks. Opening reads only trailer and checksums; the rest is verified when it is read. The file is written
//! under a temporary name and renamed, so it is always complete.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use crate::{
    BLOCK_SIZE, Error, Image,
    block::BLOCK,
    cache_file::{open_cache_file, replace_cache_file},
    host::HostBlocks,
    image::{BlockRange, BlockSource},
    store::{Blocks, Bytes, CheckedFile, checksum},
    tables::{Fields, Sizes, Tables},
};

/// The trailer's magic number, with the version of the format.
const MAGIC: &[u8; 16] = b"Pando image   7\n";
/// Numbers in the trailer, of eight bytes each.
const NUMBERS: usize = 10;
const TRAILER: usize = MAGIC.len() + NUMBERS * 8;
/// Maximal number of checksums: those of a cached image of 64 GiB.
const CHECKSUMS_MAX: u64 = 1 << 24;

/// A file that caches an image between starts.
#[derive(Clone, Debug)]
pub struct Cache {
    path: PathBuf,
}

/// A cached image.
#[derive(Debug)]
pub struct CachedImage {
    /// The image.
    pub image: Image,
    /// The value that was passed to [`Cache::store`].
    pub host_fingerprint: u64,
    /// When it was last written or found to match the host, or the time set by [`Cache::set_checked`].
    pub checked: SystemTime,
}

impl CachedImage {
    /// Whether names came or went in a directory of the host since, or it got other permissions. Reads the status of each
    /// directory, but not of files.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.image.is_outdated()
    }

    /// Whether its metadata is as it was written. Reads all of it.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.image.is_intact()
    }
}

impl Cache {
    /// The cache file at this path, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Cache { path: path.into() }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cached image, if it is usable: owned by the caller, writable by no other user, complete, and of this version. O(1) but for the
    /// checksums, 4 bytes for each 4 KiB of metadata.
    #[must_use]
    pub fn open(&self) -> Option<CachedImage> {
        let (file, checked) = self.open_file()?;
        let trailer = Trailer::read(&file)?;
        let checksums = trailer.checksums(&file)?;
        let file = Arc::new(CheckedFile::new(file, checksums));
        let bytes =
            Bytes::in_file(Arc::clone(&file), trailer.metadata_blocks, usize::try_from(trailer.checked - trailer.metadata_blocks).ok()?);
        let tables = Tables::new(bytes, trailer.sizes);
        let metadata = BlockRange { blocks: 0..trailer.metadata_blocks, source: BlockSource::Metadata(Blocks::File(file)) };
        let host = BlockRange {
            blocks: trailer.metadata_blocks..trailer.blocks,
            source: BlockSource::Host(Box::new(HostBlocks::new(tables, []))),
        };
        let mut image = Image::new(trailer.blocks, vec![metadata, host]);
        image.allow_revisions(trailer.blocks);
        Some(CachedImage { image, host_fingerprint: trailer.host_fingerprint, checked })
    }

    /// Caches an image from [`crate::Builder::image`] whose data is in host files; `host_fingerprint` identifies the state of the host for
    /// which it was made. If the same image is cached already, only its time of check is updated.
    ///
    /// # Errors
    /// [`Error::Write`]; the image that was cached before, if any, remains.
    pub fn store(&self, image: &Image, host_fingerprint: u64) -> Result<(), Error> {
        let failed = |source| Error::Write { path: self.path.clone(), source };
        let (metadata, tables, sizes) = image
            .in_memory()
            .ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidInput, "only a fresh host image can be cached")))?;
        let tables = padded(tables);
        let checksums: Vec<u32> = metadata.chunks(BLOCK).chain(tables.chunks(BLOCK)).map(checksum).collect();
        let checksum_bytes: Vec<u8> = checksums.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
        let trailer = Trailer {
            blocks: image.blocks(),
            metadata_blocks: (metadata.len() / BLOCK) as u64,
            checked: checksums.len() as u64,
            sizes,
            host_fingerprint,
            checksum: checksum(&checksum_bytes),
        };
        if self.open_file().is_some_and(|(file, _)| {
            Trailer::read(&file).is_some_and(|old| old == trailer && old.checksums(&file).is_some_and(|old| old == checksums))
        }) {
            return self.set_checked(SystemTime::now());
        }
        replace_cache_file(&self.path, &[metadata, &tables, &padded(&checksum_bytes), &trailer.encode()]).map_err(failed)
    }

    /// Sets the time at which the cached image counts as checked: in the past, so that another check is due soon unless the one that
    /// begins now is completed.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn set_checked(&self, time: SystemTime) -> Result<(), Error> {
        let file = File::options().write(true).open(&self.path).and_then(|file| file.set_modified(time));
        file.map_err(|source| Error::Write { path: self.path.clone(), source })
    }

    /// Removes the cached image, so that the next start makes it anew. It is no error if it is gone.
    pub fn forget(&self) {
        // If it cannot be removed, it cannot be replaced either, and that error is reported.
        let _ = fs::remove_file(&self.path);
    }

    fn open_file(&self) -> Option<(File, SystemTime)> {
        let (file, metadata) = open_cache_file(&self.path)?;
        Some((file, metadata.modified().ok()?))
    }
}

/// The content of the last block.
#[derive(Debug, PartialEq, Eq)]
struct Trailer {
    /// Blocks of the image.
    blocks: u64,
    /// The blocks of the image that are in the file.
    metadata_blocks: u64,
    /// Blocks of the file with a checksum: those, and the tables.
    checked: u64,
    sizes: Sizes,
    host_fingerprint: u64,
    /// The checksum of the checksums.
    checksum: u32,
}

impl Trailer {
    fn encode(&self) -> Vec<u8> {
        let Sizes { extents, files, directories, names, slots } = self.sizes;
        let mut bytes = MAGIC.to_vec();
        for number in [
            self.blocks,
            self.metadata_blocks,
            self.checked,
            extents,
            files,
            directories,
            names,
            slots,
            self.host_fingerprint,
            self.checksum.into(),
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(checksum(&bytes).to_le_bytes());
        padded(&bytes)
    }

    /// Reads a file's trailer; `None` if it has no valid one.
    fn read(file: &File) -> Option<Self> {
        let length = file.metadata().ok()?.len();
        let mut bytes = [0; TRAILER + 4];
        file.read_exact_at(&mut bytes, length.checked_sub(BLOCK_SIZE)?).ok()?;
        let (content, sum) = bytes.split_at(TRAILER);
        let numbers = content.strip_prefix(MAGIC)?;
        if checksum(content).to_le_bytes() != sum {
            return None;
        }
        let mut fields = Fields(numbers);
        let [blocks, metadata_blocks, checked, extents, files, directories, names, slots, host_fingerprint, checksum] =
            [(); NUMBERS].map(|()| fields.u64());
        let sizes = Sizes { extents, files, directories, names, slots };
        let trailer = Trailer { blocks, metadata_blocks, checked, sizes, host_fingerprint, checksum: checksum as u32 };
        // Checked for overflow: a valid checksum does not prove that this program wrote the trailer.
        let counts = [blocks, extents, files, directories, names, slots];
        let is_valid = checked <= CHECKSUMS_MAX
            && metadata_blocks <= checked
            && metadata_blocks <= blocks
            && counts.iter().all(|count| *count <= u32::MAX.into());
        let expected = checked + (checked * 4).div_ceil(BLOCK_SIZE) + 1;
        (is_valid && length == expected * BLOCK_SIZE).then_some(trailer)
    }

    /// Reads the checksums; `None` if they do not match the trailer.
    fn checksums(&self, file: &File) -> Option<Vec<u32>> {
        let mut bytes = vec![0; usize::try_from(self.checked * 4).ok()?];
        file.read_exact_at(&mut bytes, self.checked * BLOCK_SIZE).ok()?;
        if checksum(&bytes) != self.checksum {
            return None;
        }
        Some(bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect())
    }
}

/// The bytes, padded with zeros to a whole block.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(BLOCK), 0);
    padded
}
