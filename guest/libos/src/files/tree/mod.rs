// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree of names: volumes below, one overlay above.
//!
//! A name leads to a [`InodeRef`]: an inode of a volume, or a [node](node::Node) of the overlay. Reading an inode creates no node; changing
//! it does ([`Tree::copy_up`]). The tree remembers which inodes became nodes, so that all names and earlier inodes of a file refer to the
//! same node: [`Tree::real_inode`] resolves an inode. A node exists while it has a name or is open. Open files are tracked by the callers,
//! which call [`Tree::forget`].
//!
//! A volume is mounted by letting a name of a directory lead to its root, so name lookup needs no mount handling. Permissions are checked
//! by the callers as well.

mod attributes;
mod change;
pub mod content;
pub mod directory;
mod list;
pub mod node;
mod original;
pub mod volume;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::credentials::Owner;
use crate::erofs::{FileType, Image, Inode};
use crate::errno::Errno;
use crate::files::proc::entry::ProcEntry;
use crate::files::status::{Status, device_of};
use content::Content;
use directory::{Dentry, Directory};
use node::{Body, Node, NodeId, Nodes};
use volume::{ImageFile, ImageInode, Volume, VolumeIndex};

pub use attributes::{VALUE_MAX, XattrCondition};
pub use change::NameAt;
pub use list::DirectoryEntry;

/// Upper limit on the bytes of a name.
pub const NAME_MAX: usize = 255;
/// Memory is reserved in blocks of so many bytes, because free memory may be fragmented, for example by deleted files.
const BLOCK: usize = 4096;
/// Blocks that must be available before small objects are created, so that creation does not fail half way.
const ROOM: usize = 4;
/// Blocks reserved for removing names, so that a full overlay can be cleared.
const RESERVE: usize = 16;
/// The first inode number of new nodes: those of volumes are smaller.
const FIRST_NUMBER: u64 = 1 << 48;

/// The file of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeRef {
    /// An inode of a volume.
    Image(ImageInode),
    /// A node of the overlay.
    Node(NodeId),
    /// An entry of `/proc`.
    Proc(ProcEntry),
    /// A descriptor's nameless file.
    Descriptor(u32),
}

/// Checks that there is memory for small objects.
///
/// # Errors
/// `ENOSPC`.
pub fn room() -> Result<(), Errno> {
    // Usually one contiguous piece is available; allocating and freeing separate blocks would copy their pages in each clone.
    if Vec::<u8>::new().try_reserve_exact(ROOM * BLOCK).is_ok() {
        return Ok(());
    }
    reserve(&mut <[Vec<u8>; ROOM]>::default())
}

/// Allocates the missing blocks.
fn reserve(blocks: &mut [Vec<u8>]) -> Result<(), Errno> {
    blocks.iter_mut().try_for_each(|block| block.try_reserve_exact(BLOCK)).map_err(|_| Errno::ENOSPC)
}

/// The tree of names.
#[derive(Debug)]
pub struct Tree {
    volumes: Vec<Volume>,
    nodes: Nodes,
    /// Files of volumes that may not be changed, as if each was mounted read-only.
    read_only_files: Vec<ImageInode>,
    /// Directories that are file systems of their own, with their paths.
    temporary: Vec<(VolumeIndex, Box<[u8]>)>,
    /// The inodes that became nodes.
    nodes_of_inodes: BTreeMap<ImageInode, NodeId>,
    next_number: u64,
    /// How many inodes have become nodes.
    owned: u64,
    /// How often names, or their files, have changed.
    changes: u64,
    /// Memory reserved for removing names; empty blocks have been used up.
    reserve: [Vec<u8>; RESERVE],
}

impl Tree {
    /// A tree with this volume at its root.
    ///
    /// # Errors
    /// `ENOSPC`; an error of the volume.
    pub fn new(image: Image<'static>, bytes: &'static [u8]) -> Result<Tree, Errno> {
        let inode = ImageInode { volume: VolumeIndex::ROOT, nid: image.root() };
        let volumes = alloc::vec![Volume { image, bytes, parent: InodeRef::Image(inode), is_read_only: false }];
        let mut tree = Tree {
            volumes,
            nodes: Nodes::default(),
            read_only_files: Vec::new(),
            temporary: Vec::new(),
            nodes_of_inodes: BTreeMap::new(),
            next_number: FIRST_NUMBER,
            owned: 0,
            changes: 0,
            reserve: Default::default(),
        };
        tree.room()?;
        tree.copy_up(InodeRef::Image(inode))?;
        Ok(tree)
    }

    /// Checks that there is memory for small objects, and refills the reserve.
    ///
    /// # Errors
    /// `ENOSPC`.
    fn room(&mut self) -> Result<(), Errno> {
        reserve(&mut self.reserve)?;
        room()
    }

    /// Checks that there is memory for small objects, using the reserve if necessary.
    ///
    /// # Errors
    /// `ENOSPC`.
    fn room_to_remove(&mut self) -> Result<(), Errno> {
        room().or_else(|_| {
            self.reserve = Default::default();
            room()
        })
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> InodeRef {
        self.volumes.first().map_or(InodeRef::Proc(ProcEntry::ROOT), |volume| {
            self.real_inode(InodeRef::Image(ImageInode { volume: VolumeIndex::ROOT, nid: volume.image.root() }))
        })
    }

    /// The inode that a file has now (`ovl_inode_real`): an inode of a volume may have been copied up to a node since it was found.
    #[must_use]
    pub fn real_inode(&self, inode: InodeRef) -> InodeRef {
        match inode {
            InodeRef::Image(image) => self.nodes_of_inodes.get(&image).map_or(inode, |node| InodeRef::Node(*node)),
            other => other,
        }
    }

    /// The volumes.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// How often names, or their files, have changed: while this is unchanged, paths lead to the same inodes.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many inodes have become nodes so far, including removed ones.
    #[must_use]
    pub fn owned(&self) -> u64 {
        self.owned
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.count()
    }

    /// A volume.
    ///
    /// # Errors
    /// `EIO`: it does not exist, which cannot happen for a valid inode.
    pub fn volume(&self, index: VolumeIndex) -> Result<&Volume, Errno> {
        self.volumes.get(usize::from(index.0)).ok_or(Errno::EIO)
    }

    /// The device of new files in a volume.
    fn device(&self, index: VolumeIndex) -> Result<u64, Errno> {
        Ok(device_of(index, &self.volume(index)?.image))
    }

    /// A node.
    ///
    /// # Errors
    /// `ENOENT`: it was freed.
    pub fn node(&self, id: NodeId) -> Result<&Node, Errno> {
        self.nodes.get(id)
    }

    /// A node, mutably.
    ///
    /// # Errors
    /// `ENOENT`: it was freed.
    pub fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(id)
    }

    /// Reads an inode of a volume.
    fn inode(&self, inode: ImageInode) -> Result<Inode, Errno> {
        Ok(self.volume(inode.volume)?.image.inode(inode.nid)?)
    }

    /// The content of a volume's regular file.
    ///
    /// # Errors
    /// `EIO`, `EOPNOTSUPP`.
    pub fn image_file(&self, inode: ImageInode) -> Result<ImageFile, Errno> {
        ImageFile::new(self.volume(inode.volume)?, &self.inode(inode)?)
    }

    /// The file type of an inode in a volume or the overlay.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    pub fn kind(&self, inode: InodeRef) -> Result<FileType, Errno> {
        match self.real_inode(inode) {
            InodeRef::Image(image) => Ok(self.inode(image)?.kind),
            InodeRef::Node(id) => Ok(self.node(id)?.kind()),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::EIO),
        }
    }

    /// The metadata of an inode in a volume or the overlay.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    pub fn status(&self, inode: InodeRef) -> Result<Status, Errno> {
        match self.real_inode(inode) {
            InodeRef::Image(image) => Ok(Status::of_inode(image.volume, &self.volume(image.volume)?.image, &self.inode(image)?)),
            InodeRef::Node(id) => Ok(Status::of_node(self.node(id)?)),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::EIO),
        }
    }

    /// Finds a name in a directory; neither `.` nor `..`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `EIO`.
    pub fn lookup(&self, directory: InodeRef, name: &[u8]) -> Result<InodeRef, Errno> {
        match self.real_inode(directory) {
            InodeRef::Image(image) => Ok(self.real_inode(self.lookup_below(image, name)?)),
            InodeRef::Node(id) => {
                let directory = self.node(id)?.directory()?;
                match directory.get(name) {
                    Dentry::Positive(inode) => Ok(self.real_inode(inode)),
                    Dentry::Whiteout => Err(Errno::ENOENT),
                    Dentry::Unknown if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
                    Dentry::Unknown => Ok(self.real_inode(self.lookup_below(directory.below.ok_or(Errno::ENOENT)?, name)?)),
                }
            }
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Finds a name in a volume's directory.
    fn lookup_below(&self, directory: ImageInode, name: &[u8]) -> Result<InodeRef, Errno> {
        let image = &self.volume(directory.volume)?.image;
        let nid = image.directory(&image.inode(directory.nid)?)?.lookup(name)?;
        Ok(InodeRef::Image(ImageInode { nid, ..directory }))
    }

    /// The parent of a directory; the root is its own parent.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EIO`.
    pub fn parent(&self, directory: InodeRef) -> Result<InodeRef, Errno> {
        match self.real_inode(directory) {
            InodeRef::Image(image) => Ok(self.real_inode(self.parent_below(image)?)),
            InodeRef::Node(id) => Ok(self.real_inode(self.node(id)?.directory()?.parent)),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The parent of a volume's directory, according to the volume.
    fn parent_below(&self, directory: ImageInode) -> Result<InodeRef, Errno> {
        let volume = self.volume(directory.volume)?;
        if directory.nid == volume.image.root() { Ok(volume.parent) } else { self.lookup_below(directory, b"..") }
    }

    /// The target of a symbolic link in a volume or the overlay.
    ///
    /// # Errors
    /// `EINVAL`: it is no link.
    pub fn target(&self, link: InodeRef) -> Result<&[u8], Errno> {
        match self.real_inode(link) {
            InodeRef::Image(image) => Ok(self.volume(image.volume)?.image.link_target(&self.inode(image)?)?),
            InodeRef::Node(id) => {
                if let Body::Symlink(target) = &self.node(id)?.body {
                    Ok(target)
                } else {
                    Err(Errno::EINVAL)
                }
            }
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::EINVAL),
        }
    }

    /// The node of an inode; an inode of a volume is copied up now (`ovl_copy_up`).
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `EPERM`: pseudo filesystems cannot be changed; `EROFS`: the volume or the file is read-only.
    pub fn copy_up(&mut self, inode: InodeRef) -> Result<NodeId, Errno> {
        if self.is_read_only(inode) {
            return Err(Errno::EROFS);
        }
        let image = match self.real_inode(inode) {
            InodeRef::Node(id) => return Ok(id),
            InodeRef::Image(image) => image,
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => return Err(Errno::EPERM),
        };
        room()?;
        let inode = self.inode(image)?;
        let body = match inode.kind {
            FileType::Regular => Body::Regular(Content::above(self.image_file(image)?)),
            FileType::Directory => Body::Directory(Directory::new(self.parent_below(image)?, Some(image))),
            FileType::Symlink => Body::Symlink(self.target(InodeRef::Image(image))?.into()),
            kind => Body::Special(kind, inode.device),
        };
        let status = Status::of_inode(image.volume, &self.volume(image.volume)?.image, &inode);
        let id = self.nodes.add(Node {
            body,
            owner: Owner { uid: inode.uid, gid: inode.gid, permissions: inode.permissions },
            links: inode.links,
            times: status.times,
            volume: image.volume,
            device: status.device,
            number: status.number,
            hidden_links: status.links.saturating_sub(inode.links),
            origin: Some(image),
            temporary: false,
            attributes: self.attributes_below(image)?,
            live: None,
        })?;
        self.nodes_of_inodes.insert(image, id);
        self.owned += 1;
        self.changes += 1;
        Ok(id)
    }

    /// Frees a closed node that has no name.
    pub fn forget(&mut self, id: NodeId) {
        if self.node(id).is_ok_and(|node| node.links == 0)
            && let Some(origin) = self.nodes.remove(id).and_then(|node| node.origin)
        {
            self.changes += 1;
            self.nodes_of_inodes.remove(&origin);
        }
    }

    /// The volume to which an inode belongs; `None`: it is in a pseudo filesystem.
    #[must_use]
    pub fn volume_of(&self, inode: InodeRef) -> Option<VolumeIndex> {
        match self.real_inode(inode) {
            InodeRef::Image(image) => Some(image.volume),
            InodeRef::Node(id) => self.node(id).ok().map(|node| node.volume),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => None,
        }
    }

    /// Forbids changes of a volume, if the inode is its root, or of a file.
    ///
    /// # Errors
    /// `EINVAL`: it is neither.
    pub fn protect(&mut self, inode: InodeRef) -> Result<(), Errno> {
        let volume = self.volume_of(inode).ok_or(Errno::EINVAL)?;
        match self.real_inode(inode) {
            inode if self.is_mount(inode) => self.volumes.get_mut(usize::from(volume.0)).ok_or(Errno::EIO)?.is_read_only = true,
            InodeRef::Image(image) => self.read_only_files.push(image),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// The directories that are file systems of their own, with their paths.
    pub fn temporary(&self) -> impl Iterator<Item = (VolumeIndex, &[u8])> {
        self.temporary.iter().map(|(volume, path)| (*volume, &**path))
    }

    /// Performs a change of the libOS itself, which a read-only root does not forbid.
    ///
    /// # Errors
    /// Those of the change.
    pub fn with_writable_root(&mut self, change: impl FnOnce(&mut Tree) -> Result<(), Errno>) -> Result<(), Errno> {
        let is_read_only =
            |tree: &mut Tree, set: bool| tree.volumes.first_mut().map(|root| core::mem::replace(&mut root.is_read_only, set));
        let before = is_read_only(self, false);
        let done = change(self);
        is_read_only(self, before.unwrap_or_default());
        done
    }

    /// Whether a file may not be changed, whatever its permissions.
    #[must_use]
    pub fn is_read_only(&self, inode: InodeRef) -> bool {
        let is_file = |image: ImageInode| self.read_only_files.contains(&image);
        self.volume_of(inode).and_then(|volume| self.volume(volume).ok()).is_some_and(|volume| volume.is_read_only)
            || matches!(inode, InodeRef::Image(image) if is_file(image))
    }

    /// Whether an inode is a mount point.
    #[must_use]
    pub fn is_mount(&self, inode: InodeRef) -> bool {
        let is_root = |index: usize, volume: &Volume| {
            let root = InodeRef::Image(ImageInode { volume: VolumeIndex(index as u8), nid: volume.image.root() });
            self.real_inode(root) == self.real_inode(inode)
        };
        matches!(inode, InodeRef::Proc(ProcEntry::ROOT | ProcEntry::SYSTEM))
            || matches!(inode, InodeRef::Image(image) if self.read_only_files.contains(&image))
            || self.volumes.iter().enumerate().any(|(index, volume)| is_root(index, volume))
    }
}
