// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the root image: bytes that lie in memory and never change.

use pando_rt::console::{self, Stream};
use pando_rt::user::{self, UserRange};

use crate::erofs::{Data, Image, Inode};
use crate::errno::Errno;

/// Bytes that are copied at a time where they do not lie in one piece.
const BOUNCE: u64 = 1024;

/// The cell's root image.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Its directory tree.
    pub image: Image<'static>,
    /// Its bytes.
    pub bytes: &'static [u8],
}

/// A file of the root image, its data found.
#[derive(Clone, Copy, Debug)]
pub struct ImageFile {
    data: Data<'static>,
    /// The bytes before the tail, which may lie elsewhere.
    head: &'static [u8],
}

impl ImageFile {
    /// Finds the data of a file.
    ///
    /// # Errors
    /// `EIO`, `EOPNOTSUPP`: the image is corrupt or its file compressed.
    pub fn new(root: &Root, inode: &Inode) -> Result<ImageFile, Errno> {
        let data = root.image.data(inode)?;
        let extent = data.extent();
        let head = root.bytes.get(extent.start as usize..extent.end as usize).ok_or(Errno::EIO)?;
        Ok(ImageFile { data, head })
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.data.size()
    }

    /// Reads into memory of the libOS. Returns how many bytes there were.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        if offset >= self.size() { 0 } else { self.data.read(offset, buffer) }
    }

    /// Copies into memory of the application what the file has from `offset` on. Returns how many bytes.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn copy(&self, offset: u64, to: UserRange) -> Result<u64, Errno> {
        let left = self.size().saturating_sub(offset).min(to.length());
        let mut done = 0;
        if let Some(head) = self.head.get(offset.min(self.size()) as usize..) {
            let piece = &head[..head.len().min(left as usize)];
            user::write(to.start(), piece)?;
            done = piece.len() as u64;
        }
        let mut bounce = [0; BOUNCE as usize];
        while done < left {
            let part = to.part(done, BOUNCE.min(left - done));
            let bytes = self.read(offset + done, &mut bounce[..part.length() as usize]);
            user::write(part.start(), &bounce[..bytes])?;
            done += bytes as u64;
            if bytes == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Sends `bytes` bytes from `offset` on to the console, from where they lie.
    pub fn send(&self, offset: u64, bytes: u64, stream: Stream) {
        let mut done = 0;
        if let Some(head) = self.head.get(offset.min(self.size()) as usize..) {
            let piece = &head[..head.len().min(bytes as usize)];
            console::send_bytes(stream, piece);
            done = piece.len() as u64;
        }
        let mut bounce = [0; BOUNCE as usize];
        while done < bytes {
            let room = BOUNCE.min(bytes - done) as usize;
            let read = self.read(offset + done, &mut bounce[..room]);
            console::send_bytes(stream, &bounce[..read]);
            done += read as u64;
            if read == 0 {
                break;
            }
        }
    }
}
