// SPDX-License-Identifier: MIT OR Apache-2.0
//! The original state of volumes, for comparison with the current one.

use super::node::NodeId;
use super::volume::ImageInode;
use super::{InodeRef, Tree};
use crate::erofs::{FileType, Position};
use crate::errno::Errno;

impl Tree {
    /// The volume's file at a name in one of its directories.
    ///
    /// # Errors
    /// `EIO`.
    pub fn original(&self, directory: ImageInode, name: &[u8]) -> Result<Option<ImageInode>, Errno> {
        match self.lookup_below(directory, name) {
            Ok(InodeRef::Image(inode)) => Ok(Some(inode)),
            Ok(_) | Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The file type of an inode in a volume, according to the volume.
    ///
    /// # Errors
    /// `EIO`.
    pub fn original_kind(&self, inode: ImageInode) -> Result<FileType, Errno> {
        Ok(self.inode(inode)?.kind)
    }

    /// The names in one of a volume's directories, without `.` and `..`.
    ///
    /// # Errors
    /// `EIO`.
    pub fn original_names(&self, directory: ImageInode, mut take: impl FnMut(&[u8])) -> Result<(), Errno> {
        let image = &self.volume(directory.volume)?.image;
        for entry in image.directory(&image.inode(directory.nid)?)?.entries(Position(0)) {
            let entry = entry?;
            if !matches!(entry.name, b"." | b"..") {
                take(entry.name);
            }
        }
        Ok(())
    }

    /// The inodes that became nodes.
    pub fn nodes_of_inodes(&self) -> impl Iterator<Item = (ImageInode, NodeId)> {
        self.nodes_of_inodes.iter().map(|(inode, id)| (*inode, *id))
    }
}
