// SPDX-License-Identifier: MIT OR Apache-2.0
//! What volumes had, whatever has become of it: for who compares.

use super::node::NodeId;
use super::volume::ImagePlace;
use super::{Place, Tree};
use crate::erofs::{FileType, Position};
use crate::errno::Errno;

impl Tree {
    /// What a volume had at a name of one of its directories.
    ///
    /// # Errors
    /// `EIO`.
    pub fn original(&self, directory: ImagePlace, name: &[u8]) -> Result<Option<ImagePlace>, Errno> {
        match self.lookup_below(directory, name) {
            Ok(Place::Image(place)) => Ok(Some(place)),
            Ok(_) | Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What lies at a place of a volume, as the volume had it.
    ///
    /// # Errors
    /// `EIO`.
    pub fn original_kind(&self, place: ImagePlace) -> Result<FileType, Errno> {
        Ok(self.inode(place)?.kind)
    }

    /// The names that one of a volume's directories had, without `.` and `..`.
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
