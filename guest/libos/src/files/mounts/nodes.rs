// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes of a mount: made and changed as the server says.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::protocol::{Attributes, Body as Message, ServerEntry};
use super::{Mount, Purpose};
use crate::credentials::Owner;
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::files::Files;
use crate::files::namei::{LastComponent, LookupFlags};
use crate::files::status::{anonymous_device, minor, numbers};
use crate::files::tree::content::Content;
use crate::files::tree::directory::Dentry;
use crate::files::tree::node::{Body, ContentVersion, LiveInode, Node, NodeId, Times, Validity};
use crate::files::tree::volume::VolumeIndex;
use crate::files::tree::{InodeRef, NameAt, Tree};
use crate::uapi::{AT_FDCWD, FUSE_FORGET, FUSE_RELEASE, FUSE_ROOT_ID};

/// The server's number of a mount's root.
pub(super) const ROOT: u64 = FUSE_ROOT_ID;
/// The minor number of the first mount's device, less that of the first volume.
const DEVICES: u32 = 64;

impl Files {
    /// Mounts the directory of a file server at an absolute path that exists.
    ///
    /// # Errors
    /// Those of path lookup; `ENOSPC`, `ENOMEM`.
    pub fn mount_live(&mut self, path: &[u8], now: Time) -> Result<(), Errno> {
        let found = self.walk(AT_FDCWD, path, LookupFlags::NAME)?;
        let LastComponent::Name(name) = found.last else { return Err(Errno::EINVAL) };
        let mount = u8::try_from(self.mounts.list.len()).map_err(|_| Errno::ENOMEM)?;
        let volume = self.tree.add_volume(found.directory)?;
        let root = LiveInode::new(mount, ROOT);
        let node = Node {
            body: Tree::empty_directory(found.directory),
            owner: Owner { uid: 0, gid: 0, permissions: 0o755 },
            links: 2,
            times: Times::all(now),
            volume,
            device: device(mount),
            number: 1,
            hidden_links: 0,
            origin: None,
            temporary: false,
            attributes: BTreeMap::new(),
            live: Some(Box::new(root)),
        };
        let id = self.tree.add_root(volume, node)?;
        self.tree.graft(NameAt { directory: found.directory, name: name.bytes() }, InodeRef::Node(id), now)?;
        self.mounts.list.push(Mount { nodes: [(ROOT, id)].into(), volume, is_dead: false, kept: 0 });
        Ok(())
    }

    /// The node of an inode of the server, which is made if it is new.
    fn live_node(&mut self, mount: u8, parent: NodeId, entry: &ServerEntry) -> Result<NodeId, Errno> {
        let kind = FileType::from_mode(entry.attributes.mode).ok_or(Errno::EIO)?;
        let Mount { nodes, volume, .. } = self.mounts.list.get(usize::from(mount)).ok_or(Errno::EIO)?;
        if let Some(id) = nodes.get(&entry.nodeid)
            && self.tree.node(*id).is_ok_and(|node| node.kind() == kind)
        {
            return Ok(*id);
        }
        let volume: VolumeIndex = *volume;
        let body = match kind {
            FileType::Regular => Body::Regular(Content::unread(entry.attributes.size)),
            FileType::Directory => Tree::empty_directory(InodeRef::Node(parent)),
            FileType::Symlink => Body::Symlink(Box::default()),
            kind => Body::Special(kind, numbers(entry.attributes.device.into())),
        };
        let id = self.tree.add_node(Node {
            body,
            owner: Owner { uid: 0, gid: 0, permissions: 0 },
            links: 0,
            times: entry.attributes.times,
            volume,
            device: device(mount),
            number: entry.attributes.number,
            hidden_links: 0,
            origin: None,
            temporary: false,
            attributes: BTreeMap::new(),
            live: Some(Box::new(LiveInode::new(mount, entry.nodeid))),
        })?;
        self.mounts.list[usize::from(mount)].nodes.insert(entry.nodeid, id);
        Ok(id)
    }

    /// Lets a name lead to the inode that the server has told.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`.
    pub(super) fn insert_entry(&mut self, directory: NodeId, name: &[u8], entry: &ServerEntry, valid: Validity) -> Result<NodeId, Errno> {
        let mount = self.tree.node(directory)?.live.as_deref().ok_or(Errno::EIO)?.mount;
        let id = self.live_node(mount, directory, entry)?;
        let at = NameAt { directory: InodeRef::Node(directory), name };
        match self.tree.node(directory)?.directory()?.get(name) {
            Dentry::Positive(InodeRef::Node(same)) if same == id => {}
            Dentry::Positive(other) if !self.is_live(other) => return Err(Errno::EBUSY),
            Dentry::Positive(_) => {
                self.remove_entry(directory, name);
                self.tree.attach(at, id)?;
            }
            _ => {
                // A directory has one name: it was moved on the host.
                if self.tree.node(id)?.kind() == FileType::Directory && self.tree.node(id)?.links > 0 {
                    let before = self.tree.node(id)?.live.as_deref().and_then(|live| live.entry.clone());
                    if let Some((above, last, _)) = before {
                        self.tree.detach(NameAt { directory: InodeRef::Node(above), name: &last });
                    }
                }
                self.tree.attach(at, id)?;
            }
        }
        self.set_attributes(id, &entry.attributes, valid);
        let node = self.tree.node_mut(id)?;
        if let Some(live) = node.live.as_deref_mut() {
            live.lookups += 1;
            live.entry = Some((directory, name.into(), valid));
        }
        Ok(id)
    }

    /// Removes a name that the server does not have any more.
    pub(super) fn remove_entry(&mut self, directory: NodeId, name: &[u8]) {
        let at = NameAt { directory: InodeRef::Node(directory), name };
        let Ok(Dentry::Positive(InodeRef::Node(id))) = self.tree.node(directory).and_then(|node| Ok(node.directory()?.get(name))) else {
            return;
        };
        if self.is_live(InodeRef::Node(id)) {
            self.tree.detach(at);
            self.release(InodeRef::Node(id));
        }
    }

    /// Takes over the attributes that the server has told.
    pub(super) fn set_attributes(&mut self, id: NodeId, attributes: &Attributes, valid: Validity) {
        let Ok(node) = self.tree.node_mut(id) else { return };
        let Some(live) = node.live.as_deref_mut() else { return };
        let Attributes { number, size, times, mode, links, uid, gid, .. } = *attributes;
        live.checked = valid;
        let (uid, gid) = live.owner.unwrap_or((uid, gid));
        node.owner = Owner { uid, gid, permissions: (mode & 0o7777) as u16 };
        node.number = number;
        node.hidden_links = links.saturating_sub(node.links);
        let is_quiet = live.in_flight == 0 && !live.is_mapped;
        let version = ContentVersion { size, modified: times.modified, changed: times.changed };
        let is_same = live.version == Some(version);
        let mut is_written = false;
        if let Body::Regular(content) = &mut node.body {
            is_written = content.is_dirty();
            if is_quiet && !is_written && !is_same {
                content.forget(size);
            }
        }
        if is_quiet && !is_written {
            live.version = Some(version);
            node.times = times;
        }
    }

    /// Tells the server that the cell forgets an inode: its node was freed.
    pub(in crate::files) fn forget_live(&mut self, live: &LiveInode, id: NodeId) {
        self.mounts.writable.remove(&id);
        let Some(mount) = self.mounts.list.get_mut(usize::from(live.mount)) else { return };
        if mount.nodes.get(&live.nodeid) == Some(&id) {
            mount.nodes.remove(&live.nodeid);
        }
        if mount.is_dead {
            return;
        }
        if live.lookups > 0 {
            let unique =
                self.mounts.request(live.mount, FUSE_FORGET, live.nodeid, &Message::default().longs(&[live.lookups]), Purpose::Nothing);
            // There is no answer to wait for.
            self.mounts.requests.remove(&unique);
        }
    }

    /// Closes the handle for writing of a file that no process has open. A directory without a name loses the names in it.
    pub(in crate::files) fn release_live(&mut self, id: NodeId) {
        if self.tree.node(id).is_ok_and(|node| node.links == 0)
            && let Ok(directory) = self.tree.node(id).and_then(|node| node.directory())
        {
            let names: Vec<Box<[u8]>> = directory.added(0).map(|(_, name, _)| name.into()).collect();
            names.iter().for_each(|name| self.remove_entry(id, name));
        }
        if self.tree.node(id).is_ok_and(|node| node.live.as_deref().is_some_and(|live| live.is_mapped)) {
            return;
        }
        self.write_back_closed(id);
        self.shrink_closed(id);
        let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) else { return };
        let (mount, nodeid) = (live.mount, live.nodeid);
        if let Some(handle) = live.handle.take() {
            self.mounts.writable.remove(&id);
            self.mounts.request(mount, FUSE_RELEASE, nodeid, &Message::default().longs(&[handle, 0, 0]), Purpose::Nothing);
        }
    }
}

/// The device of a mount.
fn device(mount: u8) -> u64 {
    anonymous_device(minor::VOLUMES + DEVICES + u32::from(mount))
}
