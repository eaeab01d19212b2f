// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a checkpoint.
//!
//! ```text
//! header    magic, format, offset of the index, length of the file, and the checksum of all that and of the index
//! chunks    16 pages each, the last one fewer, compressed with zstd, one after the other
//! index     what the image needs of a machine, the files with its other pages, length and checksum of each chunk; the image of the family
//! ```
//!
//! Numbers are little-endian, the index is in postcard's format. Checksums are the first 128 bits of BLAKE3. A file gets its name when all
//! of it is on the disk, and never changes then.

use super::image::FamilyImage;
use pando_abi::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Error, ErrorKind, Result, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 16] = b"Pando checkpoint";
/// The format that is written and read here.
const VERSION: u32 = 2;
/// Pages of a chunk.
const CHUNK_PAGES: u32 = 16;
/// Chunks after whose reading a file is opened again: the cell around keeps the content of a file while it is open.
pub(super) const CACHED_CHUNKS: u32 = 256;
/// Bytes of a page.
const PAGE: usize = PAGE_SIZE as usize;
/// Bytes of the header.
const HEADER: usize = 64;
/// Bytes of the header that the checksum covers.
const COVERED: usize = 40;
/// Maximum size of an index in bytes.
const INDEX_MAX: u64 = 256 << 20;
/// The fastest level of compression: the program runs on meanwhile.
const LEVEL: i32 = 1;

/// A checksum.
pub(super) type Checksum = [u8; 16];

/// The checksum of concatenated parts.
fn checksum(parts: &[&[u8]]) -> Checksum {
    let mut hasher = blake3::Hasher::new();
    parts.iter().for_each(|part| _ = hasher.update(part));
    let mut checksum = Checksum::default();
    hasher.finalize_xof().fill(&mut checksum);
    checksum
}

/// The requirements of an image: of the machine and the files on which it is restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRequirements {
    /// The version of the interface between cells and kernel.
    pub interface: u32,
    /// The CPU features that programs could have chosen, as opaque words.
    pub features: Vec<u32>,
    /// A fingerprint of the files that the program sees.
    pub files_fingerprint: String,
}

/// The pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PageRange {
    /// The number of the checkpoint.
    pub(super) checkpoint: u32,
    /// The number of the first page.
    pub(super) first: u32,
    /// Number of pages.
    pub(super) pages: u32,
    /// The checksum in the file's header; zeros in the file itself.
    pub(super) identity: Checksum,
}

/// The first part of an index. The image follows.
#[derive(Serialize, Deserialize)]
struct IndexHead {
    requirements: RestoreRequirements,
    own: PageRange,
    /// The files of earlier checkpoints that have pages of it.
    earlier: Vec<PageRange>,
    /// Length and checksum of each chunk.
    chunks: Vec<(u32, Checksum)>,
}

/// The numbers of stored pages, by their checksums.
pub(super) type KnownPages = HashMap<Checksum, u32>;

/// A file that is written.
pub(super) struct CheckpointWriter {
    file: BufWriter<File>,
    /// Its name until it is complete.
    unfinished: PathBuf,
    path: PathBuf,
    own: PageRange,
    chunks: Vec<(u32, Checksum)>,
    /// Pages that wait for a whole chunk.
    waiting: Vec<u8>,
    length: u64,
    known: KnownPages,
}

impl CheckpointWriter {
    /// Creates the file of a checkpoint under a name that does not count. `first` is the number of its first page.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn create(directory: &Path, checkpoint: u32, first: u32, known: KnownPages) -> Result<CheckpointWriter> {
        let path = path_of(directory, checkpoint);
        let unfinished = directory.join(format!(".checkpoint-{checkpoint}.new"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished)?;
        let mut file = BufWriter::with_capacity(1 << 18, file);
        file.write_all(&[0; HEADER])?;
        let own = PageRange { checkpoint, first, pages: 0, identity: Checksum::default() };
        Ok(CheckpointWriter { file, unfinished, path, own, chunks: Vec::new(), waiting: Vec::new(), length: HEADER as u64, known })
    }

    /// Adds a page, unless a file has its content already. Returns its number.
    ///
    /// # Errors
    /// The file cannot be written, or there are too many pages.
    pub(super) fn add(&mut self, page: &[u8]) -> Result<u32> {
        let key = checksum(&[page]);
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        let number = self.own.first.checked_add(self.own.pages).filter(|number| *number < u32::MAX);
        let number = number.ok_or_else(|| Error::other("the checkpoints have too many pages: begin again in another directory"))?;
        self.known.insert(key, number);
        self.own.pages += 1;
        self.waiting.extend_from_slice(page);
        if self.waiting.len() == CHUNK_PAGES as usize * PAGE {
            self.write_chunk()?;
        }
        Ok(number)
    }

    fn write_chunk(&mut self) -> Result<()> {
        let bytes = zstd::bulk::compress(&self.waiting, LEVEL)?;
        self.file.write_all(&bytes)?;
        self.length += bytes.len() as u64;
        self.chunks.push((bytes.len() as u32, checksum(&[&bytes])));
        self.waiting.clear();
        Ok(())
    }

    /// Completes the file: from now on the checkpoint counts. Returns the range of its pages, and its size.
    ///
    /// # Errors
    /// It cannot be written: the checkpoint does not count.
    pub(super) fn finish(
        mut self,
        requirements: RestoreRequirements,
        image: &FamilyImage,
        earlier: Vec<PageRange>,
    ) -> Result<(PageRange, KnownPages, u64)> {
        if !self.waiting.is_empty() {
            self.write_chunk()?;
        }
        let head = IndexHead { requirements, own: self.own, earlier, chunks: std::mem::take(&mut self.chunks) };
        let index = postcard::to_allocvec(&(head, image)).map_err(Error::other)?;
        if index.len() as u64 > INDEX_MAX {
            return Err(Error::other("the program's memory is in too many parts for a checkpoint: its index would exceed 256 MiB"));
        }
        self.file.write_all(&index)?;
        let end = self.length + index.len() as u64;
        let mut header = [0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        header[16..20].copy_from_slice(&VERSION.to_le_bytes());
        header[24..32].copy_from_slice(&self.length.to_le_bytes());
        header[32..40].copy_from_slice(&end.to_le_bytes());
        let identity = checksum(&[&header[..COVERED], &index]);
        header[COVERED..COVERED + 16].copy_from_slice(&identity);
        self.file.flush()?;
        let file = self.file.get_ref();
        file.write_all_at(&header, 0)?;
        file.sync_all()?;
        fs::rename(&self.unfinished, &self.path)?;
        // The name must be there after a crash, too.
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok((PageRange { identity, ..self.own }, std::mem::take(&mut self.known), end))
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        // If the file is complete, the name does not exist any more.
        let _ = fs::remove_file(&self.unfinished);
    }
}

/// The path of a checkpoint.
pub(super) fn path_of(directory: &Path, checkpoint: u32) -> PathBuf {
    directory.join(format!("checkpoint-{checkpoint}"))
}

/// The place of a chunk.
#[derive(Clone, Copy, Debug)]
struct ChunkPlace {
    start: u64,
    length: u32,
    checksum: Checksum,
}

/// A file that is read. It is open only while it is read: there may be many.
#[derive(Debug)]
pub(super) struct CheckpointFile {
    path: PathBuf,
    chunks: Vec<ChunkPlace>,
    pub(super) own: PageRange,
    pub(super) earlier: Vec<PageRange>,
    pub(super) requirements: RestoreRequirements,
    /// The bytes of the image.
    image: Vec<u8>,
}

impl CheckpointFile {
    /// Reads the index of a checkpoint's file.
    ///
    /// # Errors
    /// It cannot be read, or it is damaged.
    pub(super) fn read(directory: &Path, checkpoint: u32) -> Result<CheckpointFile> {
        let path = path_of(directory, checkpoint);
        let file = File::open(&path)?;
        let length = file.metadata()?.len();
        let mut header = [0; HEADER];
        if length < HEADER as u64 {
            return Err(damaged("it is too short"));
        }
        file.read_exact_at(&mut header, 0)?;
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if header[..16] != *MAGIC {
            return Err(damaged("it is no checkpoint"));
        }
        if word(16) as u32 != VERSION {
            let format = word(16) as u32;
            return Err(Error::other(format!(
                "it has format {format}, and this version of Pando reads format {VERSION}: use the version that wrote it"
            )));
        }
        let (start, end) = (word(24), word(32));
        if end != length || start < HEADER as u64 || start > end || end - start > INDEX_MAX {
            return Err(damaged("it is incomplete"));
        }
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start)?;
        let identity: Checksum = header[COVERED..COVERED + 16].try_into().expect("sixteen bytes");
        if checksum(&[&header[..COVERED], &bytes]) != identity {
            return Err(damaged("the checksum of its index is wrong"));
        }
        let (head, image): (IndexHead, _) = postcard::take_from_bytes(&bytes).map_err(|_| damaged("its index cannot be decoded"))?;
        let IndexHead { requirements, own, earlier, chunks } = head;
        let mut place = HEADER as u64;
        let mut places = Vec::with_capacity(chunks.len());
        for (length, checksum) in chunks {
            places.push(ChunkPlace { start: place, length, checksum });
            place += u64::from(length);
        }
        let is_sound = place == start
            && places.len() == own.pages.div_ceil(CHUNK_PAGES) as usize
            && own.first.checked_add(own.pages).is_some()
            && own.checkpoint == checkpoint;
        if !is_sound {
            return Err(damaged("its index is inconsistent"));
        }
        Ok(CheckpointFile { path, chunks: places, own: PageRange { identity, ..own }, earlier, requirements, image: image.into() })
    }

    /// The image.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) fn image(&self) -> Result<FamilyImage> {
        let image: Option<FamilyImage> = postcard::from_bytes(&self.image).ok();
        image.filter(FamilyImage::is_sound).ok_or_else(|| damaged("its image cannot be decoded"))
    }

    /// Forgets the image.
    pub(super) fn without_image(self) -> CheckpointFile {
        CheckpointFile { image: Vec::new(), ..self }
    }

    /// The file's content.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(&self) -> Result<File> {
        File::open(&self.path)
    }

    /// Whether it has a page.
    pub(super) fn covers(&self, number: u32) -> bool {
        (self.own.first..self.own.first + self.own.pages).contains(&number)
    }

    /// Reads the chunk that has a page. Returns the number of its first page, and its bytes.
    ///
    /// # Errors
    /// It cannot be read, or it is damaged.
    pub(super) fn chunk_of(&self, file: &File, number: u32) -> Result<(u32, Vec<u8>)> {
        let index = (number - self.own.first) / CHUNK_PAGES;
        let first = index * CHUNK_PAGES;
        let ChunkPlace { start, length, checksum: expected } =
            *self.chunks.get(index as usize).ok_or_else(|| damaged("it lacks a page"))?;
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, start)?;
        let pages = (self.own.pages - first).min(CHUNK_PAGES) as usize;
        let whole = if checksum(&[&bytes]) == expected { zstd::bulk::decompress(&bytes, pages * PAGE).ok() } else { None };
        match whole.filter(|whole| whole.len() == pages * PAGE) {
            Some(whole) => Ok((self.own.first + first, whole)),
            None => Err(damaged(&format!("the pages at offset {start} of checkpoint-{} are wrong", self.own.checkpoint))),
        }
    }

    /// Verifies the checksum of each page.
    ///
    /// # Errors
    /// A part cannot be read, or is damaged.
    pub(super) fn verify(&self) -> Result<()> {
        let mut file = self.open()?;
        for index in 0..self.chunks.len() as u32 {
            if index.is_multiple_of(CACHED_CHUNKS) {
                file = self.open()?;
            }
            self.chunk_of(&file, self.own.first + index * CHUNK_PAGES)?;
        }
        Ok(())
    }
}

fn damaged(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("it is damaged: {reason}"))
}
