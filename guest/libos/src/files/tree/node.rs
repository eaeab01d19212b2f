// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes of the overlay: new or changed files.

use alloc::boxed::Box;
use alloc::vec::Vec;

use core::cell::Cell;

use super::attributes::Values;
use super::content::Content;
use super::directory::Directory;
use super::volume::{ImageInode, VolumeIndex};
use crate::credentials::Owner;
use crate::erofs::{FileType, Time};
use crate::errno::Errno;

/// The type-specific part of a node.
#[derive(Debug)]
pub enum Body {
    /// A regular file.
    Regular(Content),
    /// A directory.
    Directory(Directory),
    /// A symbolic link with its target.
    Symlink(Box<[u8]>),
    /// A device with its numbers, a FIFO or a socket.
    Special(FileType, (u32, u32)),
}

/// The timestamps of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Last read.
    pub accessed: Time,
    /// Last change of its content.
    pub modified: Time,
    /// Last change of content or metadata.
    pub changed: Time,
    /// Creation.
    pub born: Time,
}

impl Times {
    /// All timestamps at once.
    #[must_use]
    pub fn all(now: Time) -> Times {
        Times { accessed: now, modified: now, changed: now, born: now }
    }
}

/// The state of a file of a live mount, besides the node: what the server calls it, and how new the cache is.
#[derive(Debug)]
pub struct LiveInode {
    /// The mount.
    pub mount: u8,
    /// The server's number of the inode.
    pub nodeid: u64,
    /// How often the server has told it.
    pub(in crate::files) lookups: u64,
    /// When its attributes were asked for, and until when they hold in any case.
    pub(in crate::files) checked: Validity,
    /// The name that was looked up last, and the validity of that.
    pub(in crate::files) entry: Option<(NodeId, Box<[u8]>, Validity)>,
    /// The validity of its listing.
    pub(in crate::files) listed: Validity,
    /// Why its last listing failed, for the call that has asked.
    pub(in crate::files) listing_error: Cell<Option<Errno>>,
    /// The handle for writing.
    pub(in crate::files) handle: Option<u64>,
    /// Writes that the server has not answered.
    pub(in crate::files) in_flight: u32,
    /// The first error of a write since the last report.
    pub(in crate::files) error: Option<Errno>,
    /// The content at the server when it was last asked for.
    pub(in crate::files) version: Option<ContentVersion>,
    /// It was mapped shared: its content stays.
    pub is_mapped: bool,
    /// Its owner in the cell, if a program of the cell has set it: the host's stays.
    pub(in crate::files) owner: Option<(u32, u32)>,
    /// The host reports its changes.
    pub(in crate::files) is_watched: bool,
}

/// How new something in the cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::files) struct Validity {
    /// When it was asked for; 0: never.
    pub(in crate::files) at: u64,
    /// Until when it needs no new question.
    pub(in crate::files) until: u64,
}

/// A version of a file's content at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::files) struct ContentVersion {
    /// Bytes.
    pub size: u64,
    /// When the content changed.
    pub modified: Time,
    /// When anything changed.
    pub changed: Time,
}

impl LiveInode {
    /// Its size at the server, when its attributes were last told.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.version.map_or(0, |version| version.size)
    }

    /// A file of which nothing is known yet.
    pub(in crate::files) fn new(mount: u8, nodeid: u64) -> LiveInode {
        LiveInode {
            mount,
            nodeid,
            lookups: 0,
            checked: Validity::default(),
            entry: None,
            listed: Validity::default(),
            listing_error: Cell::new(None),
            handle: None,
            in_flight: 0,
            error: None,
            version: None,
            is_mapped: false,
            owner: None,
            is_watched: false,
        }
    }
}

/// A file of the overlay.
#[derive(Debug)]
pub struct Node {
    /// The type-specific part.
    pub body: Body,
    /// Its owner and permissions.
    pub owner: Owner,
    /// The number of its hard links.
    pub links: u32,
    /// Its timestamps.
    pub times: Times,
    /// The volume to which it belongs.
    pub volume: VolumeIndex,
    /// The device that it lies on.
    pub device: u64,
    /// Its inode number.
    pub number: u64,
    /// Names that it has on the host and not here.
    pub hidden_links: u32,
    /// The inode that it was.
    pub origin: Option<ImageInode>,
    /// It was created without a name, and may get one (`O_TMPFILE`).
    pub temporary: bool,
    /// Its extended attributes.
    pub attributes: Values,
    /// Its state as a file of a live mount.
    pub live: Option<Box<LiveInode>>,
}

impl Node {
    /// Its file type.
    #[must_use]
    pub fn kind(&self) -> FileType {
        match &self.body {
            Body::Regular(_) => FileType::Regular,
            Body::Directory(_) => FileType::Directory,
            Body::Symlink(_) => FileType::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    /// Its directory body.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn directory(&self) -> Result<&Directory, Errno> {
        if let Body::Directory(directory) = &self.body { Ok(directory) } else { Err(Errno::ENOTDIR) }
    }

    /// Its directory body, mutably.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn directory_mut(&mut self) -> Result<&mut Directory, Errno> {
        if let Body::Directory(directory) = &mut self.body { Ok(directory) } else { Err(Errno::ENOTDIR) }
    }

    /// Its content.
    ///
    /// # Errors
    /// `EINVAL`: it is no regular file.
    pub fn content(&self) -> Result<&Content, Errno> {
        if let Body::Regular(content) = &self.body { Ok(content) } else { Err(Errno::EINVAL) }
    }

    /// Its content, mutably.
    ///
    /// # Errors
    /// `EINVAL`: it is no regular file.
    pub fn content_mut(&mut self) -> Result<&mut Content, Errno> {
        if let Body::Regular(content) = &mut self.body { Ok(content) } else { Err(Errno::EINVAL) }
    }

    /// Records a change of its content.
    pub fn touch(&mut self, now: Time) {
        (self.times.modified, self.times.changed) = (now, now);
    }
}

/// The identity of a node. It is never reused: a later node in the same slot has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId {
    index: u32,
    generation: u32,
}

impl NodeId {
    /// A number that identifies it.
    #[must_use]
    pub fn key(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    node: Option<Box<Node>>,
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Nodes {
    /// Adds a node. [`room`](super::room) must have been checked.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn add(&mut self, node: Node) -> Result<NodeId, Errno> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.try_reserve(1).map_err(|_| Errno::ENOSPC)?;
                // Freeing a node must not allocate memory.
                self.free.try_reserve(self.slots.len() + 1).map_err(|_| Errno::ENOSPC)?;
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u32
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.node = Some(Box::new(node));
        Ok(NodeId { index, generation: slot.generation })
    }

    /// Removes a node.
    pub fn remove(&mut self, id: NodeId) -> Option<Box<Node>> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        let node = slot.node.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(node)
    }

    /// A node.
    ///
    /// # Errors
    /// `ENOENT`: it was freed.
    pub fn get(&self, id: NodeId) -> Result<&Node, Errno> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.node.as_deref()).ok_or(Errno::ENOENT)
    }

    /// A node, mutably.
    ///
    /// # Errors
    /// `ENOENT`: it was freed.
    pub fn get_mut(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.node.as_deref_mut()).ok_or(Errno::ENOENT)
    }

    /// The number of nodes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
