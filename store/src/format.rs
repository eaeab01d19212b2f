// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file format of a template.
//!
//! ```text
//! header    magic, format, offset of the index, length of the file, and the checksum of all that and of the index
//! chunks    16 pages each, the last one fewer, compressed with zstd, one after the other
//! index     the template without its pages; the operator's metadata; its CPU features; length and checksum of each
//! chunk; the place of each page
//! ```
//!
//! Equal pages are stored once, zero pages not at all. Numbers are little-endian, the index is in postcard's format.
//! Checksums are the first 128 bits of BLAKE3.

use crate::error::Error;
use pando_abi::PAGE_SIZE;
use pando_kernel::CellImage;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first bytes of a file.
pub const MAGIC: &[u8; 16] = b"Pando template\n\0";
/// The format that is written and read here. It increases with every change that readers must handle, those of [`CellImage`] included.
pub const VERSION: u32 = 2;
/// Pages of a chunk: few enough to read for one page, enough to be worth compressing.
pub const CHUNK_PAGES: usize = 16;

/// Bytes of a page.
pub(crate) const PAGE: usize = PAGE_SIZE as usize;
/// Bytes of the header.
pub(crate) const HEADER: usize = 64;
/// Maximum size of an index in bytes: that of a hundred gigabytes of pages. In memory it takes up to eight times as much.
pub(crate) const INDEX_MAX: u64 = 32 << 20;
/// Bytes of an index that are hashed at a time.
const PIECE: usize = 64 << 10;

/// The checksum of bytes.
pub(crate) type Checksum = [u8; 16];

/// The checksum of concatenated parts.
fn checksum_of(parts: &[&[u8]]) -> Checksum {
    let mut hasher = blake3::Hasher::new();
    parts.iter().for_each(|part| _ = hasher.update(part));
    let mut checksum = Checksum::default();
    hasher.finalize_xof().fill(&mut checksum);
    checksum
}

/// The checksum of bytes.
pub(crate) fn checksum(bytes: &[u8]) -> Checksum {
    checksum_of(&[bytes])
}

/// Whether a file's index matches its header. It reads the index in pieces, so an invalid index costs no memory.
pub(crate) fn index_matches(file: &File, header: &[u8; HEADER], place: Header) -> io::Result<bool> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[..48]);
    let mut piece = vec![0; PIECE];
    let mut position = place.index;
    while position < place.end {
        let length = usize::try_from(place.end - position).unwrap_or(PIECE).min(PIECE);
        file.read_exact_at(&mut piece[..length], position)?;
        hasher.update(&piece[..length]);
        position += length as u64;
    }
    let mut checksum = Checksum::default();
    hasher.finalize_xof().fill(&mut checksum);
    Ok(header[48..] == checksum)
}

/// The header, without the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Offset of the index, where the chunks end.
    pub(crate) index: u64,
    /// End of the index and of the file.
    pub(crate) end: u64,
}

impl Header {
    /// The bytes of the header of a file with this index.
    pub(crate) fn encode(self, index: &[u8]) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.index.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.end.to_le_bytes());
        let checksum = checksum_of(&[&bytes[..48], index]);
        bytes[48..].copy_from_slice(&checksum);
        bytes
    }

    /// Decodes the header of a file with this length. The caller verifies the checksum once it has the index, by encoding the header again.
    pub(crate) fn decode(bytes: &[u8; HEADER], length: u64, path: &Path) -> Result<Header, Error> {
        if bytes[..16] != *MAGIC {
            return Err(Error::Other { path: path.into() });
        }
        let [index, end] = [24, 32].map(|at| u64::from_le_bytes(std::array::from_fn(|offset| bytes[at + offset])));
        let found = u32::from_le_bytes(std::array::from_fn(|offset| bytes[16 + offset]));
        if found != VERSION {
            return Err(Error::Version { path: path.into(), found, known: VERSION });
        }
        let damaged = |what| Err(Error::Damaged { path: path.into(), what });
        if length != end {
            return damaged("its length is wrong");
        }
        if index < HEADER as u64 || index > end || end - index > INDEX_MAX {
            return damaged("its index is at an invalid place");
        }
        Ok(Header { index, end })
    }
}

/// A sequence of consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRun {
    pub(crate) count: u32,
    /// The number of the first one among all stored pages. `None`: all are zero.
    pub(crate) place: Option<u32>,
}

/// A chunk; it follows the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chunk {
    pub(crate) length: u32,
    /// The checksum of its bytes in the file.
    pub(crate) checksum: Checksum,
}

/// The index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) image: CellImage,
    pub(crate) metadata: Vec<u8>,
    pub(crate) features: Vec<u32>,
    pub(crate) runs: Vec<PageRun>,
    /// Number of stored pages.
    pub(crate) stored: u32,
    pub(crate) chunks: Vec<Chunk>,
}
