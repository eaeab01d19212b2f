// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the host has, as far as it is not what the volume shows: all that was said so far.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::files::tree::node::NodeId;
use crate::files::tree::volume::ImagePlace;
use crate::files::tree::{Place, Tree, room};

/// Which file, whatever becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// One that a volume had.
    Image(ImagePlace),
    /// One that was made.
    Node(NodeId),
}

/// A file as it was at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Which file.
    pub identity: Identity,
    /// When it was changed last; `None`: never.
    pub changed: Option<Time>,
}

impl Version {
    /// What is at a place of the overlay or a volume.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    pub fn of(tree: &Tree, place: Place) -> Result<Version, Errno> {
        match tree.settle(place) {
            Place::Image(image) => Ok(Version::original(image)),
            Place::Node(id) => {
                let node = tree.node(id)?;
                let identity = node.origin.map_or(Identity::Node(id), Identity::Image);
                // A node is made of an inode with all its times the same.
                let changed = Some(node.times.changed).filter(|changed| node.origin.is_none() || *changed != node.times.born);
                Ok(Version { identity, changed })
            }
            Place::Proc(_) | Place::Descriptor(_) => Err(Errno::EIO),
        }
    }

    /// What a volume had.
    #[must_use]
    pub fn original(place: ImagePlace) -> Version {
        Version { identity: Identity::Image(place), changed: None }
    }
}

/// Something that the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// As which version it was said last; `None`: who knows.
    pub version: Option<Version>,
    /// It is a directory.
    pub is_directory: bool,
    /// The volume's directory whose names the host's had to begin with; what was said of them since stands for itself.
    pub below: Option<ImagePlace>,
}

/// All that was said, by path.
#[derive(Debug, Default)]
pub struct Told {
    paths: BTreeMap<Box<[u8]>, Option<Known>>,
}

impl Told {
    /// What the host has at a path, where the volume has `original`.
    ///
    /// # Errors
    /// `EIO`.
    pub fn host(&self, tree: &Tree, path: &[u8], original: Option<ImagePlace>) -> Result<Option<Known>, Errno> {
        if let Some(known) = self.paths.get(path) {
            return Ok(*known);
        }
        let Some(original) = original else { return Ok(None) };
        let is_directory = tree.original_kind(original)? == FileType::Directory;
        let below = Some(original).filter(|_| is_directory);
        Ok(Some(Known { version: Some(Version::original(original)), is_directory, below }))
    }

    /// Takes note of what the host has at a path from now on.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn note(&mut self, path: &[u8], known: Option<Known>) -> Result<(), Errno> {
        room()?;
        self.paths.insert(path.into(), known);
        Ok(())
    }

    /// Forgets what was said of all below a path.
    pub fn forget_below(&mut self, path: &[u8]) {
        // All that begins with the path and a slash lies before the path with the byte that follows a slash.
        let [from, to]: [Box<[u8]>; 2] = [b'/', b'/' + 1].map(|end| [path, &[end]].concat().into());
        self.paths.extract_if(from..to, |_, _| true).for_each(drop);
    }

    /// The names right below a path that something was said about, and that the host has.
    pub fn names_below(&self, path: &[u8]) -> Vec<Box<[u8]>> {
        let from: Box<[u8]> = if path.is_empty() { Box::default() } else { [path, b"/"].concat().into() };
        let names = self.paths.range(from.clone()..).map_while(|(other, known)| Some((other.strip_prefix(&*from)?, known)));
        names.filter(|(name, known)| known.is_some() && !name.is_empty() && !name.contains(&b'/')).map(|(name, _)| name.into()).collect()
    }

    /// What was said may have come to nothing: it will be said again.
    pub fn doubt(&mut self) {
        for known in self.paths.values_mut().flatten() {
            known.version = None;
        }
    }
}
