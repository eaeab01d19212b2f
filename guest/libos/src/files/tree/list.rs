// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists a directory: first the image's names in their order, without those removed in the overlay, then the overlay's own names in order
//! of addition.
//!
//! Positions stay valid across additions and removals: below [`ADDED`] a position is one of the image, from there on the number of a
//! name.

use super::directory::{Dentry, Directory};
use super::volume::ImageInode;
use super::{InodeRef, Tree};
use crate::erofs::{FileType, Position};
use crate::errno::Errno;
use crate::files::status::number_of;

/// The position of the first name that is not in the image.
const ADDED: u64 = 1 << 40;
/// The positions of `.` and `..` in a directory without an image, and their number.
const DOTS: u64 = 2;

/// A name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode number.
    pub number: u64,
    /// The file type; `None`: unknown without reading the inode.
    pub kind: Option<FileType>,
    /// The position after it.
    pub next: u64,
}

impl Tree {
    /// Passes the names from a position on to `take` until it returns `false`.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT`, `EIO`.
    pub fn list(&self, directory: InodeRef, position: u64, mut take: impl FnMut(DirectoryEntry<'_>) -> bool) -> Result<(), Errno> {
        match self.real_inode(directory) {
            InodeRef::Image(image) => self.list_below(image, None, position, &mut take).map(|_| ()),
            InodeRef::Node(id) => {
                let node = self.node(id)?;
                let overlay = node.directory()?;
                let mut position = position;
                if let Some(below) = overlay.below
                    && position < ADDED
                {
                    if !self.list_below(below, Some(overlay), position, &mut take)? {
                        return Ok(());
                    }
                    position = ADDED + DOTS;
                }
                self.list_added(directory, overlay, position.max(ADDED) - ADDED, &mut take)
            }
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Lists the image's names. Returns whether `take` wants more.
    fn list_below(
        &self,
        image: ImageInode,
        overlay: Option<&Directory>,
        position: u64,
        take: &mut impl FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<bool, Errno> {
        let volume = self.volume(image.volume)?;
        for entry in volume.image.directory(&volume.image.inode(image.nid)?)?.entries(Position(position)) {
            let entry = entry?;
            let dentry = overlay.map_or(Dentry::Unknown, |overlay| overlay.get(entry.name));
            let (number, kind) = match (dentry, overlay) {
                (Dentry::Whiteout, _) => continue,
                (Dentry::Positive(inode), _) => self.number_and_kind(inode)?,
                (Dentry::Unknown, Some(overlay)) if entry.name == b".." => self.number_and_kind(overlay.parent)?,
                (Dentry::Unknown, _) => (number_of(image.volume, &volume.image, entry.nid), entry.kind),
            };
            if !take(DirectoryEntry { name: entry.name, number, kind, next: entry.next.0 }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lists the names that only the overlay has, from this number on, after `.` and `..`.
    fn list_added(
        &self,
        directory: InodeRef,
        overlay: &Directory,
        from: u64,
        take: &mut impl FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        for (number, name, inode) in [(0, &b"."[..], directory), (1, b"..", overlay.parent)] {
            let dot = |(number_of, kind)| DirectoryEntry { name, number: number_of, kind, next: ADDED + number + 1 };
            if from <= number && !take(dot(self.number_and_kind(inode)?)) {
                return Ok(());
            }
        }
        for (number, name, inode) in overlay.added(from.saturating_sub(DOTS)) {
            let (number_of, kind) = self.number_and_kind(inode)?;
            if !take(DirectoryEntry { name, number: number_of, kind, next: ADDED + DOTS + number + 1 }) {
                break;
            }
        }
        Ok(())
    }

    fn number_and_kind(&self, inode: InodeRef) -> Result<(u64, Option<FileType>), Errno> {
        match self.real_inode(inode) {
            InodeRef::Image(image) => {
                let number = number_of(image.volume, &self.volume(image.volume)?.image, image.nid);
                Ok((number, Some(self.inode(image)?.kind)))
            }
            // The directory above one that was removed may be gone as well.
            InodeRef::Node(id) => Ok(self.node(id).map_or((0, None), |node| (node.number, Some(node.kind())))),
            InodeRef::Proc(entry) => Ok((entry.number(), Some(FileType::Directory))),
            InodeRef::Descriptor(_) => Ok((0, None)),
        }
    }

    /// Whether a directory has no names.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT`, `EIO`.
    pub fn is_empty(&self, directory: InodeRef) -> Result<bool, Errno> {
        let mut empty = true;
        self.list(directory, 0, |listed| {
            empty = matches!(listed.name, b"." | b"..");
            empty
        })?;
        Ok(empty)
    }
}
