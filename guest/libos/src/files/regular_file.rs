// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open regular files, of a volume or of the overlay.

use pando_rt::memory;
use pando_rt::user;

use super::file_operations::{FileOperations, Mappable, OffsetUse, Side, Transfer};
use super::sharing::Sharing;
use super::status::time;
use super::tree::content::{Content, SIZE_MAX};
use super::tree::node::{NodeId, Times};
use super::tree::volume::{ImageFile, ImageInode};
use super::tree::{InodeRef, Tree};
use super::user_copy::{collect, copy_out, deliver, each};
use super::{Files, OpenFile};
use crate::erofs::Time;
use crate::errno::Errno;
use crate::random::Random;
use crate::uapi::{CAP_FSETID, O_APPEND, O_NOATIME};

/// Seconds after which the time of last access is updated even without changes (`relatime`).
const ACCESS_TIME_AGE: i64 = 24 * 60 * 60;

/// An open regular file.
#[derive(Clone, Copy, Debug)]
pub enum RegularFile {
    /// A file of a volume that was no node when it was last examined.
    Image(ImageInode, ImageFile),
    /// A file of the overlay.
    Node(NodeId),
}

impl RegularFile {
    /// The file as it is now: an inode of a volume may have become a node.
    fn real(self, tree: &Tree) -> RegularFile {
        match self {
            RegularFile::Image(inode, _) => match tree.real_inode(InodeRef::Image(inode)) {
                InodeRef::Node(id) => RegularFile::Node(id),
                _ => self,
            },
            RegularFile::Node(_) => self,
        }
    }

    /// The node, if the file has one by now.
    #[must_use]
    pub fn node(self, tree: &Tree) -> Option<NodeId> {
        if let RegularFile::Node(id) = self.real(tree) { Some(id) } else { None }
    }

    /// The node; an inode of a volume becomes one now.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`.
    pub fn copy_up(self, files: &mut Files, number: usize) -> Result<NodeId, Errno> {
        match self {
            RegularFile::Node(id) => Ok(id),
            RegularFile::Image(inode, _) => {
                let id = files.tree.copy_up(InodeRef::Image(inode))?;
                files.replace_object(number, RegularFile::Node(id));
                Ok(id)
            }
        }
    }

    /// Writes to the node of an open file. `step` copies into the content: it gets the content, the start and the number of bytes.
    fn write_with(
        files: &mut Files,
        id: NodeId,
        transfer: Transfer<'_>,
        length: u64,
        step: impl FnOnce(&mut Content, u64, u64) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        let file = files.file_at(transfer.file)?;
        let (appends, position) = (file.flags & O_APPEND != 0, file.offset);
        if appends {
            files.check_append(InodeRef::Node(id))?;
        }
        let node = files.tree.node_mut(id)?;
        let content = node.content_mut()?;
        let start = if appends { content.size() } else { transfer.offset.unwrap_or(position) };
        content.check_write(start, length)?;
        files.check_write(id, start, length)?;
        let node = files.tree.node_mut(id)?;
        let content = node.content_mut()?;
        let room = SIZE_MAX.min(files.current.file_size_max).checked_sub(start).ok_or(Errno::EFBIG)?;
        if room == 0 && length > 0 {
            return Err(Errno::EFBIG);
        }
        let done = step(content, start, room)?;
        if done > 0 {
            node.touch(time(transfer.now));
        }
        if transfer.offset.is_none() {
            files.file_at_mut(transfer.file)?.offset = start + done;
        }
        Ok(done)
    }
}

impl FileOperations for RegularFile {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        Some(match self {
            RegularFile::Image(inode, _) => files.tree.real_inode(InodeRef::Image(*inode)),
            RegularFile::Node(id) => InodeRef::Node(*id),
        })
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Position
    }

    fn seek_data(&self, files: &Files, offset: i64, data: bool) -> Result<u64, Errno> {
        let whole;
        // Every part of a server's file may be data.
        let content = match self.real(&files.tree) {
            RegularFile::Image(_, file) => {
                whole = Content::above(file);
                &whole
            }
            RegularFile::Node(id) => files.tree.node(id)?.content()?,
        };
        let offset = u64::try_from(offset).ok().filter(|offset| *offset < content.size()).ok_or(Errno::ENXIO)?;
        if data { content.next_data(offset).ok_or(Errno::ENXIO) } else { Ok(content.next_hole(offset)) }
    }

    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        let (start, updates_time) = {
            let file = files.file_at(transfer.file)?;
            (transfer.offset.unwrap_or(file.offset), file.flags & O_NOATIME == 0)
        };
        match self.real(&files.tree) {
            RegularFile::Image(_, data) => each(transfer.ranges, |range, done| {
                let offset = start.saturating_add(done);
                if let Some((read, end)) = data.addresses(offset, range.length())
                    && let Some(wanted) = files.readahead.wanted(read, end)
                {
                    // Blocks that readahead failed to load are read on access.
                    let _ = memory::populate(wanted.start, wanted.end - wanted.start);
                }
                copy_out(&data, offset, range)
            }),
            RegularFile::Node(id) => {
                if matches!(self, RegularFile::Image(..)) {
                    files.replace_object(transfer.file, RegularFile::Node(id));
                }
                let length = transfer.ranges.iter().map(|range| range.length()).sum();
                let known = files.check_read(id, start, length)?;
                let node = files.tree.node_mut(id)?;
                if updates_time {
                    node.times.accessed = accessed(&node.times, time(transfer.now));
                }
                let content = node.content()?;
                each(transfer.ranges, |range, done| {
                    let mut copied = 0;
                    let length = range.length().min(known.saturating_sub(done));
                    content.read(start.saturating_add(done), length, |piece| {
                        let bytes = deliver(range.part(copied, piece.len() as u64), piece)?;
                        copied += bytes as u64;
                        Ok(bytes)
                    })
                })
            }
        }
    }

    fn write(&self, files: &mut Files, transfer: Transfer<'_>) -> Result<u64, Errno> {
        let id = self.copy_up(files, transfer.file)?;
        let length = transfer.ranges.iter().map(|range| range.length()).sum();
        let done = RegularFile::write_with(files, id, transfer, length, |content, start, mut room| {
            each(transfer.ranges, |range, done| {
                let mut copied = 0;
                let length = range.length().min(room);
                room -= length;
                content.write(start + done, length, |space| {
                    let bytes = collect(range.part(copied, space.len() as u64), space)?;
                    copied += bytes as u64;
                    Ok(bytes)
                })
            })
        })?;
        if done > 0 && !files.current.credentials.is_capable(CAP_FSETID) {
            let node = files.tree.node_mut(id)?;
            node.owner.remove_privileges(files.current.credentials.is_in(node.owner.gid));
        }
        Ok(done)
    }

    fn kernel_read(&self, files: &Files, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let id = match self.real(&files.tree) {
            RegularFile::Image(_, data) => return data.read(offset, buffer),
            RegularFile::Node(id) => id,
        };
        let mut done = 0;
        let length = buffer.len() as u64;
        files.check_content(InodeRef::Node(id), offset, length)?;
        files.tree.node(id)?.content()?.read(offset, length, |piece| {
            let bytes = user::fetch(piece, &mut buffer[done..done + piece.len()]);
            done += bytes;
            if bytes < piece.len() { Err(Errno::EIO) } else { Ok(bytes) }
        })?;
        Ok(done)
    }

    fn kernel_write(&self, files: &mut Files, number: usize, offset: Option<u64>, bytes: &[u8], now: u64) -> Result<usize, Errno> {
        let id = self.copy_up(files, number)?;
        let transfer = Transfer { file: number, ranges: &[], offset, now };
        RegularFile::write_with(files, id, transfer, bytes.len() as u64, |content, start, room| {
            let mut rest = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
            content.write(start, rest.len() as u64, |space| {
                let (piece, left) = rest.split_at(space.len());
                rest = left;
                if user::fetch(piece, space) < piece.len() { Err(Errno::EIO) } else { Ok(piece.len()) }
            })
        })
        .map(|done| done as usize)
    }

    fn image_file(&self, files: &Files) -> Option<ImageFile> {
        if let RegularFile::Image(_, data) = self.real(&files.tree) { Some(data) } else { None }
    }

    fn accepts_image_bytes(&self) -> bool {
        true
    }

    fn can_splice(&self) -> (bool, bool) {
        (true, true)
    }

    fn splice_read(&self, files: &mut Files, from: Side, pipe: u64, room: usize, now: u64) -> Result<u64, Errno> {
        let start = match from.offset {
            Some(offset) => offset,
            None => files.raw_file(from.fd)?.offset,
        };
        let done = files.transfer(from.fd, start, pipe, None, room as u64, now)?;
        if from.offset.is_none() {
            files.get(from.fd)?.offset = start + done;
        }
        Ok(done)
    }

    fn is_pollable(&self) -> bool {
        false
    }

    fn readable_bytes(&self, files: &Files, file: &OpenFile) -> Result<u64, Errno> {
        Ok(files.status_of(file)?.size.wrapping_sub(file.offset))
    }

    fn mmap(&self, files: &mut Files, number: usize, sharing: Sharing, writes: bool) -> Result<Mappable, Errno> {
        // A shared writable mapping needs the file's node.
        let file = if sharing == Sharing::Writes { RegularFile::Node(self.copy_up(files, number)?) } else { self.real(&files.tree) };
        match file {
            RegularFile::Node(node) => {
                files.map_live(node, sharing)?;
                if sharing == Sharing::Writes && writes {
                    files.tree.node(node)?.content()?.check_write(0, 1)?;
                }
                Ok(Mappable::Node { node })
            }
            RegularFile::Image(inode, data) => {
                Ok(data.blocks(inode.volume).map_or(Mappable::Bytes { size: data.size() }, |(first, end)| Mappable::Blocks { first, end }))
            }
        }
    }

    fn is_synced(&self) -> bool {
        true
    }

    fn check_readahead(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn check_copy_range(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn check_allocate(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn truncated_node(&self, files: &mut Files, number: usize) -> Result<Option<NodeId>, Errno> {
        self.copy_up(files, number).map(Some)
    }
}

/// The time of last access after an access now: updated if the file has changed since, or after a day, as on Linux (`relatime`).
fn accessed(times: &Times, now: Time) -> Time {
    let is_old = times.accessed <= times.modified || times.accessed <= times.changed;
    if is_old || now.seconds - times.accessed.seconds >= ACCESS_TIME_AGE { now } else { times.accessed }
}
