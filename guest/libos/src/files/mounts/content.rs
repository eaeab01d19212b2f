// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a mount's files: written back at the end of each call, and complete at the host when the last descriptor is closed.

use alloc::vec::Vec;

use super::protocol::{Body, DATA_MAX, NO_HANDLE, long};
use super::{CacheMiss, Purpose};
use crate::errno::Errno;
use crate::files::Files;
use crate::files::sharing::Sharing;
use crate::files::tree::InodeRef;
use crate::files::tree::content::Changes;
use crate::files::tree::node::{self, NodeId};
use crate::uapi::{FATTR_FH, FATTR_SIZE, FUSE_FSYNC, FUSE_FSYNCDIR, FUSE_OPEN, FUSE_SETATTR, FUSE_WRITE, O_RDWR, O_WRONLY};

/// Writes in flight at which a writer waits: a hundred of them are some MiB.
const WRITES_MAX: usize = 64;
/// Writes in flight beyond which changes wait in the cache: 16 MiB.
const IN_FLIGHT_MAX: usize = 128;
/// Most pages of an open file that is only read: 64 MiB.
const PAGES_MAX: u64 = 16 << 10;

impl Files {
    /// Lets the server open a file for writing.
    pub(super) fn open_for_writing(&mut self, id: NodeId) -> Result<(), Errno> {
        let live = self.tree.node(id)?.live.as_deref().ok_or(Errno::EIO)?;
        let (mount, nodeid) = (live.mount, live.nodeid);
        let thread = self.thread;
        let open =
            |files: &mut Files, flags: u64| files.mounts.ask(thread, mount, FUSE_OPEN, nodeid, &Body::default().words(&[flags as u32, 0]));
        let is_unreadable = self.tree.node(id)?.owner.permissions & 0o444 == 0;
        let opened = open(self, if is_unreadable { O_WRONLY } else { O_RDWR })?;
        self.set_handle(id, long(&opened, 0));
        Ok(())
    }

    /// Records the handle with which the server has opened a file for writing.
    pub(super) fn set_handle(&mut self, id: NodeId, handle: u64) {
        if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
            live.handle = Some(handle);
            self.mounts.writable.insert(id);
        }
    }

    /// Checks that a file accepts a write: not too many are in flight, and the pages that it changes in part are in the cache.
    ///
    /// # Errors
    /// `QUEUED`: not yet.
    pub(in crate::files) fn check_write(&mut self, id: NodeId, offset: u64, length: u64) -> Result<(), Errno> {
        if !self.is_live(InodeRef::Node(id)) {
            return Ok(());
        }
        self.check_handle(id)?;
        if self.mounts.writes() > WRITES_MAX {
            return Err(self.mounts.note_miss(CacheMiss::Writes(None)));
        }
        for edge in [offset, offset.saturating_add(length)] {
            if !edge.is_multiple_of(crate::files::tree::content::PAGE) {
                self.check_content(InodeRef::Node(id), edge, 1)?;
            }
        }
        Ok(())
    }

    /// Checks that a part of a file can be read from the cache. Returns how many bytes of it can: fewer if the cache has no room for all.
    /// At the end of the file, its size is asked for again.
    ///
    /// # Errors
    /// `QUEUED`: not yet. `EIO`.
    pub(in crate::files) fn check_read(&mut self, id: NodeId, offset: u64, length: u64) -> Result<u64, Errno> {
        if !self.is_live(InodeRef::Node(id)) {
            return Ok(length);
        }
        let size = self.tree.node(id)?.content()?.size();
        if offset >= size && size > 0 && length > 0 {
            self.check_attributes(InodeRef::Node(id), false)?;
        }
        let content = self.tree.node(id)?.content()?;
        if content.present() > PAGES_MAX
            && let Some(missing) = content.missing(offset..offset.saturating_add(length))
        {
            if missing.start > offset {
                return Ok(missing.start - offset);
            }
            // The part that was read before makes room.
            self.forget_content(id);
        }
        self.check_content(InodeRef::Node(id), offset, length).map(|()| length)
    }

    /// Forgets the content of a file, if the server has all of it and no mapping needs it.
    pub(super) fn forget_content(&mut self, id: NodeId) {
        let Ok(node) = self.tree.node_mut(id) else { return };
        let is_kept = node.live.as_deref().is_none_or(|live| live.in_flight > 0 || live.is_mapped);
        if let Ok(content) = node.content_mut()
            && !is_kept
            && !content.is_dirty()
        {
            content.forget(content.size());
        }
    }

    /// Prepares a mapping of a file of a mount: reads all of its content, and keeps it while the file is mapped shared.
    ///
    /// # Errors
    /// `QUEUED`: it is not all there. `EIO`.
    pub(in crate::files) fn map_live(&mut self, id: NodeId, sharing: Sharing) -> Result<(), Errno> {
        if !self.is_live(InodeRef::Node(id)) {
            return Ok(());
        }
        self.check_content(InodeRef::Node(id), 0, u64::MAX)?;
        if sharing != Sharing::Private
            && let Some(live) = self.tree.node_mut(id)?.live.as_deref_mut()
        {
            live.is_mapped = true;
        }
        Ok(())
    }

    /// Queues the writes for all changes of content that the servers do not have.
    pub fn write_back(&mut self) {
        let dirty: Vec<NodeId> = self.mounts.writable.iter().copied().filter(|id| self.is_dirty(*id)).collect();
        for id in dirty {
            let room = IN_FLIGHT_MAX.saturating_sub(self.mounts.writes());
            self.write_back_file(id, room);
        }
    }

    /// Queues the writes for changes of a file, at most so many. The other changes stay.
    fn write_back_file(&mut self, id: NodeId, room: usize) {
        // A file that cannot be read has lost its changes, which the next report says.
        if let Err(error) = self.send_changes(id, room)
            && let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut())
        {
            live.error = live.error.or(Some(error));
        }
    }

    pub(super) fn is_dirty(&self, id: NodeId) -> bool {
        self.tree.node(id).and_then(|node| node.content()).is_ok_and(|content| content.is_dirty())
    }

    fn send_changes(&mut self, id: NodeId, mut room: usize) -> Result<(), Errno> {
        if room == 0 {
            return Ok(());
        }
        let node = self.tree.node_mut(id)?;
        let Some(live) = node.live.as_deref() else { return Ok(()) };
        let (mount, nodeid, handle) = (live.mount, live.nodeid, live.handle.unwrap_or_default());
        let Changes { cut, mut ranges, end } = node.content_mut()?.take_changes();
        self.mounts.check_alive(mount)?;
        let mut written = 0;
        if let Some(size) = cut {
            self.request_size(id, (mount, nodeid, handle), size);
            written = size;
        }
        for index in 0..ranges.len() {
            let range = ranges[index].clone();
            let mut at = range.start;
            while at < range.end {
                if room == 0 {
                    ranges.drain(..index);
                    ranges[0].start = at;
                    self.tree.node_mut(id)?.content_mut()?.put_back(Changes { cut: None, ranges, end });
                    return Ok(());
                }
                room -= 1;
                let size = (range.end - at).min(DATA_MAX as u64);
                let mut bytes = Vec::with_capacity(size as usize);
                self.tree.node(id)?.content()?.read(at, size, |piece| {
                    let start = bytes.len();
                    bytes.resize(start + piece.len(), 0);
                    Ok(pando_rt::user::fetch(piece, &mut bytes[start..]))
                })?;
                let flags = if self.tree.node(id)?.owner.permissions & 0o444 == 0 { O_WRONLY } else { O_RDWR };
                let body = Body::default().longs(&[handle, at]).words(&[bytes.len() as u32, 0]).longs(&[0]).words(&[flags as u32, 0]);
                let body = body.bytes(&bytes);
                self.mounts.request(mount, FUSE_WRITE, nodeid, &body, Purpose::Write(id, bytes.len() as u32));
                self.note_write(id);
                at += size;
                written = written.max(at);
            }
        }
        if let Some(end) = end.filter(|end| *end > written) {
            self.request_size(id, (mount, nodeid, handle), end);
        }
        Ok(())
    }

    fn request_size(&mut self, id: NodeId, (mount, nodeid, handle): (u8, u64, u64), size: u64) {
        let body = Body::default().words(&[FATTR_SIZE | FATTR_FH, 0]).longs(&[handle, size, 0, 0, 0, 0]).words(&[0; 8]);
        self.mounts.request(mount, FUSE_SETATTR, nodeid, &body, Purpose::Write(id, 0));
        self.note_write(id);
    }

    fn note_write(&mut self, id: NodeId) {
        if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
            live.in_flight += 1;
        }
    }

    /// Notes the answer to a write.
    pub(super) fn take_written(&mut self, id: NodeId, error: Option<Errno>) {
        if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
            live.in_flight = live.in_flight.saturating_sub(1);
            live.error = live.error.or(error);
        }
    }

    /// Waits until the server has all writes of an open file, and returns their first error.
    ///
    /// # Errors
    /// `QUEUED`: there are writes without an answer. The error of a write.
    pub fn await_writes(&mut self, fd: u64) -> Result<(), Errno> {
        if self.mounts.is_empty() {
            return Ok(());
        }
        let Ok(inode) = self.inode(fd) else { return Ok(()) };
        let InodeRef::Node(id) = self.tree.real_inode(inode) else { return Ok(()) };
        let Some(mount) = self.tree.node(id).ok().and_then(|node| node.live.as_deref()).map(|live| live.mount) else { return Ok(()) };
        if self.is_dirty(id) {
            let room = IN_FLIGHT_MAX.saturating_sub(self.mounts.writes());
            self.write_back_file(id, room);
        }
        self.mounts.check_alive(mount)?;
        let is_dirty = self.is_dirty(id);
        let live = self.tree.node_mut(id)?.live.as_deref_mut().ok_or(Errno::EIO)?;
        if live.in_flight > 0 || is_dirty {
            let of = (live.in_flight > 0).then_some(id);
            return Err(self.mounts.note_miss(CacheMiss::Writes(of)));
        }
        live.error.take().map_or(Ok(()), Err)
    }

    /// Waits until the server has all writes of an open file that is about to be closed without a report of errors.
    ///
    /// # Errors
    /// `QUEUED`: there are writes without an answer.
    pub fn await_writes_of_replaced(&mut self, fd: u64) -> Result<(), Errno> {
        match self.await_writes(fd) {
            Err(Errno::QUEUED) => Err(Errno::QUEUED),
            _ => Ok(()),
        }
    }

    /// The same for all open files of the running process, which ends.
    ///
    /// # Errors
    /// `QUEUED`: there are writes without an answer.
    pub fn await_all_writes(&mut self) -> Result<(), Errno> {
        if !self.mounts.is_empty() {
            for fd in self.open_descriptors().collect::<Vec<u32>>() {
                self.await_writes_of_replaced(fd.into())?;
            }
        }
        Ok(())
    }

    /// Lets the host write a file, or the names in a directory, to its disk.
    ///
    /// # Errors
    /// `QUEUED`: it has not yet. Those of `fsync`.
    pub fn sync_live(&mut self, fd: u64) -> Result<(), Errno> {
        self.await_writes(fd)?;
        let Ok(inode) = self.inode(fd) else { return Ok(()) };
        let InodeRef::Node(id) = self.tree.real_inode(inode) else { return Ok(()) };
        let Ok(node) = self.tree.node(id) else { return Ok(()) };
        let Some(live) = node.live.as_deref() else { return Ok(()) };
        let opcode = match node.body {
            node::Body::Regular(_) => FUSE_FSYNC,
            node::Body::Directory(_) => FUSE_FSYNCDIR,
            _ => return Ok(()),
        };
        // Without a handle for writing, the server opens it: others may have written it before.
        let (mount, nodeid, thread, handle) = (live.mount, live.nodeid, self.thread, live.handle.unwrap_or(NO_HANDLE));
        self.mounts.ask(thread, mount, opcode, nodeid, &Body::default().longs(&[handle, 0])).map(drop)
    }

    /// Queues the writes for all changes of a file whose handle is about to be closed.
    pub(super) fn write_back_closed(&mut self, id: NodeId) {
        if self.is_dirty(id) {
            self.write_back_file(id, usize::MAX);
        }
    }

    /// Whether the servers have not answered all writes, or there are more.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        self.mounts.writes() > 0 || self.mounts.writable.iter().any(|id| self.is_dirty(*id))
    }
}
