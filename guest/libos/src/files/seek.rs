// SPDX-License-Identifier: MIT OR Apache-2.0
//! File offsets (`lseek`).

use super::Files;
use super::tree::content::SIZE_MAX;
use crate::errno::Errno;
use crate::uapi::{SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};

impl Files {
    /// Moves a file's offset. Returns the new one.
    ///
    /// # Errors
    /// Those of `lseek`.
    pub fn seek(&mut self, fd: u64, offset: i64, whence: u64) -> Result<u64, Errno> {
        let number = self.index(fd)?;
        let object = self.file(fd)?.object;
        object.operations().seek(self, number, offset, whence)
    }

    /// Moves the offset of an open file that has one. Returns the new one.
    ///
    /// # Errors
    /// `EINVAL`, `ENXIO`, `EIO`.
    pub(super) fn seek_position(&mut self, number: usize, offset: i64, whence: u64) -> Result<u64, Errno> {
        let file = self.file_at(number)?;
        let from = match whence as u32 as u64 {
            SEEK_SET => Some(0),
            SEEK_CUR => Some(file.offset),
            SEEK_END => file.operations().end(self, file)?,
            whence @ (SEEK_DATA | SEEK_HOLE) => {
                let found = file.operations().seek_data(self, offset, whence == SEEK_DATA)?;
                self.file_at_mut(number)?.offset = found;
                return Ok(found);
            }
            _ => None,
        };
        let target = from.and_then(|from| from.checked_add_signed(offset)).filter(|target| *target <= SIZE_MAX).ok_or(Errno::EINVAL)?;
        self.file_at_mut(number)?.offset = target;
        Ok(target)
    }
}
