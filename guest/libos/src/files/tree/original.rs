// SPDX-License-Identifier: MIT OR Apache-2.0
//! The original state of volumes, for comparison with the current one.

use super::node::NodeId;
use super::volume::ImagePlace;
use super::{InodeRef, Tree};
use crate::erofs::{FileType, Position};
use crate::errno::Errno;

impl Tree {
    /// The volume's file at a name in one of its directories.
    ///
    /// # Errors
    /// `EIO`.
    pub fn original(&self, directory: ImagePlace, name: &[u8]) -> Result<Option<ImagePlace>, Errno> {
        match self.lookup_below(directory, name) {
            Ok(InodeRef::Image(place)) => Ok(Some(place)),
            Ok(_) | Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The file type of a place in a volume, according to the volume.
    ///
    /// # Errors
    /// `EIO`.
    pub fn original_kind(&self, place: ImagePlace) -> Result<FileType, Errno> {
        Ok(self.inode(place)?.kind)
    }

    /// The names in one of a volume's directories, without `.` and `..`.
    ///
    /// # Errors
    /// `EIO`.
    pub fn original_names(&self, directory: ImagePlace, mut take: impl FnMut(&[u8])) -> Result<(), Errno> {
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
    pub fn made(&self) -> impl Iterator<Item = (ImagePlace, NodeId)> {
        self.made.iter().map(|(place, id)| (*place, *id))
    }
}
