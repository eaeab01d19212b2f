// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree of names: volumes below, one overlay above.
//!
//! A name leads to a [`Place`]: an inode of a volume, or a [node](node::Node) of the overlay. Nothing is made for an inode that is only looked at. A node is
//! made when something about it changes ([`Tree::own`]); the tree remembers which inodes became nodes, so that every name of a file, and whoever found its place
//! before, sees the same: a place is looked at through [`Tree::settle`]. A node lives while it has a name or somebody has it open;
//! who has is known outside, where [`Tree::forget`] is called.
//!
//! A volume is mounted by letting a name of a directory lead to its root, so looking up a name knows nothing of mounts. Who may do what is decided outside
//! as well.

mod attributes;
mod change;
pub mod content;
pub mod directory;
mod list;
pub mod node;
mod original;
pub mod volume;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::erofs::{FileType, Image, Inode};
use crate::errno::Errno;
use crate::files::proc::entry::Entry;
use crate::files::status::Status;
use content::Content;
use directory::{Directory, Known};
use node::{Body, Node, NodeId, Nodes, Owner, Times};
use volume::{ImageFile, ImagePlace, Volume, VolumeIndex};

pub use attributes::{Setting, VALUE_MAX};
pub use change::Named;
pub use list::Listed;

/// Names have at most this many bytes.
pub const NAME_MAX: usize = 255;
/// Memory is asked for in blocks of so many bytes, for it may lie in pieces: as those were that files leave behind.
const BLOCK: usize = 4096;
/// Blocks that must be there before small things are made, so that making them does not fail half way.
const ROOM: usize = 4;
/// Blocks that are kept for taking names away, so that a full overlay can be cleared.
const RESERVE: usize = 16;
/// The first inode number of new nodes: those of volumes, of which each has 512 GiB at most, are smaller.
const FIRST_NUMBER: u64 = 1 << 36;

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An inode of a volume.
    Image(ImagePlace),
    /// A node of the overlay.
    Node(NodeId),
    /// Something of `/proc`.
    Proc(Entry),
    /// What a descriptor stands for, where it has no name.
    Descriptor(u32),
}

/// Checks that there is memory for small things.
///
/// # Errors
/// `ENOSPC`.
pub fn room() -> Result<(), Errno> {
    // Mostly there is as much in one piece; each block that is taken and given back is a page that a clone has to itself.
    if Vec::<u8>::new().try_reserve_exact(ROOM * BLOCK).is_ok() {
        return Ok(());
    }
    reserve(&mut <[Vec<u8>; ROOM]>::default())
}

/// Takes the blocks that are not there.
fn reserve(blocks: &mut [Vec<u8>]) -> Result<(), Errno> {
    blocks.iter_mut().try_for_each(|block| block.try_reserve_exact(BLOCK)).map_err(|_| Errno::ENOSPC)
}

/// The tree of names.
#[derive(Debug)]
pub struct Tree {
    volumes: Vec<Volume>,
    nodes: Nodes,
    /// The inodes that became nodes.
    made: BTreeMap<ImagePlace, NodeId>,
    next_number: u64,
    /// How many inodes have become nodes.
    owned: u64,
    /// How often names, or what they lead to, have changed.
    changes: u64,
    /// Memory for taking names away, as far as it was not needed for that.
    reserve: [Vec<u8>; RESERVE],
}

impl Tree {
    /// A tree with this volume at its root.
    ///
    /// # Errors
    /// `ENOSPC`; what is wrong with the volume.
    pub fn new(image: Image<'static>, bytes: &'static [u8]) -> Result<Tree, Errno> {
        let place = ImagePlace { volume: VolumeIndex::ROOT, nid: image.root() };
        let volumes = alloc::vec![Volume { image, bytes, parent: Place::Image(place) }];
        let mut tree = Tree {
            volumes,
            nodes: Nodes::default(),
            made: BTreeMap::new(),
            next_number: FIRST_NUMBER,
            owned: 0,
            changes: 0,
            reserve: Default::default(),
        };
        tree.room()?;
        tree.own(Place::Image(place))?;
        Ok(tree)
    }

    /// Checks that there is memory for small things, and as much as is kept for taking names away.
    ///
    /// # Errors
    /// `ENOSPC`.
    fn room(&mut self) -> Result<(), Errno> {
        reserve(&mut self.reserve)?;
        room()
    }

    /// Checks that there is memory for small things, for which what is kept may be given up.
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
    pub fn root(&self) -> Place {
        self.volumes.first().map_or(Place::Proc(Entry::ROOT), |volume| {
            self.settle(Place::Image(ImagePlace { volume: VolumeIndex::ROOT, nid: volume.image.root() }))
        })
    }

    /// The place as it is now: what was an inode when it was found may have become a node.
    #[must_use]
    pub fn settle(&self, place: Place) -> Place {
        match place {
            Place::Image(image) => self.made.get(&image).map_or(place, |node| Place::Node(*node)),
            other => other,
        }
    }

    /// The volumes.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// How often names, or what they lead to, have changed: while it is the same, a path leads where it led.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many inodes have become nodes by now, those included that are gone.
    #[must_use]
    pub fn owned(&self) -> u64 {
        self.owned
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.count()
    }

    /// A volume.
    ///
    /// # Errors
    /// `EIO`: there is none, which no place should say.
    pub fn volume(&self, index: VolumeIndex) -> Result<&Volume, Errno> {
        self.volumes.get(usize::from(index.0)).ok_or(Errno::EIO)
    }

    /// A node.
    ///
    /// # Errors
    /// `ENOENT`: it was forgotten.
    pub fn node(&self, id: NodeId) -> Result<&Node, Errno> {
        self.nodes.get(id)
    }

    /// A node, to be changed.
    ///
    /// # Errors
    /// `ENOENT`: it was forgotten.
    pub fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(id)
    }

    /// The inode of a place in a volume.
    fn inode(&self, place: ImagePlace) -> Result<Inode, Errno> {
        Ok(self.volume(place.volume)?.image.inode(place.nid)?)
    }

    /// The bytes of a volume's regular file.
    ///
    /// # Errors
    /// `EIO`, `EOPNOTSUPP`.
    pub fn image_file(&self, place: ImagePlace) -> Result<ImageFile, Errno> {
        ImageFile::new(self.volume(place.volume)?, &self.inode(place)?)
    }

    /// What lies at a place of a volume or the overlay.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    pub fn kind(&self, place: Place) -> Result<FileType, Errno> {
        match self.settle(place) {
            Place::Image(image) => Ok(self.inode(image)?.kind),
            Place::Node(id) => Ok(self.node(id)?.kind()),
            Place::Proc(_) | Place::Descriptor(_) => Err(Errno::EIO),
        }
    }

    /// What is known of a place in a volume or the overlay.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    pub fn status(&self, place: Place) -> Result<Status, Errno> {
        match self.settle(place) {
            Place::Image(image) => Ok(Status::of_inode(image.volume, &self.inode(image)?)),
            Place::Node(id) => Ok(Status::of_node(self.node(id)?)),
            Place::Proc(_) | Place::Descriptor(_) => Err(Errno::EIO),
        }
    }

    /// Finds a name in a directory; neither `.` nor `..`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `EIO`.
    pub fn lookup(&self, directory: Place, name: &[u8]) -> Result<Place, Errno> {
        match self.settle(directory) {
            Place::Image(image) => Ok(self.settle(self.lookup_below(image, name)?)),
            Place::Node(id) => {
                let directory = self.node(id)?.directory()?;
                match directory.get(name) {
                    Known::Leads(place) => Ok(self.settle(place)),
                    Known::Gone => Err(Errno::ENOENT),
                    Known::Nothing if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
                    Known::Nothing => Ok(self.settle(self.lookup_below(directory.below.ok_or(Errno::ENOENT)?, name)?)),
                }
            }
            Place::Proc(_) | Place::Descriptor(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Finds a name in a volume's directory.
    fn lookup_below(&self, directory: ImagePlace, name: &[u8]) -> Result<Place, Errno> {
        let image = &self.volume(directory.volume)?.image;
        let nid = image.directory(&image.inode(directory.nid)?)?.lookup(name)?;
        Ok(Place::Image(ImagePlace { nid, ..directory }))
    }

    /// The directory above a directory; of the root, itself.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EIO`.
    pub fn parent(&self, directory: Place) -> Result<Place, Errno> {
        match self.settle(directory) {
            Place::Image(image) => Ok(self.settle(self.parent_below(image)?)),
            Place::Node(id) => Ok(self.settle(self.node(id)?.directory()?.parent)),
            Place::Proc(_) | Place::Descriptor(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The directory above one of a volume, as the volume has it.
    fn parent_below(&self, directory: ImagePlace) -> Result<Place, Errno> {
        let volume = self.volume(directory.volume)?;
        if directory.nid == volume.image.root() { Ok(volume.parent) } else { self.lookup_below(directory, b"..") }
    }

    /// Where a symbolic link of a volume or the overlay leads.
    ///
    /// # Errors
    /// `EINVAL`: it is none.
    pub fn target(&self, link: Place) -> Result<&[u8], Errno> {
        match self.settle(link) {
            Place::Image(image) => Ok(self.volume(image.volume)?.image.link_target(&self.inode(image)?)?),
            Place::Node(id) => {
                if let Body::Symlink(target) = &self.node(id)?.body {
                    Ok(target)
                } else {
                    Err(Errno::EINVAL)
                }
            }
            Place::Proc(_) | Place::Descriptor(_) => Err(Errno::EINVAL),
        }
    }

    /// The node of a place: made now if it was an inode.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `EPERM`: what the libOS makes up cannot be changed.
    pub fn own(&mut self, place: Place) -> Result<NodeId, Errno> {
        let image = match self.settle(place) {
            Place::Node(id) => return Ok(id),
            Place::Image(image) => image,
            Place::Proc(_) | Place::Descriptor(_) => return Err(Errno::EPERM),
        };
        room()?;
        let inode = self.inode(image)?;
        let body = match inode.kind {
            FileType::Regular => Body::Regular(Content::above(self.image_file(image)?)),
            FileType::Directory => Body::Directory(Directory::new(self.parent_below(image)?, Some(image))),
            FileType::Symlink => Body::Symlink(self.target(Place::Image(image))?.into()),
            kind => Body::Special(kind, inode.device),
        };
        let id = self.nodes.add(Node {
            body,
            owner: Owner { uid: inode.uid, gid: inode.gid, permissions: inode.permissions },
            links: inode.links,
            times: Times::all(inode.modified),
            volume: image.volume,
            number: inode.nid.number(),
            origin: Some(image),
            temporary: false,
            attributes: self.attributes_below(image)?,
        })?;
        self.made.insert(image, id);
        self.owned += 1;
        self.changes += 1;
        Ok(id)
    }

    /// Forgets a node that has no name any more, once nobody has it open.
    pub fn forget(&mut self, id: NodeId) {
        if self.node(id).is_ok_and(|node| node.links == 0)
            && let Some(origin) = self.nodes.remove(id).and_then(|node| node.origin)
        {
            self.changes += 1;
            self.made.remove(&origin);
        }
    }

    /// The volume that a place counts as a part of; `None`: it is made up.
    #[must_use]
    pub fn volume_of(&self, place: Place) -> Option<VolumeIndex> {
        match self.settle(place) {
            Place::Image(image) => Some(image.volume),
            Place::Node(id) => self.node(id).ok().map(|node| node.volume),
            Place::Proc(_) | Place::Descriptor(_) => None,
        }
    }

    /// Whether something is mounted at a place.
    #[must_use]
    pub fn is_mount(&self, place: Place) -> bool {
        let is_root = |index: usize, volume: &Volume| {
            let root = Place::Image(ImagePlace { volume: VolumeIndex(index as u8), nid: volume.image.root() });
            self.settle(root) == self.settle(place)
        };
        matches!(place, Place::Proc(Entry::ROOT | Entry::SYSTEM))
            || self.volumes.iter().enumerate().any(|(index, volume)| is_root(index, volume))
    }
}
