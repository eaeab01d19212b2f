// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listing a directory: first what the image has and the overlay left, in the image's order, then what only the overlay has, in the order it came.
//!
//! A position says where to go on, and means the same whatever was added or removed meanwhile: below [`ADDED`] it is one of the image, from there on the number of a name.

use super::directory::{Directory, Known};
use super::volume::ImagePlace;
use super::{Place, Tree};
use crate::erofs::{FileType, Position};
use crate::errno::Errno;

/// The position of the first name that the image has not.
const ADDED: u64 = 1 << 40;
/// The positions of `.` and `..` where there is no image, and how many that are.
const DOTS: u64 = 2;

/// A name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode number.
    pub number: u64,
    /// What it leads to; `None`: nobody says without looking.
    pub kind: Option<FileType>,
    /// The position after it.
    pub next: u64,
}

impl Tree {
    /// Hands the names from a position on to `take` until it wants no more.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT`, `EIO`.
    pub fn list(&self, directory: Place, position: u64, mut take: impl FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        match self.settle(directory) {
            Place::Image(image) => self.list_below(image, None, position, &mut take).map(|_| ()),
            Place::Node(id) => {
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
            Place::Proc(_) | Place::Descriptor(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The names that the image has. Says whether `take` wants more.
    fn list_below(
        &self,
        image: ImagePlace,
        overlay: Option<&Directory>,
        position: u64,
        take: &mut impl FnMut(Listed<'_>) -> bool,
    ) -> Result<bool, Errno> {
        let volume = self.volume(image.volume)?;
        for entry in volume.image.directory(&volume.image.inode(image.nid)?)?.entries(Position(position)) {
            let entry = entry?;
            let known = overlay.map_or(Known::Nothing, |overlay| overlay.get(entry.name));
            let (number, kind) = match (known, overlay) {
                (Known::Gone, _) => continue,
                (Known::Leads(place), _) => self.number_and_kind(place)?,
                (Known::Nothing, Some(overlay)) if entry.name == b".." => self.number_and_kind(overlay.parent)?,
                (Known::Nothing, _) => (entry.nid.number(), entry.kind),
            };
            if !take(Listed { name: entry.name, number, kind, next: entry.next.0 }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The names that only the overlay has, from the one with this number on, after `.` and `..`.
    fn list_added(&self, directory: Place, overlay: &Directory, from: u64, take: &mut impl FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        for (number, name, place) in [(0, &b"."[..], directory), (1, b"..", overlay.parent)] {
            let dot = |(number_of, kind)| Listed { name, number: number_of, kind, next: ADDED + number + 1 };
            if from <= number && !take(dot(self.number_and_kind(place)?)) {
                return Ok(());
            }
        }
        for (number, name, place) in overlay.added(from.saturating_sub(DOTS)) {
            let (number_of, kind) = self.number_and_kind(place)?;
            if !take(Listed { name, number: number_of, kind, next: ADDED + DOTS + number + 1 }) {
                break;
            }
        }
        Ok(())
    }

    fn number_and_kind(&self, place: Place) -> Result<(u64, Option<FileType>), Errno> {
        match self.settle(place) {
            Place::Image(image) => Ok((image.nid.number(), Some(self.inode(image)?.kind))),
            // The directory above one that was removed may be gone as well.
            Place::Node(id) => Ok(self.node(id).map_or((0, None), |node| (node.number, Some(node.kind())))),
            Place::Proc(entry) => Ok((entry.number(), Some(FileType::Directory))),
            Place::Descriptor(_) => Ok((0, None)),
        }
    }

    /// Whether a directory has no names.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT`, `EIO`.
    pub fn is_empty(&self, directory: Place) -> Result<bool, Errno> {
        let mut empty = true;
        self.list(directory, 0, |listed| {
            empty = matches!(listed.name, b"." | b"..");
            empty
        })?;
        Ok(empty)
    }
}
