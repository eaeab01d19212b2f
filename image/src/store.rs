// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes in memory, or in a file with a checksum for each block.

use std::{
    fs::File,
    hash::{Hash, Hasher},
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, OnceLock},
};

use crate::{BlockError, block::BLOCK};

/// Blocks that are verified at once.
const PIECE: usize = 64;

/// The checksum of a block: CRC-32C, which processors compute.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Adds the checksums of blocks in memory to a fingerprint, as [`CheckedFile`] does.
fn hash_content(bytes: &[u8], hasher: &mut impl Hasher) {
    let mut padded = [0; BLOCK];
    for block in bytes.chunks(BLOCK) {
        padded[..block.len()].copy_from_slice(block);
        padded[block.len()..].fill(0);
        Some(&checksum(&padded)).hash(hasher);
    }
}

/// A file with a checksum for each block: a truncated or altered block is an error when it is read, and opening reads none.
#[derive(Debug)]
pub(crate) struct CheckedFile {
    file: File,
    checksums: Vec<u32>,
}

impl CheckedFile {
    /// A file whose first blocks have these checksums.
    pub(crate) fn new(file: File, checksums: Vec<u32>) -> Self {
        CheckedFile { file, checksums }
    }

    /// Adds the checksums of blocks to a fingerprint.
    fn hash_content(&self, blocks: Range<u64>, hasher: &mut impl Hasher) {
        for block in blocks {
            self.checksums.get(block as usize).hash(hasher);
        }
    }

    /// Whether all blocks are as they were written.
    pub(crate) fn is_intact(&self) -> bool {
        let mut buffer = vec![0; PIECE * BLOCK];
        let pieces = (0..self.checksums.len()).step_by(PIECE);
        pieces.into_iter().all(|first| {
            let count = PIECE.min(self.checksums.len() - first);
            self.read_blocks(first as u64, &mut buffer[..count * BLOCK]).is_ok()
        })
    }

    /// Reads whole blocks.
    pub(crate) fn read_blocks(&self, first: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        let damaged = || BlockError::Damaged("the cached image was truncated or altered");
        self.file.read_exact_at(buffer, first * BLOCK as u64).map_err(|_| damaged())?;
        for (index, block) in (first..).zip(buffer.chunks(BLOCK)) {
            let expected = usize::try_from(index).ok().and_then(|index| self.checksums.get(index)).ok_or_else(damaged)?;
            if checksum(block) != *expected {
                return Err(damaged());
            }
        }
        Ok(())
    }
}

/// A range of bytes that is read in small pieces.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// All of them.
    Memory(Vec<u8>),
    /// Those of a file, from a block on.
    File {
        file: Arc<CheckedFile>,
        first: u64,
        /// The cached blocks.
        cached: Vec<OnceLock<Box<[u8]>>>,
    },
}

impl Bytes {
    /// `blocks` blocks of a file.
    pub(crate) fn in_file(file: Arc<CheckedFile>, first: u64, blocks: usize) -> Self {
        Bytes::File { file, first, cached: (0..blocks).map(|_| OnceLock::new()).collect() }
    }

    /// Adds the first `length` bytes, which fill whole blocks, to a fingerprint.
    pub(crate) fn hash_content(&self, length: u64, hasher: &mut impl Hasher) {
        match self {
            Bytes::Memory(bytes) => hash_content(&bytes[..bytes.len().min(length as usize)], hasher),
            Bytes::File { file, first, cached } => {
                file.hash_content(*first..*first + (length / BLOCK as u64).min(cached.len() as u64), hasher)
            }
        }
    }

    /// Fills the buffer from `offset` on.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        match self {
            Bytes::Memory(bytes) => {
                let start = usize::try_from(offset).ok();
                let piece = start.and_then(|start| bytes.get(start..)?.get(..buffer.len()));
                buffer.copy_from_slice(piece.ok_or(BlockError::Damaged("a table is truncated"))?);
            }
            Bytes::File { file, first, cached } => {
                let (mut index, mut within) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize);
                let mut rest = buffer;
                while !rest.is_empty() {
                    let block = &cached_block(file, *first, cached, index)?[within..];
                    let (piece, remaining) = rest.split_at_mut(rest.len().min(block.len()));
                    piece.copy_from_slice(&block[..piece.len()]);
                    (rest, index, within) = (remaining, index + 1, 0);
                }
            }
        }
        Ok(())
    }
}

/// A block of a range, read once.
fn cached_block<'a>(file: &CheckedFile, first: u64, cached: &'a [OnceLock<Box<[u8]>>], index: u64) -> Result<&'a [u8], BlockError> {
    let slot = usize::try_from(index).ok().and_then(|index| cached.get(index));
    let slot = slot.ok_or(BlockError::Damaged("a table is truncated"))?;
    if let Some(block) = slot.get() {
        return Ok(block);
    }
    let mut block = vec![0; BLOCK].into_boxed_slice();
    file.read_blocks(first + index, &mut block)?;
    Ok(slot.get_or_init(|| block))
}

/// The first blocks of an image.
#[derive(Debug)]
pub(crate) enum Blocks {
    Memory(Vec<u8>),
    File(Arc<CheckedFile>),
}

impl Blocks {
    /// Adds the first `blocks` blocks to a fingerprint, by their checksums.
    pub(crate) fn hash_content(&self, blocks: u64, hasher: &mut impl Hasher) {
        match self {
            Blocks::Memory(bytes) => hash_content(&bytes[..bytes.len().min(blocks as usize * BLOCK)], hasher),
            Blocks::File(file) => file.hash_content(0..blocks, hasher),
        }
    }

    /// Reads whole blocks.
    pub(crate) fn read(&self, first: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        match self {
            Blocks::Memory(bytes) => {
                let start = usize::try_from(first).ok().and_then(|first| first.checked_mul(BLOCK));
                let piece = start.and_then(|start| bytes.get(start..)?.get(..buffer.len()));
                buffer.copy_from_slice(piece.ok_or(BlockError::Damaged("the image's first blocks are missing"))?);
                Ok(())
            }
            Blocks::File(file) => file.read_blocks(first, buffer),
        }
    }
}
