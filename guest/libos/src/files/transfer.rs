// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes open files of every kind except the console. Nothing here waits.

use alloc::format;
use alloc::vec::Vec;

use pando_abi::virtual_registers::Identity;
use pando_abi::{BlockAddress, BlockNumber};
use pando_rt::console::{self, IoError, Stream};
use pando_rt::user::{self, UserRange};
use pando_rt::{clock, memory, registers};

use super::inotify::Inotify;
use super::pipe::{CAPACITY_MAX, Pipe};
use super::status::time;
use super::tree::InodeRef;
use super::tree::content::{PAGE, SIZE_MAX};
use super::tree::node::NodeId;
use super::tree::volume::ImageFile;
use super::{Device, Files, Kind, OpenFile, Standard};
use crate::credentials::capabilities::FSETID;
use crate::erofs::Time;
use crate::errno::Errno;
use crate::memory::regions::Sharing;
use crate::random::Random;
use crate::uapi::{O_APPEND, O_DIRECT, O_NOATIME, S_ISGID, S_ISUID, S_IXGRP};

/// Seconds after which the time of last access is updated even without changes (`relatime`).
const ACCESS_TIME_AGE: i64 = 24 * 60 * 60;

/// The source of a file mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mappable {
    /// Zero memory.
    Zero,
    /// Blocks from `first` up to `end`.
    Blocks {
        /// The file's first block.
        first: BlockAddress,
        /// The number after that of the file's last block.
        end: BlockNumber,
    },
    /// Bytes that must be copied.
    Bytes {
        /// The file's size.
        size: u64,
    },
    /// A file of the overlay.
    Node {
        /// The file.
        node: NodeId,
    },
}

/// Copies a piece of a file to the application, up to the first fault.
///
/// # Errors
/// `EFAULT`: no byte, because of the application's memory. `EIO`: no byte, because of the file.
pub fn deliver(to: UserRange, piece: &[u8]) -> Result<usize, Errno> {
    let done = user::write_some(to.start(), piece);
    if done > 0 || piece.is_empty() {
        return Ok(done);
    }
    // The routine does not report which side failed: if the application's memory is writable, it was the file.
    Err(if user::zero(to.part(0, 1)).is_ok() { Errno::EIO } else { Errno::EFAULT })
}

/// Copies a piece of a file from the application, up to the first fault.
fn collect(from: UserRange, piece: &mut [u8]) -> Result<usize, Errno> {
    let done = user::read_some(from.start(), piece);
    if done > 0 || piece.is_empty() { Ok(done) } else { Err(Errno::EFAULT) }
}

/// Copies a volume's file from `offset` on to the application. Returns how many bytes.
///
/// # Errors
/// `EFAULT`, `EIO`.
pub fn copy_out(file: &ImageFile, offset: u64, to: UserRange) -> Result<u64, Errno> {
    let mut done = 0;
    while done < to.length() {
        let piece = file.piece(offset.saturating_add(done), to.length() - done);
        if piece.is_empty() {
            break;
        }
        match deliver(to.part(done, piece.len() as u64), piece) {
            Ok(copied) => {
                done += copied as u64;
                if copied < piece.len() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Runs `step` on each range until one is incomplete. Returns the total number of bytes.
fn each(ranges: &[UserRange], mut step: impl FnMut(UserRange, u64) -> Result<u64, Errno>) -> Result<u64, Errno> {
    let mut done = 0;
    for range in ranges.iter().filter(|range| range.length() > 0) {
        match step(*range, done) {
            Ok(bytes) => {
                done += bytes;
                // The next part of a stream would block, but there are bytes to return.
                if bytes < range.length() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The content of several ranges, up to so many bytes.
fn gather(ranges: &[UserRange], most: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    for range in ranges {
        let (start, length) = (bytes.len(), (range.length() as usize).min(most - bytes.len()));
        bytes.try_reserve(length).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(start + length, 0);
        user::read(range.start(), &mut bytes[start..])?;
    }
    Ok(bytes)
}

/// Reads from a pipe: one packet, or bytes.
fn give_piped(pipe: &mut Pipe, ranges: &[UserRange]) -> Result<u64, Errno> {
    let Some(packet) = pipe.packet() else { return each(ranges, |range, _| pipe.read(range)) };
    let length = packet.len();
    let done = each(ranges, |range, done| {
        let rest = packet.get(done as usize..).unwrap_or_default();
        deliver(range, &rest[..rest.len().min(range.length() as usize)]).map(|bytes| bytes as u64)
    })?;
    // The rest of a packet that does not fit is lost.
    pipe.skip(if done > 0 { length } else { 0 });
    Ok(done)
}

/// The address for reading or writing a count of 64 bits.
///
/// # Errors
/// `EINVAL`: the ranges are too short.
fn place_of_count(ranges: &[UserRange]) -> Result<u64, Errno> {
    let first = ranges.iter().find(|range| range.length() > 0);
    first.filter(|range| range.length() >= 8).map(|range| range.start()).ok_or(Errno::EINVAL)
}

/// Returns a count from `take`. Returns its size in bytes.
fn give_count(ranges: &[UserRange], take: impl FnOnce() -> Result<u64, Errno>) -> Result<u64, Errno> {
    let place = place_of_count(ranges)?;
    user::write(place, &take()?.to_le_bytes())?;
    Ok(8)
}

/// Reads the events of an inotify instance.
fn give_events(inotify: &mut Inotify, to: UserRange) -> Result<u64, Errno> {
    let bytes = inotify.take(to.length() as usize)?;
    user::write(to.start(), &bytes)?;
    Ok(bytes.len() as u64)
}

/// Returns generation and index of this clone, once per generation.
fn give_identity(told: &mut u64, ranges: &[UserRange]) -> Result<u64, Errno> {
    let Identity { generation, clone_index, .. } = registers::identity();
    if *told == generation {
        return Err(Errno::EAGAIN);
    }
    let done = give_text(format!("{generation} {clone_index}\n").as_bytes(), 0, ranges)?;
    *told = generation;
    Ok(done)
}

impl Files {
    /// Reads into consecutive ranges, from `offset` or from the file's own. Returns how many bytes.
    ///
    /// # Errors
    /// Those of `read`; `EAGAIN`: no data is available yet.
    pub fn read(&mut self, fd: u64, ranges: &[UserRange], offset: Option<u64>, random: &mut Random, now: u64) -> Result<u64, Errno> {
        let done = self.read_open(fd, ranges, offset, random, now)?;
        self.note_change(fd);
        Ok(done)
    }

    fn read_open(&mut self, fd: u64, ranges: &[UserRange], offset: Option<u64>, random: &mut Random, now: u64) -> Result<u64, Errno> {
        let index = self.index(fd)?;
        let Files { open, tree, pipes, timers, inotifies, ahead, queues, .. } = self;
        let (file, _) = open.get_mut(index).ok_or(Errno::EBADF)?;
        if !file.readable() {
            return Err(Errno::EBADF);
        }
        if offset.is_some() && !file.has_offset() {
            return Err(Errno::ESPIPE);
        }
        let start = offset.unwrap_or(file.offset);
        if let Kind::Image(place, _) = &file.kind
            && let InodeRef::Node(id) = tree.settle(InodeRef::Image(*place))
        {
            file.kind = Kind::Node(id);
        }
        let done = match &mut file.kind {
            Kind::Image(_, data) => each(ranges, |range, done| {
                let offset = start.saturating_add(done);
                if let Some((read, end)) = data.addresses(offset, range.length())
                    && let Some(wanted) = ahead.wanted(read, end)
                {
                    // Blocks that readahead failed to load are read on access.
                    let _ = memory::populate(wanted.start, wanted.end - wanted.start);
                }
                copy_out(data, offset, range)
            })?,
            Kind::Node(id) => {
                let node = tree.node_mut(*id)?;
                if file.flags & O_NOATIME == 0 {
                    node.times.accessed = accessed(&node.times, time(now));
                }
                let content = node.content()?;
                each(ranges, |range, done| {
                    let mut copied = 0;
                    content.read(start.saturating_add(done), range.length(), |piece| {
                        let bytes = deliver(range.part(copied, piece.len() as u64), piece)?;
                        copied += bytes as u64;
                        Ok(bytes)
                    })
                })?
            }
            Kind::Directory(_) => return Err(Errno::EISDIR),
            // These have their own read calls.
            Kind::Name(_) | Kind::Console { .. } | Kind::Socket(_) | Kind::Master(..) | Kind::Slave(..) => return Err(Errno::EBADF),
            Kind::Epoll(_) | Kind::Signals(_) | Kind::Process(_) => return Err(Errno::EINVAL),
            Kind::Inotify(id) => {
                let inotify = inotifies.get_mut(*id)?;
                each(ranges, |range, _| give_events(inotify, range))?
            }
            Kind::Device(Device::Null, _) => 0,
            Kind::Device(Device::Zero | Device::Full, _) => each(ranges, |range, _| Ok(user::zero(range).map(|()| range.length())?))?,
            Kind::Device(Device::Random, _) => each(ranges, |range, _| random.fill_user(range))?,
            Kind::Pipe(id) => give_piped(pipes.get_mut(*id)?, ranges)?,
            Kind::Event(event) => give_count(ranges, || event.take())?,
            Kind::Timer(id) => give_count(ranges, || timers.get_mut(*id)?.take(clock::now()))?,
            Kind::Messages(id) => give_text(queues.get(*id)?.text().as_bytes(), start, ranges)?,
            Kind::Text(_, _, text) => give_text(text, start, ranges)?,
            Kind::Clones(_, told) => give_identity(told, ranges)?,
        };
        if offset.is_none() && file.has_offset() {
            file.offset = start + done;
        }
        Ok(done)
    }

    /// Writes consecutive ranges, at `offset` or at the file's own. Returns how many bytes.
    ///
    /// # Errors
    /// Those of `write`; `EAGAIN`: the file is full for now.
    pub fn write(&mut self, fd: u64, ranges: &[UserRange], offset: Option<u64>, now: u64) -> Result<u64, Errno> {
        let file = self.look(fd)?;
        if !file.writable() {
            return Err(Errno::EBADF);
        }
        if offset.is_some() && !file.has_offset() {
            return Err(Errno::ESPIPE);
        }
        let bytes: u64 = ranges.iter().map(|range| range.length()).sum();
        if let Some(id) = self.writable_node(fd)? {
            return self.write_node(fd, id, ranges, offset, time(now));
        }
        let done = self.write_open(fd, ranges, bytes)?;
        self.note_change(fd);
        Ok(done)
    }

    /// Writes to a file that is not on a volume.
    fn write_open(&mut self, fd: u64, ranges: &[UserRange], bytes: u64) -> Result<u64, Errno> {
        let index = self.index(fd)?;
        let Files { open, pipes, .. } = self;
        let (file, _) = open.get_mut(index).ok_or(Errno::EBADF)?;
        match &mut file.kind {
            Kind::Device(Device::Full, _) if bytes > 0 => Err(Errno::ENOSPC),
            Kind::Device(..) => Ok(bytes),
            Kind::Pipe(id) if file.flags & O_DIRECT != 0 && bytes > 0 => {
                let packets = gather(ranges, CAPACITY_MAX)?;
                pipes.get_mut(*id)?.push_packets(&packets).map(|done| done as u64)
            }
            Kind::Pipe(id) => {
                let pipe = pipes.get_mut(*id)?;
                each(ranges, |range, _| pipe.write(range))
            }
            Kind::Event(event) => {
                let mut number = [0; 8];
                user::read(place_of_count(ranges)?, &mut number)?;
                event.add(u64::from_le_bytes(number)).map(|()| 8)
            }
            Kind::Timer(_) | Kind::Epoll(_) | Kind::Signals(_) | Kind::Process(_) | Kind::Messages(_) => Err(Errno::EINVAL),
            _ => Err(Errno::EBADF),
        }
    }

    /// The node of an open regular file, if it has one by now.
    fn node_of(&self, fd: u64) -> Result<Option<NodeId>, Errno> {
        Ok(match &self.look(fd)?.kind {
            Kind::Node(id) => Some(*id),
            Kind::Image(place, _) => match self.tree.settle(InodeRef::Image(*place)) {
                InodeRef::Node(id) => Some(id),
                _ => None,
            },
            _ => None,
        })
    }

    /// The node of an open regular file; an inode of a volume becomes one now. `None`: the file is not regular.
    ///
    /// # Errors
    /// `EBADF`, `ENOSPC`, `EIO`.
    pub fn writable_node(&mut self, fd: u64) -> Result<Option<NodeId>, Errno> {
        let place = match &self.look(fd)?.kind {
            Kind::Node(id) => return Ok(Some(*id)),
            Kind::Image(place, _) => *place,
            _ => return Ok(None),
        };
        let id = self.tree.own(InodeRef::Image(place))?;
        self.get(fd)?.kind = Kind::Node(id);
        Ok(Some(id))
    }

    fn write_node(&mut self, fd: u64, id: NodeId, ranges: &[UserRange], offset: Option<u64>, now: Time) -> Result<u64, Errno> {
        let is_root = self.own.who.is_capable(FSETID);
        let file = self.look(fd)?;
        let (appends, stands) = (file.flags & O_APPEND != 0, file.offset);
        let node = self.tree.node_mut(id)?;
        let content = node.content_mut()?;
        let start = if appends { content.size() } else { offset.unwrap_or(stands) };
        content.check_write(start, ranges.iter().map(|range| range.length()).sum())?;
        let mut left = SIZE_MAX.min(self.own.file_size_max).checked_sub(start).ok_or(Errno::EFBIG)?;
        if left == 0 && ranges.iter().any(|range| range.length() > 0) {
            return Err(Errno::EFBIG);
        }
        let done = each(ranges, |range, done| {
            let mut copied = 0;
            let length = range.length().min(left);
            left -= length;
            content.write(start + done, length, |room| {
                let bytes = collect(range.part(copied, room.len() as u64), room)?;
                copied += bytes as u64;
                Ok(bytes)
            })
        })?;
        if done > 0 {
            node.touch(now);
            if !is_root {
                drop_privileges(&mut node.owner.permissions, self.own.who.is_in(node.owner.gid));
            }
        }
        if offset.is_none() {
            self.get(fd)?.offset = start + done;
        }
        Ok(done)
    }

    /// Copies from one file, at an offset, to another. Returns how many bytes.
    ///
    /// # Errors
    /// `EINVAL`: the first is no regular file. `EAGAIN`: the second accepts no bytes now. Those of writing.
    pub fn transfer(&mut self, from: u64, start: u64, to: u64, to_offset: Option<u64>, bytes: u64, now: u64) -> Result<u64, Errno> {
        let mut page = [0; PAGE as usize];
        // Data of a volume is copied directly, unless the target stores it.
        let direct = match (&self.look(from)?.kind, &self.look(to)?.kind) {
            (_, Kind::Pipe(_) | Kind::Socket(_)) => None,
            (Kind::Image(place, data), _) => {
                Some(*data).filter(|_| matches!(self.tree.settle(InodeRef::Image(*place)), InodeRef::Image(_)))
            }
            _ => None,
        };
        let mut done = 0;
        while done < bytes {
            let (at, left) = (start.saturating_add(done), bytes - done);
            let piece = match direct {
                Some(data) => Ok(data.piece(at, left)),
                None => self.fetch(from, at, &mut page[..left.min(PAGE) as usize]).map(|read| &page[..read]),
            };
            let moved = piece.and_then(|piece| self.put(to, to_offset.map(|offset| offset + done), piece, now));
            match moved {
                Ok(0) => break,
                Ok(moved) => done += moved as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads from a regular file into memory of the libOS.
    ///
    /// # Errors
    /// `EINVAL`: the file is not regular. `EIO`, `EBADF`.
    pub fn fetch(&self, fd: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let place = match &self.look(fd)?.kind {
            Kind::Image(place, data) => match self.tree.settle(InodeRef::Image(*place)) {
                InodeRef::Node(id) => id,
                _ => return data.read(offset, buffer),
            },
            Kind::Node(id) => *id,
            Kind::Text(_, _, text) => {
                let rest = text.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
                let bytes = rest.len().min(buffer.len());
                buffer[..bytes].copy_from_slice(&rest[..bytes]);
                return Ok(bytes);
            }
            _ => return Err(Errno::EINVAL),
        };
        let mut done = 0;
        let length = buffer.len() as u64;
        self.tree.node(place)?.content()?.read(offset, length, |piece| {
            let bytes = user::fetch(piece, &mut buffer[done..done + piece.len()]);
            done += bytes;
            if bytes < piece.len() { Err(Errno::EIO) } else { Ok(bytes) }
        })?;
        Ok(done)
    }

    /// Writes bytes in the libOS's memory to a file.
    pub fn put(&mut self, fd: u64, offset: Option<u64>, bytes: &[u8], now: u64) -> Result<usize, Errno> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if let Some(id) = self.writable_node(fd)? {
            let file = self.look(fd)?;
            let (appends, stands) = (file.flags & O_APPEND != 0, file.offset);
            let node = self.tree.node_mut(id)?;
            let content = node.content_mut()?;
            let start = if appends { content.size() } else { offset.unwrap_or(stands) };
            let left = SIZE_MAX.min(self.own.file_size_max).saturating_sub(start);
            let bytes = &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            if bytes.is_empty() {
                return Err(Errno::EFBIG);
            }
            content.check_write(start, bytes.len() as u64)?;
            let mut rest = bytes;
            let done = content.write(start, bytes.len() as u64, |room| {
                let (piece, left) = rest.split_at(room.len());
                rest = left;
                if user::fetch(piece, room) < piece.len() { Err(Errno::EIO) } else { Ok(piece.len()) }
            })?;
            node.touch(time(now));
            if offset.is_none() {
                self.get(fd)?.offset = start + done;
            }
            return Ok(done as usize);
        }
        match self.look(fd)?.kind {
            Kind::Console { stream, .. } => match console::send_bytes(stream.output(), bytes) {
                Ok(sent) => Ok(sent as usize),
                Err(IoError::Unread) => Err(Errno::EPIPE),
                Err(_) => Err(Errno::EIO),
            },
            Kind::Device(Device::Full, _) => Err(Errno::ENOSPC),
            Kind::Device(..) => Ok(bytes.len()),
            Kind::Pipe(id) => {
                let pushed = self.pipes.get_mut(id)?.push(bytes)?;
                self.note_change(fd);
                Ok(pushed)
            }
            Kind::Socket(id) => {
                let sent = self.sockets.send_bytes(id, bytes)?;
                self.note_change(fd);
                Ok(sent)
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

impl Files {
    /// The source for a mapping of a descriptor; `writes`: the mapping may be written.
    ///
    /// # Errors
    /// `EBADF`, `EACCES`, `ENODEV`, `ENOSPC`, `EIO`.
    pub fn mappable(&mut self, fd: u64, sharing: Sharing, writes: bool) -> Result<Mappable, Errno> {
        if !self.file(fd)?.readable() || sharing == Sharing::Reads && writes {
            return Err(Errno::EACCES);
        }
        // A shared writable mapping needs the file's node.
        let node = if sharing == Sharing::Writes { self.writable_node(fd)? } else { self.node_of(fd)? };
        match (&self.look(fd)?.kind, node) {
            (_, Some(node)) if sharing == Sharing::Writes && writes => {
                self.tree.node(node)?.content()?.check_write(0, 1).map(|()| Mappable::Node { node })
            }
            (_, Some(node)) => Ok(Mappable::Node { node }),
            (Kind::Image(place, data), None) => {
                Ok(data.blocks(place.volume).map_or(Mappable::Bytes { size: data.size() }, |(first, end)| Mappable::Blocks { first, end }))
            }
            (Kind::Device(Device::Zero, _), None) => Ok(Mappable::Zero),
            _ => Err(Errno::ENODEV),
        }
    }

    /// Copies a volume's file from `offset` on into a mapping.
    ///
    /// # Errors
    /// `EFAULT`, `EIO`, `EBADF`, `ENODEV`.
    pub fn copy_mapped(&self, fd: u64, offset: u64, to: UserRange) -> Result<u64, Errno> {
        match &self.look(fd)?.kind {
            Kind::Image(_, data) => copy_out(data, offset, to),
            _ => Err(Errno::ENODEV),
        }
    }
}

impl OpenFile {
    /// Whether reads and writes use an offset.
    #[must_use]
    pub fn has_offset(&self) -> bool {
        use Kind::{Clones, Console, Epoll, Event, Inotify, Master, Pipe, Signals, Slave, Socket, Timer};
        if matches!(self.kind, Master(..) | Slave(..) | Clones(..)) {
            return false;
        }
        !matches!(self.kind, Console { .. } | Pipe(_) | Event(_) | Timer(_) | Epoll(_) | Inotify(_) | Signals(_) | Socket(_))
    }
}

impl Standard {
    /// The console stream to which it writes.
    #[must_use]
    pub fn output(self) -> Stream {
        if self == Standard::Errors { Stream::Errors } else { Stream::Output }
    }
}

/// Reads a text from `start` on.
fn give_text(text: &[u8], start: u64, ranges: &[UserRange]) -> Result<u64, Errno> {
    each(ranges, |range, done| {
        let rest = text.get(usize::try_from(start.saturating_add(done)).unwrap_or(usize::MAX)..).unwrap_or_default();
        let piece = &rest[..rest.len().min(usize::try_from(range.length()).unwrap_or(usize::MAX))];
        deliver(range, piece).map(|bytes| bytes as u64)
    })
}

/// The time of last access after an access now: updated if the file has changed since, or after a day, as on Linux (`relatime`).
fn accessed(times: &super::tree::node::Times, now: Time) -> Time {
    let is_old = times.accessed <= times.modified || times.accessed <= times.changed;
    if is_old || now.seconds - times.accessed.seconds >= ACCESS_TIME_AGE { now } else { times.accessed }
}

/// Takes away what lets a program run as somebody else, as a write by anybody but root does.
/// Where no group may execute the file, the bit for the group stays if it `keeps_group_id`.
pub fn drop_privileges(permissions: &mut u16, keeps_group_id: bool) {
    *permissions &= !S_ISUID;
    if *permissions & S_IXGRP != 0 || !keeps_group_id {
        *permissions &= !S_ISGID;
    }
}
