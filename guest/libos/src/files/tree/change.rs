// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the tree: adding, removing and moving names. Permissions are checked by the callers; these functions fail only without
//! memory or on a corrupt image.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::directory::{Dentry, Directory};
use super::node::{Body, Node, NodeId, Times};
use super::volume::{ImageInode, Volume, VolumeIndex};
use super::{InodeRef, Tree};
use crate::credentials::Owner;
use crate::erofs::{FileType, Image, Time};
use crate::errno::Errno;
use crate::files::status::{anonymous_device, minor};

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct NameAt<'a> {
    /// The directory.
    pub directory: InodeRef,
    /// The name.
    pub name: &'a [u8],
}

impl Tree {
    /// Creates a node without a name. A directory gets `parent` as its parent.
    ///
    /// # Errors
    /// `ENOSPC`; `EROFS`: the volume is read-only.
    pub fn make(&mut self, volume: VolumeIndex, body: Body, owner: Owner, now: Time) -> Result<NodeId, Errno> {
        if self.volume(volume)?.is_read_only {
            return Err(Errno::EROFS);
        }
        self.room()?;
        let number = self.next_number;
        let node = Node {
            body,
            owner,
            links: 0,
            times: Times::all(now),
            volume,
            device: self.device(volume)?,
            number,
            hidden_links: 0,
            origin: None,
            temporary: false,
            attributes: BTreeMap::new(),
            live: None,
        };
        let id = self.nodes.add(node)?;
        self.next_number += 1;
        Ok(id)
    }

    /// Creates a file and its name, which must be unused.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `ENOENT`: the directory was removed; `EPERM`: it is in a pseudo filesystem.
    pub fn create(&mut self, at: NameAt<'_>, body: Body, owner: Owner, now: Time) -> Result<NodeId, Errno> {
        let directory = self.copy_up(at.directory)?;
        let volume = self.node(directory)?.volume;
        let id = self.make(volume, body, owner, now)?;
        if let Err(error) = self.set_entry(directory, at.name, InodeRef::Node(id), now) {
            self.forget(id);
            return Err(error);
        }
        let is_directory = self.node(id)?.kind() == FileType::Directory;
        self.node_mut(id)?.links = if is_directory { 2 } else { 1 };
        let links = &mut self.node_mut(directory)?.links;
        *links = links.saturating_add(is_directory.into());
        Ok(id)
    }

    /// A directory's body, for [`Tree::create`].
    #[must_use]
    pub fn empty_directory(parent: InodeRef) -> Body {
        Body::Directory(Directory::new(parent, None))
    }

    /// Adds a name to a file; the name must be unused.
    ///
    /// # Errors
    /// As for [`Tree::create`].
    pub fn link(&mut self, inode: InodeRef, at: NameAt<'_>, now: Time) -> Result<(), Errno> {
        let (directory, id) = (self.copy_up(at.directory)?, self.copy_up(inode)?);
        self.room()?;
        self.set_entry(directory, at.name, InodeRef::Node(id), now)?;
        let node = self.node_mut(id)?;
        node.links = node.links.saturating_add(1);
        node.times.changed = now;
        Ok(())
    }

    /// Removes a name. Returns its file, which may have no name left.
    ///
    /// # Errors
    /// `ENOENT`, `ENOSPC`, `EIO`, `EPERM`.
    pub fn unlink(&mut self, at: NameAt<'_>, now: Time) -> Result<InodeRef, Errno> {
        let inode = self.lookup(at.directory, at.name)?;
        self.room_to_remove()?;
        let directory = self.copy_up(at.directory)?;
        let inode = self.drop_link(directory, inode, now)?;
        self.delete_entry(directory, at.name, now)?;
        Ok(inode)
    }

    /// Records that a file loses a name in a directory.
    fn drop_link(&mut self, directory: NodeId, inode: InodeRef, now: Time) -> Result<InodeRef, Errno> {
        let status = self.status(inode)?;
        let is_directory = status.kind() == Some(FileType::Directory);
        let links = &mut self.node_mut(directory)?.links;
        *links = links.saturating_sub(u32::from(is_directory));
        // An inode with one name and no open file is unreachable without it: no node is created.
        if matches!(self.real_inode(inode), InodeRef::Image(_)) && (status.links == 1 || is_directory) {
            return Ok(inode);
        }
        let id = self.copy_up(inode)?;
        let node = self.node_mut(id)?;
        node.links = if is_directory { 0 } else { node.links.saturating_sub(1) };
        node.times.changed = now;
        Ok(InodeRef::Node(id))
    }

    /// Moves a name. Returns the file that it replaces, which loses the name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOSPC`, `EIO`, `EPERM`.
    pub fn rename(&mut self, from: NameAt<'_>, to: NameAt<'_>, now: Time) -> Result<Option<InodeRef>, Errno> {
        let inode = self.lookup(from.directory, from.name)?;
        self.room_to_remove()?;
        let id = self.copy_up(inode)?;
        let (source, target) = (self.copy_up(from.directory)?, self.copy_up(to.directory)?);
        let replaced = match self.lookup(to.directory, to.name) {
            Ok(replaced) => Some(self.drop_link(target, replaced, now)?),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        self.set_entry(target, to.name, InodeRef::Node(id), now)?;
        self.delete_entry(source, from.name, now)?;
        self.moved(id, source, target, now)?;
        Ok(replaced)
    }

    /// Exchanges the files of two names.
    ///
    /// # Errors
    /// `ENOENT`, `ENOSPC`, `EIO`, `EPERM`.
    pub fn exchange(&mut self, one: NameAt<'_>, other: NameAt<'_>, now: Time) -> Result<(), Errno> {
        let first = self.lookup(one.directory, one.name).and_then(|inode| self.copy_up(inode))?;
        let second = self.lookup(other.directory, other.name).and_then(|inode| self.copy_up(inode))?;
        let (source, target) = (self.copy_up(one.directory)?, self.copy_up(other.directory)?);
        self.room()?;
        self.set_entry(target, other.name, InodeRef::Node(first), now)?;
        self.set_entry(source, one.name, InodeRef::Node(second), now)?;
        self.moved(first, source, target, now)?;
        self.moved(second, target, source, now)
    }

    /// Records that a file moved from one directory to another.
    fn moved(&mut self, id: NodeId, from: NodeId, to: NodeId, now: Time) -> Result<(), Errno> {
        let node = self.node_mut(id)?;
        node.times.changed = now;
        if let Body::Directory(directory) = &mut node.body {
            directory.parent = InodeRef::Node(to);
            // An image's link counts may be wrong.
            let links = &mut self.node_mut(from)?.links;
            *links = links.saturating_sub(1);
            let links = &mut self.node_mut(to)?.links;
            *links = links.saturating_add(1);
        }
        Ok(())
    }

    /// Mounts a volume at a name.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EPERM`; `ENOMEM`: there are too many.
    pub fn mount(&mut self, image: Image<'static>, bytes: &'static [u8], at: NameAt<'_>, now: Time) -> Result<(), Errno> {
        let volume = VolumeIndex(u8::try_from(self.volumes.len()).map_err(|_| Errno::ENOMEM)?);
        self.volumes.push(Volume { image, bytes, parent: at.directory, is_read_only: false });
        self.graft(at, InodeRef::Image(ImageInode { volume, nid: image.root() }), now)
    }

    /// Adds a volume without an image of its own, below which all files are nodes.
    ///
    /// # Errors
    /// `ENOMEM`: there are too many.
    pub fn add_volume(&mut self, parent: InodeRef) -> Result<VolumeIndex, Errno> {
        let volume = VolumeIndex(u8::try_from(self.volumes.len()).map_err(|_| Errno::ENOMEM)?);
        let root = *self.volume(VolumeIndex::ROOT)?;
        self.volumes.push(Volume { parent, is_read_only: false, ..root });
        Ok(volume)
    }

    /// Makes a directory a file system of its own, with the files below it that no image has; `path` is its name in the list of mounts. The
    /// directory must hold no files of an image.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOSPC`, `EIO`; `ENOMEM`: there are too many volumes.
    pub fn mount_tmpfs(&mut self, directory: InodeRef, path: &[u8]) -> Result<(), Errno> {
        let root = self.copy_up(directory)?;
        let parent = self.node(root)?.directory()?.parent;
        let (before, volume) = (self.node(root)?.volume, self.add_volume(parent)?);
        let mut pending = alloc::vec![root];
        while let Some(id) = pending.pop() {
            let node = self.node_mut(id)?;
            (node.volume, node.device) = (volume, anonymous_device(minor::VOLUMES + u32::from(volume.0)));
            let Ok(directory) = self.node(id)?.directory() else { continue };
            let below: Vec<InodeRef> = directory.added(0).map(|(_, _, inode)| inode).collect();
            // Files of another volume are below a mount point.
            let is_inside = |id: &NodeId| self.node(*id).is_ok_and(|node| node.volume == before);
            pending.extend(
                below.into_iter().filter_map(|inode| if let InodeRef::Node(id) = inode { Some(id) } else { None }).filter(is_inside),
            );
        }
        let nid = self.volume(volume)?.image.root();
        self.nodes_of_inodes.insert(ImageInode { volume, nid }, root);
        self.temporary.push((volume, path.into()));
        Ok(())
    }

    /// Adds the root of a volume as a node.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`.
    pub fn add_root(&mut self, volume: VolumeIndex, node: Node) -> Result<NodeId, Errno> {
        let id = self.add_node(node)?;
        let root = ImageInode { volume, nid: self.volume(volume)?.image.root() };
        self.nodes_of_inodes.insert(root, id);
        Ok(id)
    }

    /// Adds a node without a name.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn add_node(&mut self, node: Node) -> Result<NodeId, Errno> {
        self.room()?;
        self.nodes.add(node)
    }

    /// Lets a name lead to a node. Times stay: the directory's are a server's.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOTDIR`; `ENOENT`: the directory is gone.
    pub fn attach(&mut self, at: NameAt<'_>, id: NodeId) -> Result<(), Errno> {
        self.room()?;
        let directory = self.copied(at.directory)?;
        self.node_mut(directory)?.directory_mut()?.put(at.name, InodeRef::Node(id), false);
        self.changes += 1;
        let node = self.node_mut(id)?;
        match &mut node.body {
            Body::Directory(body) => {
                body.parent = at.directory;
                node.links = node.links.max(2);
                let links = &mut self.node_mut(directory)?.links;
                *links = links.saturating_add(1);
            }
            _ => node.links = node.links.saturating_add(1),
        }
        Ok(())
    }

    /// Removes the name of a node. Times stay.
    pub fn detach(&mut self, at: NameAt<'_>) {
        let Ok(directory) = self.copied(at.directory) else { return };
        let Ok(body) = self.node_mut(directory).and_then(|node| node.directory_mut()) else { return };
        let Dentry::Positive(InodeRef::Node(id)) = body.get(at.name) else { return };
        body.remove(at.name, false);
        self.changes += 1;
        let Ok(node) = self.node_mut(id) else { return };
        let is_directory = node.kind() == FileType::Directory;
        node.links = if is_directory { 0 } else { node.links.saturating_sub(1) };
        if is_directory && let Ok(above) = self.node_mut(directory) {
            above.links = above.links.saturating_sub(1);
        }
    }

    /// The node of a directory that is one already.
    fn copied(&self, directory: InodeRef) -> Result<NodeId, Errno> {
        if let InodeRef::Node(id) = self.real_inode(directory) { Ok(id) } else { Err(Errno::EIO) }
    }

    /// Mounts a directory at a name.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EPERM`.
    pub fn graft(&mut self, at: NameAt<'_>, inode: InodeRef, now: Time) -> Result<(), Errno> {
        let is_new = self.lookup(at.directory, at.name).is_err();
        let directory = self.copy_up(at.directory)?;
        self.set_entry(directory, at.name, inode, now)?;
        let links = &mut self.node_mut(directory)?.links;
        *links = links.saturating_add(is_new.into());
        Ok(())
    }

    /// Sets the file of a name in a directory.
    fn set_entry(&mut self, directory: NodeId, name: &[u8], inode: InodeRef, now: Time) -> Result<(), Errno> {
        let is_below = self.is_below(directory, name)?;
        self.changes += 1;
        let node = self.node_mut(directory)?;
        if node.links == 0 {
            return Err(Errno::ENOENT);
        }
        node.directory_mut()?.put(name, inode, is_below);
        node.touch(now);
        Ok(())
    }

    /// Removes a name from a directory.
    fn delete_entry(&mut self, directory: NodeId, name: &[u8], now: Time) -> Result<(), Errno> {
        let is_below = self.is_below(directory, name)?;
        self.changes += 1;
        let node = self.node_mut(directory)?;
        node.directory_mut()?.remove(name, is_below);
        node.touch(now);
        Ok(())
    }

    /// Whether the image below a directory has a name.
    fn is_below(&self, directory: NodeId, name: &[u8]) -> Result<bool, Errno> {
        match self.node(directory)?.directory()?.below {
            Some(below) => match self.lookup_below(below, name) {
                Ok(_) => Ok(true),
                Err(Errno::ENOENT) => Ok(false),
                Err(error) => Err(error),
            },
            None => Ok(false),
        }
    }
}
