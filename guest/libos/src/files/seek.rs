// SPDX-License-Identifier: MIT OR Apache-2.0
//! File offsets (`lseek`).

use super::tree::InodeRef;
use super::tree::content::{Content, SIZE_MAX};
use super::{Files, Kind};
use crate::errno::Errno;
use crate::uapi::{SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};

impl Files {
    /// Moves a file's offset. Returns the new one.
    ///
    /// # Errors
    /// Those of `lseek`.
    pub fn seek(&mut self, fd: u64, offset: i64, whence: u64) -> Result<u64, Errno> {
        let file = self.look(fd)?;
        if file.is_name() {
            return Err(Errno::EBADF);
        }
        match file.kind {
            // The offset has no meaning, and stays.
            Kind::Event(_) | Kind::Timer(_) | Kind::Epoll(_) | Kind::Inotify(_) | Kind::Signals(_) | Kind::Clones(..) => return Ok(0),
            _ if !file.has_offset() => return Err(Errno::ESPIPE),
            _ => {}
        }
        let from = match (&file.kind, whence as u32 as u64) {
            (_, SEEK_SET) => Some(0),
            (_, SEEK_CUR) => Some(file.offset),
            // There is no end to go by.
            (Kind::Directory(_), SEEK_END) => None,
            (Kind::Text(entry, ..), SEEK_END) => entry.end(),
            (Kind::Device(..), SEEK_SET..=SEEK_END) => return Ok(0),
            (_, SEEK_END) => Some(self.status_of(file)?.size),
            (Kind::Image(..) | Kind::Node(_), SEEK_DATA | SEEK_HOLE) => {
                let found = self.seek_data(fd, offset, whence == SEEK_DATA)?;
                self.get(fd)?.offset = found;
                return Ok(found);
            }
            _ => None,
        };
        let target = from.and_then(|from| from.checked_add_signed(offset)).filter(|target| *target <= SIZE_MAX).ok_or(Errno::EINVAL)?;
        let file = self.get(fd)?;
        file.offset = if matches!(file.kind, Kind::Device(..)) { 0 } else { target };
        Ok(file.offset)
    }

    /// The offset of the next data, or of the next hole.
    fn seek_data(&self, fd: u64, offset: i64, data: bool) -> Result<u64, Errno> {
        let whole;
        let content = match &self.look(fd)?.kind {
            Kind::Image(place, file) => match self.tree.settle(InodeRef::Image(*place)) {
                InodeRef::Node(id) => self.tree.node(id)?.content()?,
                _ => {
                    whole = Content::above(*file);
                    &whole
                }
            },
            Kind::Node(id) => self.tree.node(*id)?.content()?,
            _ => return Err(Errno::EINVAL),
        };
        let offset = u64::try_from(offset).ok().filter(|offset| *offset < content.size()).ok_or(Errno::ENXIO)?;
        if data { content.next_data(offset).ok_or(Errno::ENXIO) } else { Ok(content.next_hole(offset)) }
    }
}
