// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of names and attributes in a mount: made by the server first, then in the cache.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::CacheMiss;
use super::nodes::ROOT;
use super::protocol;
use super::protocol::{Body as Message, ServerEntry, long};
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::files::Files;
use crate::files::status::device;
use crate::files::tree::node::{Body, NodeId, Validity};
use crate::files::tree::{InodeRef, NameAt, XattrCondition};
use crate::uapi::{
    FATTR_ATIME, FATTR_ATIME_NOW, FATTR_MODE, FATTR_MTIME, FATTR_MTIME_NOW, FUSE_CREATE, FUSE_GETXATTR, FUSE_LINK, FUSE_LISTXATTR,
    FUSE_MKDIR, FUSE_MKNOD, FUSE_REMOVEXATTR, FUSE_RENAME2, FUSE_RMDIR, FUSE_SETATTR, FUSE_SETXATTR, FUSE_SYMLINK, FUSE_UNLINK, O_EXCL,
    O_RDWR, O_WRONLY,
};

/// Most bytes of an extended attribute, or of the list of their names.
const XATTR_MAX: u32 = 64 << 10;

/// A mount and the server's number of an inode in it.
#[derive(Clone, Copy, Debug)]
struct ServerInode {
    mount: u8,
    nodeid: u64,
    id: NodeId,
}

impl Files {
    fn server_inode(&self, inode: InodeRef) -> Option<ServerInode> {
        if self.mounts.is_empty() {
            return None;
        }
        let InodeRef::Node(id) = self.tree.real_inode(inode) else { return None };
        let live = self.tree.node(id).ok()?.live.as_deref()?;
        Some(ServerInode { mount: live.mount, nodeid: live.nodeid, id })
    }

    fn ask_server(&mut self, of: ServerInode, opcode: u32, body: &Message) -> Result<Vec<u8>, Errno> {
        let thread = self.thread;
        if self.tree.is_read_only(InodeRef::Node(of.id)) && !matches!(opcode, FUSE_GETXATTR | FUSE_LISTXATTR) {
            return Err(Errno::EROFS);
        }
        self.mounts.ask(thread, of.mount, opcode, of.nodeid, body)
    }

    /// Asks a server for a change of these names.
    fn ask_to_change(&mut self, of: ServerInode, opcode: u32, body: &Message, names: &[(ServerInode, &[u8])]) -> Result<Vec<u8>, Errno> {
        let thread = self.thread;
        if self.tree.is_read_only(InodeRef::Node(of.id)) {
            return Err(Errno::EROFS);
        }
        let names = || names.iter().map(|(above, name)| (above.id, Box::from(*name))).collect();
        self.mounts.ask_to_change(thread, of.mount, (opcode, of.nodeid, body), names)
    }

    /// Creates a file in a mount. `None`: the directory is of no mount.
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub(in crate::files) fn create_live(
        &mut self,
        at: NameAt<'_>,
        body: &Body,
        permissions: u16,
        exclusive: bool,
    ) -> Result<Option<NodeId>, Errno> {
        let Some(above) = self.server_inode(at.directory) else { return Ok(None) };
        let mode = u32::from(permissions);
        let (opcode, message) = match body {
            Body::Regular(_) => {
                let access = if permissions & 0o444 == 0 { O_WRONLY } else { O_RDWR };
                let flags = access | if exclusive { O_EXCL } else { 0 };
                (FUSE_CREATE, Message::default().words(&[flags as u32, FileType::Regular.mode() | mode, 0, 0]).string(at.name))
            }
            Body::Directory(_) => (FUSE_MKDIR, Message::default().words(&[mode, 0]).string(at.name)),
            Body::Symlink(target) => (FUSE_SYMLINK, Message::default().string(at.name).string(target)),
            Body::Special(kind, (major, minor)) => {
                let number = device(*major, *minor) as u32;
                (FUSE_MKNOD, Message::default().words(&[kind.mode() | mode, number, 0, 0]).string(at.name))
            }
        };
        let answer = self.ask_to_change(above, opcode, &message, &[(above, at.name)])?;
        let entry = ServerEntry::parse(&answer).ok_or(Errno::EIO)?;
        let id = self.insert_entry(above.id, at.name, &entry, self.own_change())?;
        if opcode == FUSE_CREATE {
            self.set_handle(id, long(&answer, ServerEntry::SIZE));
        }
        if let (Body::Symlink(target), Ok(node)) = (body, self.tree.node_mut(id)) {
            node.body = Body::Symlink(target.clone());
        }
        let credentials = &self.current.credentials;
        self.set_live_owner(id, credentials.user.file, credentials.group.file);
        Ok(Some(id))
    }

    /// The validity of what the running call has changed.
    fn own_change(&self) -> Validity {
        Validity { at: self.mounts.began, until: 0 }
    }

    /// Shows another owner of a file in the cell: the host's stays.
    fn set_live_owner(&mut self, id: NodeId, uid: u32, gid: u32) {
        let Ok(node) = self.tree.node_mut(id) else { return };
        (node.owner.uid, node.owner.gid) = (uid, gid);
        if let Some(live) = node.live.as_deref_mut() {
            live.owner = Some((uid, gid));
        }
    }

    /// Records that a program of the cell has changed the owner of a file of a mount.
    pub fn note_owner(&mut self, inode: InodeRef) {
        if let Some(ServerInode { id, .. }) = self.server_inode(inode)
            && let Ok(owner) = self.tree.node(id).map(|node| node.owner)
        {
            self.set_live_owner(id, owner.uid, owner.gid);
        }
    }

    /// Adds a name to a file of a mount. Returns whether the directory is of one.
    ///
    /// # Errors
    /// `EXDEV`: the file is of another; the server's; `QUEUED`.
    pub(in crate::files) fn link_live(&mut self, inode: InodeRef, at: NameAt<'_>) -> Result<bool, Errno> {
        let Some(above) = self.server_inode(at.directory) else { return Ok(false) };
        let target = self.server_inode(inode).filter(|target| target.mount == above.mount).ok_or(Errno::EXDEV)?;
        let body = Message::default().longs(&[target.nodeid]).string(at.name);
        let answer = self.ask_to_change(above, FUSE_LINK, &body, &[(above, at.name)])?;
        let entry = ServerEntry::parse(&answer).ok_or(Errno::EIO)?;
        self.insert_entry(above.id, at.name, &entry, self.own_change())?;
        Ok(true)
    }

    /// Removes a name in a mount at the server; the caller removes it in the cache.
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub(in crate::files) fn unlink_live(&mut self, at: NameAt<'_>, is_directory: bool) -> Result<(), Errno> {
        let Some(above) = self.server_inode(at.directory) else { return Ok(()) };
        let opcode = if is_directory { FUSE_RMDIR } else { FUSE_UNLINK };
        self.ask_to_change(above, opcode, &Message::default().string(at.name), &[(above, at.name)]).map(drop)
    }

    /// Moves a name in a mount at the server; the caller moves it in the cache.
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub(in crate::files) fn rename_live(&mut self, from: NameAt<'_>, to: NameAt<'_>, flags: u64) -> Result<(), Errno> {
        let (source, target) = match (self.server_inode(from.directory), self.server_inode(to.directory)) {
            (Some(source), Some(target)) if source.mount == target.mount => (source, target),
            (None, None) => return Ok(()),
            _ => return Err(Errno::EXDEV),
        };
        let body = Message::default().longs(&[target.nodeid]).words(&[flags as u32, 0]).string(from.name).string(to.name);
        self.ask_to_change(source, FUSE_RENAME2, &body, &[(source, from.name), (target, to.name)]).map(drop)
    }

    /// Records where a name of a mount was moved to.
    pub(in crate::files) fn moved_live(&mut self, to: NameAt<'_>) {
        let valid = self.own_change();
        let Some(above) = self.server_inode(to.directory) else { return };
        let Ok(InodeRef::Node(id)) = self.tree.lookup(to.directory, to.name) else { return };
        if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
            live.entry = Some((above.id, Box::from(to.name), valid));
        }
    }

    /// Sets the permissions of a file of a mount at the server; the caller sets them in the cache.
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub fn chmod_live(&mut self, inode: InodeRef, permissions: u16) -> Result<(), Errno> {
        let Some(of) = self.server_inode(inode) else { return Ok(()) };
        let mode = self.tree.node(of.id)?.kind().mode() | u32::from(permissions);
        let body = Message::default().words(&[FATTR_MODE, 0]).longs(&[0; 6]).words(&[0, 0, 0, mode, 0, 0, 0, 0]);
        self.ask_server(of, FUSE_SETATTR, &body).map(drop)
    }

    /// Sets the times of a file of a mount at the server; the caller sets them in the cache. `None`: that time stays;
    /// `Some(None)`: the server's present time.
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub fn set_times_live(&mut self, inode: InodeRef, accessed: Option<Option<Time>>, modified: Option<Option<Time>>) -> Result<(), Errno> {
        let Some(of) = self.server_inode(inode) else { return Ok(()) };
        // Writes that come later would change the time again.
        self.write_back();
        if self.is_dirty(of.id) {
            return Err(self.mounts.note_miss(CacheMiss::Writes(None)));
        }
        let flags = |time: Option<Option<Time>>, given, now| time.map_or(0, |time| given | time.map_or(now, |_| 0));
        let valid = flags(accessed, FATTR_ATIME, FATTR_ATIME_NOW) | flags(modified, FATTR_MTIME, FATTR_MTIME_NOW);
        // The present time is not sent: the call that is made again must send the same request.
        let [accessed, modified] = [accessed, modified].map(|time| time.flatten().unwrap_or(Time { seconds: 0, nanoseconds: 0 }));
        let seconds = [accessed.seconds.cast_unsigned(), modified.seconds.cast_unsigned(), 0];
        let body = Message::default().words(&[valid, 0]).longs(&[0, 0, 0]).longs(&seconds);
        let body = body.words(&[accessed.nanoseconds, modified.nanoseconds, 0, 0, 0, 0, 0, 0]);
        self.ask_server(of, FUSE_SETATTR, &body).map(drop)
    }

    /// The value of an extended attribute of a file of a mount. `None`: the file is of no mount.
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub fn attribute_live(&mut self, inode: InodeRef, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let Some(of) = self.server_inode(inode) else { return Ok(None) };
        self.ask_server(of, FUSE_GETXATTR, &Message::default().words(&[XATTR_MAX, 0]).string(name)).map(Some)
    }

    /// The names of a file's extended attributes, each with its zero byte. `None`: the file is of no mount.
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub fn attribute_names_live(&mut self, inode: InodeRef) -> Result<Option<Vec<u8>>, Errno> {
        let Some(of) = self.server_inode(inode) else { return Ok(None) };
        let names = match self.ask_server(of, FUSE_LISTXATTR, &Message::default().words(&[XATTR_MAX, 0])) {
            Err(Errno::EOPNOTSUPP) => Vec::new(),
            names => names?,
        };
        let is_shown = |name: &&[u8]| name.starts_with(b"user.");
        Ok(Some(names.split_inclusive(|byte| *byte == 0).filter(is_shown).flatten().copied().collect()))
    }

    /// Sets an extended attribute of a file of a mount, or removes it without a value. Returns whether the file is of a mount.
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub fn set_attribute_live(&mut self, inode: InodeRef, name: &[u8], value: Option<(&[u8], XattrCondition)>) -> Result<bool, Errno> {
        let Some(of) = self.server_inode(inode) else { return Ok(false) };
        match value {
            None => self.ask_server(of, FUSE_REMOVEXATTR, &Message::default().string(name))?,
            Some((value, condition)) => {
                let flags = match condition {
                    XattrCondition::Always => 0,
                    XattrCondition::New => 1,
                    XattrCondition::Replace => 2,
                };
                self.ask_server(of, FUSE_SETXATTR, &Message::default().words(&[value.len() as u32, flags]).string(name).bytes(value))?
            }
        };
        Ok(true)
    }

    /// Lets the host report changes of a file of a mount by others (`inotify_add_watch`).
    ///
    /// # Errors
    /// The server's; `QUEUED`.
    pub(in crate::files) fn watch_live(&mut self, inode: InodeRef, mask: u32) -> Result<(), Errno> {
        let Some(of) = self.server_inode(inode) else { return Ok(()) };
        let thread = self.thread;
        self.mounts.ask(thread, of.mount, protocol::PANDO_WATCH, of.nodeid, &Message::default().words(&[mask])).map(drop)?;
        if let Some(live) = self.tree.node_mut(of.id)?.live.as_deref_mut() {
            live.is_watched = true;
        }
        Ok(())
    }

    /// Whether an inode is the root of a mount.
    #[must_use]
    pub fn is_live_root(&self, inode: InodeRef) -> bool {
        self.server_inode(inode).is_some_and(|of| of.nodeid == ROOT)
    }
}
