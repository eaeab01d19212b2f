// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes: read-only images in memory, and the content of their files.
//!
//! Reading a byte may load its block from the host, which can fail. So bytes are accessed only through copy routines that survive faults,
//! and never compared or formatted in place.

use core::ops::Range;

use pando_abi::{BlockAddress, BlockNumber, DiskIndex};
use pando_rt::user::fetch;

use super::InodeRef;
use crate::erofs::{BLOCK_SIZE, Data, Image, Inode, Nid};
use crate::errno::Errno;

/// The index of a volume, in the order of the argument block; the first is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeIndex(pub u8);

impl VolumeIndex {
    /// The volume that is mounted at `/`.
    pub const ROOT: VolumeIndex = VolumeIndex(0);
}

/// An inode of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageInode {
    /// The volume.
    pub volume: VolumeIndex,
    /// The inode in it.
    pub nid: Nid,
}

/// A read-only image and its mount point.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Its directory tree.
    pub image: Image<'static>,
    /// Its bytes.
    pub bytes: &'static [u8],
    /// The directory that holds its mount point.
    pub parent: InodeRef,
    /// Nothing in it may be changed.
    pub is_read_only: bool,
}

/// The content of a volume's file.
#[derive(Clone, Copy, Debug)]
pub struct ImageFile {
    data: Data<'static>,
    /// The head's offset in the volume.
    start: u64,
    /// The bytes before the tail, which may lie elsewhere.
    head: &'static [u8],
}

impl ImageFile {
    /// Finds the data of a file.
    ///
    /// # Errors
    /// `EIO`, `EOPNOTSUPP`: the image is corrupt or its file compressed.
    pub fn new(volume: &Volume, inode: &Inode) -> Result<ImageFile, Errno> {
        let data = volume.image.data(inode)?;
        let extent = data.extent();
        let head = volume.bytes.get(extent.start as usize..extent.end as usize).ok_or(Errno::EIO)?;
        Ok(ImageFile { data, start: extent.start, head })
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.data.size()
    }

    /// The file's first block and the number after that of its last one. `None`: parts of it lie elsewhere, and must be copied.
    #[must_use]
    pub fn blocks(&self, volume: VolumeIndex) -> Option<(BlockAddress, BlockNumber)> {
        let number = |offset: u64| u32::try_from(offset / BLOCK_SIZE).ok().map(BlockNumber);
        let end = self.start + self.head.len() as u64;
        let (first, end) = (number(self.start)?, number(end.next_multiple_of(BLOCK_SIZE))?);
        // The operator attaches the volumes' disks in the order of the volumes.
        let is_whole = self.data.tail().is_empty() && self.start.is_multiple_of(BLOCK_SIZE);
        is_whole.then_some((BlockAddress { disk: DiskIndex(volume.0.into()), block: first }, end))
    }

    /// The addresses of the bytes from `offset` on, at most `length` of them, and the end address of the file. `None`: there are no
    /// bytes, or they are not in whole blocks.
    #[must_use]
    pub fn addresses(&self, offset: u64, length: u64) -> Option<(Range<u64>, u64)> {
        let (start, bytes) = (self.head.as_ptr().addr() as u64, self.head.len() as u64);
        let left = bytes.checked_sub(offset).filter(|left| *left > 0)?;
        Some((start + offset..start + offset + length.min(left), start + bytes))
    }

    /// The bytes from `offset` on in one piece, at most `length`; empty at the end of the file.
    #[must_use]
    pub fn piece(&self, offset: u64, length: u64) -> &'static [u8] {
        let head = self.head.len() as u64;
        let (part, offset) = if offset < head { (self.head, offset) } else { (self.data.tail(), offset - head) };
        let rest = part.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        &rest[..usize::try_from(length).unwrap_or(usize::MAX).min(rest.len())]
    }

    /// Reads into memory of the libOS, up to the end of the file. Returns how many bytes.
    ///
    /// # Errors
    /// `EIO`.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < buffer.len() {
            let piece = self.piece(offset + done as u64, (buffer.len() - done) as u64);
            if piece.is_empty() {
                break;
            }
            if fetch(piece, &mut buffer[done..done + piece.len()]) < piece.len() {
                return Err(Errno::EIO);
            }
            done += piece.len();
        }
        Ok(done)
    }
}
