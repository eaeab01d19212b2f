// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads, writes and mappings of open files. Nothing here waits.

use pando_rt::user::UserRange;

use super::file_operations::{Mappable, Transfer};
use super::regular_file::RegularFile;
use super::sharing::Sharing;
use super::tree::content::PAGE;
use super::tree::node::NodeId;
use super::user_copy::copy_out;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::random::Random;

impl Files {
    /// Reads into consecutive ranges, from `offset` or from the file's own. Returns how many bytes.
    ///
    /// # Errors
    /// Those of `read`; `EAGAIN`: no data is available yet.
    pub fn read(&mut self, fd: u64, ranges: &[UserRange], offset: Option<u64>, random: &mut Random, now: u64) -> Result<u64, Errno> {
        let number = self.index(fd)?;
        let file = self.file_at(number)?;
        let (object, has_offset, start) = (file.object, file.has_offset(), offset.unwrap_or(file.offset));
        if !file.readable() {
            return Err(Errno::EBADF);
        }
        if offset.is_some() && !has_offset {
            return Err(Errno::ESPIPE);
        }
        let done = object.operations().read(self, Transfer { file: number, ranges, offset, now }, random)?;
        if offset.is_none() && has_offset {
            self.file_at_mut(number)?.offset = start + done;
        }
        self.changed.extend(object.operations().changed_channel(number));
        Ok(done)
    }

    /// Writes consecutive ranges, at `offset` or at the file's own. Returns how many bytes.
    ///
    /// # Errors
    /// Those of `write`; `EAGAIN`: the file is full for now.
    pub fn write(&mut self, fd: u64, ranges: &[UserRange], offset: Option<u64>, now: u64) -> Result<u64, Errno> {
        let number = self.index(fd)?;
        let file = self.file_at(number)?;
        let object = file.object;
        if !file.writable() {
            return Err(Errno::EBADF);
        }
        if offset.is_some() && !file.has_offset() {
            return Err(Errno::ESPIPE);
        }
        let done = object.operations().write(self, Transfer { file: number, ranges, offset, now })?;
        self.changed.extend(object.operations().changed_channel(number));
        Ok(done)
    }

    /// Copies from one file, at an offset, to another. Returns how many bytes.
    ///
    /// # Errors
    /// `EINVAL`: the first is no regular file. `EAGAIN`: the second accepts no bytes now. Those of writing.
    pub fn transfer(&mut self, from: u64, start: u64, to: u64, to_offset: Option<u64>, bytes: u64, now: u64) -> Result<u64, Errno> {
        let mut page = [0; PAGE as usize];
        // Data of a volume is copied directly, unless the target stores it.
        let (source, target) = (self.raw_file(from)?, self.raw_file(to)?);
        let direct = source.operations().image_file(self).filter(|_| target.operations().accepts_image_bytes());
        let mut done = 0;
        while done < bytes {
            let (at, left) = (start.saturating_add(done), bytes - done);
            let piece = match direct {
                Some(data) => Ok(data.piece(at, left)),
                None => self.kernel_read(from, at, &mut page[..left.min(PAGE) as usize]).map(|read| &page[..read]),
            };
            let moved = piece.and_then(|piece| self.kernel_write(to, to_offset.map(|offset| offset + done), piece, now));
            match moved {
                Ok(0) => break,
                Ok(moved) => done += moved as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads from a file into memory of the libOS.
    ///
    /// # Errors
    /// `EINVAL`: the file cannot be read so. `EIO`, `EBADF`.
    pub fn kernel_read(&self, fd: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.raw_file(fd)?.operations().kernel_read(self, offset, buffer)
    }

    /// Writes bytes in the libOS's memory to a file. Returns how many.
    ///
    /// # Errors
    /// `EINVAL`: the file cannot be written so. Those of `write`.
    pub fn kernel_write(&mut self, fd: u64, offset: Option<u64>, bytes: &[u8], now: u64) -> Result<usize, Errno> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let number = self.index(fd)?;
        let object = self.file_at(number)?.object;
        object.operations().kernel_write(self, number, offset, bytes, now)
    }

    /// The source for a mapping of a descriptor; `writes`: the mapping may be written.
    ///
    /// # Errors
    /// `EBADF`, `EACCES`, `ENODEV`, `ENOSPC`, `EIO`.
    pub fn mmap(&mut self, fd: u64, sharing: Sharing, writes: bool) -> Result<Mappable, Errno> {
        let file = self.file(fd)?;
        if !file.readable() || sharing == Sharing::Reads && writes {
            return Err(Errno::EACCES);
        }
        let object = file.object;
        object.operations().mmap(self, self.index(fd)?, sharing, writes)
    }

    /// Copies a volume's file from `offset` on into a mapping.
    ///
    /// # Errors
    /// `EFAULT`, `EIO`, `EBADF`, `ENODEV`.
    pub fn copy_mapped(&self, fd: u64, offset: u64, to: UserRange) -> Result<u64, Errno> {
        match self.raw_file(fd)?.downcast() {
            Some(RegularFile::Image(_, data)) => copy_out(&data, offset, to),
            _ => Err(Errno::ENODEV),
        }
    }

    /// The node whose size `ftruncate` changes. `None`: the call has no effect.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: the file has no size. `ENOSPC`, `EIO`.
    pub fn truncated_node(&mut self, fd: u64) -> Result<Option<NodeId>, Errno> {
        let number = self.index(fd)?;
        let object = self.file_at(number)?.object;
        object.operations().truncated_node(self, number)
    }

    /// The regular file of a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn regular(&self, fd: u64) -> Result<Option<RegularFile>, Errno> {
        self.raw_file(fd).map(OpenFile::downcast)
    }

    /// The node of an open regular file; an inode of a volume becomes one now. `None`: the file is not regular.
    ///
    /// # Errors
    /// `EBADF`, `ENOSPC`, `EIO`.
    pub fn writable_node(&mut self, fd: u64) -> Result<Option<NodeId>, Errno> {
        let number = self.index(fd)?;
        self.regular(fd)?.map(|file| file.copy_up(self, number)).transpose()
    }
}
