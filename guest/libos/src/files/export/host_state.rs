// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the host's files according to everything that was sent, where it differs from the volume.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::files::tree::node::NodeId;
use crate::files::tree::volume::ImageInode;
use crate::files::tree::{InodeRef, Tree, room};

/// The identity of a file, independent of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileIdentity {
    /// A file of a volume.
    Image(ImageInode),
    /// A new file.
    Node(NodeId),
}

/// A version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// The file.
    pub identity: FileIdentity,
    /// When it was last changed; `None`: never.
    pub changed: Option<Time>,
}

impl FileVersion {
    /// The version of a file in the overlay or a volume.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    pub fn of(tree: &Tree, inode: InodeRef) -> Result<FileVersion, Errno> {
        match tree.real_inode(inode) {
            InodeRef::Image(image) => Ok(FileVersion::original(image)),
            InodeRef::Node(id) => {
                let node = tree.node(id)?;
                let identity = node.origin.map_or(FileIdentity::Node(id), FileIdentity::Image);
                // A node made from an inode starts with equal timestamps.
                let changed = Some(node.times.changed).filter(|changed| node.origin.is_none() || *changed != node.times.born);
                Ok(FileVersion { identity, changed })
            }
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::EIO),
        }
    }

    /// The version in a volume.
    #[must_use]
    pub fn original(inode: ImageInode) -> FileVersion {
        FileVersion { identity: FileIdentity::Image(inode), changed: None }
    }
}

/// A file that the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// The version that was sent last; `None`: unknown.
    pub version: Option<FileVersion>,
    /// It is a directory.
    pub is_directory: bool,
    /// The volume's directory with which the host's started; names sent since then have entries of their own.
    pub below: Option<ImageInode>,
}

/// Everything that was sent, by path.
#[derive(Debug, Default)]
pub struct HostState {
    paths: BTreeMap<Box<[u8]>, Option<HostFile>>,
}

impl HostState {
    /// The host's file at a path, where the volume has `original`.
    ///
    /// # Errors
    /// `EIO`.
    pub fn host(&self, tree: &Tree, path: &[u8], original: Option<ImageInode>) -> Result<Option<HostFile>, Errno> {
        if let Some(file) = self.paths.get(path) {
            return Ok(*file);
        }
        let Some(original) = original else { return Ok(None) };
        let is_directory = tree.original_kind(original)? == FileType::Directory;
        let below = Some(original).filter(|_| is_directory);
        Ok(Some(HostFile { version: Some(FileVersion::original(original)), is_directory, below }))
    }

    /// Records the host's new state at a path.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn note(&mut self, path: &[u8], file: Option<HostFile>) -> Result<(), Errno> {
        room()?;
        self.paths.insert(path.into(), file);
        Ok(())
    }

    /// Drops the records of all paths below a path.
    pub fn forget_below(&mut self, path: &[u8]) {
        // All paths that begin with the path and a slash sort before the path with the byte that follows a slash.
        let [from, to]: [Box<[u8]>; 2] = [b'/', b'/' + 1].map(|end| [path, &[end]].concat().into());
        self.paths.extract_if(from..to, |_, _| true).for_each(drop);
    }

    /// The names directly below a path that were sent and exist on the host.
    pub fn names_below(&self, path: &[u8]) -> Vec<Box<[u8]>> {
        let from: Box<[u8]> = if path.is_empty() { Box::default() } else { [path, b"/"].concat().into() };
        let names = self.paths.range(from.clone()..).map_while(|(other, file)| Some((other.strip_prefix(&*from)?, file)));
        names.filter(|(name, file)| file.is_some() && !name.is_empty() && !name.contains(&b'/')).map(|(name, _)| name.into()).collect()
    }

    /// Marks everything sent as uncertain, so that it is sent again.
    pub fn invalidate(&mut self) {
        for file in self.paths.values_mut().flatten() {
            file.version = None;
        }
    }
}
