// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writer of template files: it writes a temporary file, and renames it once all of it is on the disk.

use crate::error::Error;
use crate::features;
use crate::format::{CHUNK_PAGES, Checksum, Chunk, HEADER, Header, INDEX_MAX, Index, PAGE, PageRun, checksum};
use pando_kernel::{CellId, CellImage, Kernel, OperatorError};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::NamedTempFile;
use zstd::bulk::Compressor;

/// Compression level of zstd: the next ones take twice as long for some percent of the bytes.
const LEVEL: i32 = 1;

/// The result of saving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pages of the template.
    pub pages: u64,
    /// Pages stored in the file: no zero pages, and only one of equal pages.
    pub stored: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// The identity of the file.
    pub file: FileIdentity,
}

/// Saves a frozen template, with metadata that is stored unchanged and may depend on its state. The kernel stays usable meanwhile, and the
/// template may be cloned.
///
/// The file is written beside its target and renamed once it is on the disk. At any failure, either the old file or
/// the new one is there, complete.
///
/// # Errors
/// The cell is no template or cannot be read, `metadata` fails, or the host does not let the file be written.
pub fn save(kernel: &Kernel, id: CellId, path: &Path, metadata: impl FnOnce(&CellImage) -> io::Result<Vec<u8>>) -> Result<Summary, Error> {
    let failed = |source| Error::Write { path: path.into(), source };
    let mut pages = Pages::create(path).map_err(failed)?;
    let mut written = Ok(());
    let exported = kernel.export(id, &mut |_, page| {
        written = pages.add(page);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let image = match exported {
        Err(OperatorError::Stopped) if written.is_err() => return Err(written.map_or_else(failed, |()| OperatorError::Stopped.into())),
        exported => exported?,
    };
    pages.finish_chunk().map_err(failed)?;
    let Pages { file, runs, stored, chunks, length, .. } = pages;
    let pages = image.contents();
    let features = features::of(&kernel.machine().cpuid());
    let metadata = metadata(&image).map_err(failed)?;
    let index = Index { image, metadata, features, runs, stored, chunks };
    let (bytes, file) = commit_file(file, length, &index, path).map_err(failed)?;
    Ok(Summary { pages, stored: stored.into(), bytes, file })
}

/// Adds index and header, and renames the file to its path. Returns its length, and its identity.
fn commit_file(mut file: BufWriter<NamedTempFile>, length: u64, index: &Index, path: &Path) -> io::Result<(u64, FileIdentity)> {
    let index = postcard::to_stdvec(index).map_err(io::Error::other)?;
    if index.len() as u64 > INDEX_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "its description would be larger than 32 MiB"));
    }
    let header = Header { index: length, end: length + index.len() as u64 };
    file.write_all(&index)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header.encode(&index))?;
    let file = file.into_inner()?;
    file.as_file().sync_all()?;
    let file = file.persist(path)?;
    File::open(directory(path))?.sync_all()?;
    Ok((header.end, identity(&file.metadata()?)))
}

/// The identity of a file: device, inode, length, and time of change.
pub type FileIdentity = (u64, u64, u64, i64, i64);

/// The identity of a file with this metadata.
#[must_use]
pub fn identity(found: &Metadata) -> FileIdentity {
    (found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec())
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that is being written.
struct Pages {
    file: BufWriter<NamedTempFile>,
    /// Bytes so far.
    length: u64,
    /// The number of each stored page, by its hash.
    places: HashMap<Checksum, u32>,
    runs: Vec<PageRun>,
    stored: u32,
    chunk: Vec<u8>,
    chunks: Vec<Chunk>,
    compressor: Compressor<'static>,
}

impl Pages {
    fn create(path: &Path) -> io::Result<Pages> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_string_lossy();
        // One dot in front, even if the file itself is a temporary one: leftovers of a template are found by the prefix of their names.
        let prefix = format!(".{}.", name.trim_start_matches('.'));
        let file = tempfile::Builder::new().prefix(&prefix).suffix(".new").tempfile_in(directory(path))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&[0; HEADER])?;
        Ok(Pages {
            file,
            length: HEADER as u64,
            places: HashMap::new(),
            runs: Vec::new(),
            stored: 0,
            chunk: Vec::with_capacity(CHUNK_PAGES * PAGE),
            chunks: Vec::new(),
            compressor: Compressor::new(LEVEL)?,
        })
    }

    /// Adds the next page.
    fn add(&mut self, page: &[u8]) -> io::Result<()> {
        let place = if page.iter().all(|byte| *byte == 0) { None } else { Some(self.place(page)?) };
        match self.runs.last_mut() {
            Some(run) if run.place.map(|first| first + run.count) == place && run.count < u32::MAX => run.count += 1,
            _ => self.runs.push(PageRun { count: 1, place }),
        }
        Ok(())
    }

    /// Stores a page unless it is stored already. Returns its number.
    fn place(&mut self, page: &[u8]) -> io::Result<u32> {
        let next = self.stored;
        let place = *self.places.entry(checksum(page)).or_insert(next);
        if place == next {
            self.stored = next.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
            self.chunk.extend(page);
            if self.chunk.len() == CHUNK_PAGES * PAGE {
                self.finish_chunk()?;
            }
        }
        Ok(place)
    }

    fn finish_chunk(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let bytes = self.compressor.compress(&self.chunk)?;
        self.file.write_all(&bytes)?;
        self.length += bytes.len() as u64;
        self.chunks.push(Chunk { length: bytes.len() as u32, checksum: checksum(&bytes) });
        self.chunk.clear();
        Ok(())
    }
}
