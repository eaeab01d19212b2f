// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host image in a file, to be opened in no time: all that Pando keeps of it, and none of the files' data.
//!
//! ```text
//! the image's first blocks, as far as they do not lie in host files
//! the tables of extents, files, directories and names
//! a checksum for each block so far
//! the trailer: what this is, how long each part is, and the checksum of the checksums
//! ```
//!
//! Each part fills whole blocks. Only trailer and checksums are read when the file is opened; the rest is compared with
//! its checksum when it is read. The file is written beside its place and renamed, so it is there whole or not at all.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    process::geteuid,
};

use crate::{
    Error, Image,
    format::{BLOCK, BLOCK_SIZE},
    host::{HostBlocks, open_at},
    image::{Part, Source},
    store::{Blocks, Bytes, CheckedFile, checksum},
    tables::{Fields, Sizes, Tables},
};

/// What the trailer begins with; the number counts the versions of this format.
const MAGIC: &[u8; 16] = b"Pando image   3\n";
/// Numbers in the trailer, of eight bytes each.
const NUMBERS: usize = 9;
const TRAILER: usize = MAGIC.len() + NUMBERS * 8;
/// Checksums that are read at most: of a cached image of 64 GiB.
const CHECKSUMS_MAX: u64 = 1 << 24;

/// A file that keeps an image from one start to the next.
#[derive(Clone, Debug)]
pub struct Cache {
    path: PathBuf,
}

/// An image as it was kept.
#[derive(Debug)]
pub struct Kept {
    /// The image.
    pub image: Image,
    /// What [`Cache::store`] was given.
    pub signs: u64,
    /// When it was last written, or found to be as the host is.
    pub checked: SystemTime,
}

impl Kept {
    /// Whether names came or went in a directory of the host since. Costs a look at each directory, but not at files.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.image.is_outdated()
    }
}

impl Cache {
    /// The file at this path, whether it is there yet or not.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Cache { path: path.into() }
    }

    /// The image that is kept, if there is one that can be used: the caller's own, that nobody else may write, whole,
    /// and of this version. O(1) but for the checksums, 4 bytes for each 4 KiB of metadata.
    #[must_use]
    pub fn open(&self) -> Option<Kept> {
        let (file, checked) = self.open_file()?;
        let trailer = Trailer::read(&file)?;
        let checksums = trailer.checksums(&file)?;
        let file = Arc::new(CheckedFile::new(file, checksums));
        let bytes = Bytes::in_file(Arc::clone(&file), trailer.kept, usize::try_from(trailer.checked - trailer.kept).ok()?);
        let tables = Tables::new(bytes, trailer.sizes);
        let kept = Part { blocks: 0..trailer.kept, source: Source::Kept(Blocks::File(file)) };
        let host = Part { blocks: trailer.kept..trailer.blocks, source: Source::Host(HostBlocks::new(tables, [])) };
        Some(Kept { image: Image::new(trailer.blocks, vec![kept, host]), signs: trailer.signs, checked })
    }

    /// Keeps an image fresh from [`crate::Builder::image`] whose data lies in host files; `signs` tells those who open it for what state of
    /// the host it was made. If it is kept already, it is only marked as checked now.
    ///
    /// # Errors
    /// [`Error::Write`]; the image that was kept before, if any, is still there.
    pub fn store(&self, image: &Image, signs: u64) -> Result<(), Error> {
        let failed = |source| Error::Write { path: self.path.clone(), source };
        let (kept, tables, sizes) =
            image.in_memory().ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidInput, "only a fresh host image can be kept")))?;
        let tables = padded(tables);
        let checksums: Vec<u32> = kept.chunks(BLOCK).chain(tables.chunks(BLOCK)).map(checksum).collect();
        let checksum_bytes: Vec<u8> = checksums.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
        let trailer = Trailer {
            blocks: image.blocks(),
            kept: (kept.len() / BLOCK) as u64,
            checked: checksums.len() as u64,
            sizes,
            signs,
            checksum: checksum(&checksum_bytes),
        };
        if self.open_file().is_some_and(|(file, _)| {
            Trailer::read(&file).is_some_and(|old| old == trailer && old.checksums(&file).is_some_and(|old| old == checksums))
        }) {
            let file = File::options().write(true).open(&self.path).map_err(failed)?;
            return file.set_modified(SystemTime::now()).map_err(failed);
        }
        self.write(&[kept, &tables, &padded(&checksum_bytes), &trailer.encode()]).map_err(failed)
    }

    /// Forgets the image, so that the next start makes it anew. It is no error if it is gone.
    pub fn forget(&self) {
        // Whoever cannot remove it cannot renew it either, and is told then.
        let _ = fs::remove_file(&self.path);
    }

    /// Writes the file beside its place, under one name that only one process writes at a time, and puts it there. So
    /// nothing is left over, however often the process is ended while it writes.
    fn write(&self, parts: &[&[u8]]) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        if let Some(directory) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let mut file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&temporary)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Another process is about it this very moment.
            return Ok(());
        }
        // It may have been put in its place between the two lines above.
        if !fs::symlink_metadata(&temporary).is_ok_and(|named| file.metadata().is_ok_and(|own| named.ino() == own.ino())) {
            return Ok(());
        }
        file.set_len(0)?;
        for part in parts {
            file.write_all(part)?;
        }
        fs::rename(&temporary, &self.path)
    }

    /// Opens the file if it is the caller's own. Whoever else could write it could make the caller's cells see any file
    /// that the caller may read.
    fn open_file(&self) -> Option<(File, SystemTime)> {
        let file = open_at(&self.path, OFlags::empty()).ok()?;
        let metadata = file.metadata().ok()?;
        let own = metadata.is_file() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0;
        if own { Some((file, metadata.modified().ok()?)) } else { None }
    }
}

/// What the last block says.
#[derive(Debug, PartialEq, Eq)]
struct Trailer {
    /// Blocks of the image.
    blocks: u64,
    /// Those of them that are in the file.
    kept: u64,
    /// Blocks of the file that have a checksum: those, and the tables.
    checked: u64,
    sizes: Sizes,
    signs: u64,
    /// Of the checksums.
    checksum: u32,
}

impl Trailer {
    fn encode(&self) -> Vec<u8> {
        let Sizes { extents, files, directories, names } = self.sizes;
        let mut bytes = MAGIC.to_vec();
        for number in [self.blocks, self.kept, self.checked, extents, files, directories, names, self.signs, self.checksum.into()] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(checksum(&bytes).to_le_bytes());
        padded(&bytes)
    }

    /// Reads the trailer of a file; nothing if it has none that fits it.
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
        let [blocks, kept, checked, extents, files, directories, names, signs, checksum] = [(); NUMBERS].map(|()| fields.u64());
        let sizes = Sizes { extents, files, directories, names };
        let trailer = Trailer { blocks, kept, checked, sizes, signs, checksum: checksum as u32 };
        // Nothing below can overflow: a checksum has been right, but not everybody's trailers are ours.
        let counts = [blocks, extents, files, directories, names];
        let sound = checked <= CHECKSUMS_MAX && kept <= checked && kept <= blocks && counts.iter().all(|count| *count <= u32::MAX.into());
        let expected = checked + (checked * 4).div_ceil(BLOCK_SIZE) + 1;
        (sound && length == expected * BLOCK_SIZE).then_some(trailer)
    }

    /// Reads the checksums; nothing if they are not those that were written.
    fn checksums(&self, file: &File) -> Option<Vec<u32>> {
        let mut bytes = vec![0; usize::try_from(self.checked * 4).ok()?];
        file.read_exact_at(&mut bytes, self.checked * BLOCK_SIZE).ok()?;
        if checksum(&bytes) != self.checksum {
            return None;
        }
        Some(bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number)).collect())
    }
}

/// The bytes, with zeros up to a whole block.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(BLOCK), 0);
    padded
}
