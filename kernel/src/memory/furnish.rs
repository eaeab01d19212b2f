// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building a cell's memory from an image that was checked: nothing is read, and what it takes is tables.

use super::block::{Block, DiskId};
use super::entry::Entry;
use super::frames::{Frames, Shortage};
use super::image::{Extent, Kind, MemoryImage, PartImage, TreeImage};
use super::space::{Part, Space};
use super::spaces::{Segment, SpaceSet};
use super::tree::Tree;
use crate::limits::FURNISHING_PIECE;
use pando_abi::{BlockNumber, Permissions, SegmentIndex, SpaceIndex};

/// The trees of an image, in the order in which a set has them.
pub(crate) fn trees(image: &MemoryImage) -> impl Iterator<Item = &TreeImage> {
    let private = image.spaces.iter().flatten().flatten();
    let private = private.filter_map(|(_, part)| if let PartImage::Private(tree) = part { Some(tree) } else { None });
    image.segments.iter().flatten().chain(private)
}

impl SpaceSet {
    /// Makes the spaces and segments of an image in a new set, all empty but the system segment, which is there already; content will be blocks of `backing`. O(mounts + segments).
    pub(crate) fn shape(&mut self, frames: &mut Frames, image: &MemoryImage, backing: DiskId) {
        for space in &mut self.spaces {
            if let Some(mut space) = space.take() {
                space.forget_root(frames);
            }
        }
        let mut mounts = vec![0; image.segments.len()];
        self.spaces.clear();
        for space in &image.spaces {
            self.spaces.push(space.as_ref().map(|parts| {
                let mut space = Space::default();
                for (slot, part) in parts {
                    let part = match part {
                        PartImage::Private(_) => Part::Private(Tree::default()),
                        PartImage::Segment(index) => {
                            mounts[*index as usize] += 1;
                            Part::Segment(SegmentIndex(*index))
                        }
                    };
                    space.mount(frames, *slot as usize, part);
                }
                space
            }));
        }
        let mut old = std::mem::take(&mut self.segments).into_iter().flatten();
        for (segment, mounts) in image.segments.iter().zip(mounts) {
            self.segments.push(segment.as_ref().map(|_| Segment { mounts, ..old.next().unwrap_or_default() }));
        }
        self.current = SpaceIndex(image.current);
        self.backing = Some(backing);
    }

    /// Puts some of the extents of an image's tree where they belong, and takes them off the front.
    ///
    /// # Errors
    /// Not enough memory for tables; the extents say how far it got.
    pub(crate) fn furnish_piece(&mut self, frames: &mut Frames, tree: usize, extents: &mut &[Extent]) -> Result<(), Shortage> {
        let account = self.account();
        let attached: Vec<DiskId> = self.attached().map(|(disk, _)| disk).collect();
        let backing = self.backing;
        let Some(tree) = self.trees().nth(tree) else { return Ok(()) };
        for _ in 0..FURNISHING_PIECE {
            let Some((extent, rest)) = extents.split_first() else { break };
            let permissions = extent.permissions().unwrap_or_default();
            let entry = match extent.kind {
                Kind::Lazy { large } => Entry::lazy(permissions, large),
                Kind::Blocks { disk, first } => block(attached.get(disk as usize).copied(), first, permissions),
                Kind::Content { first } => block(backing, first, permissions),
            };
            tree.set(frames, account, extent.first..extent.first + extent.count, entry)?;
            *extents = rest;
        }
        Ok(())
    }
}

fn block(disk: Option<DiskId>, first: u64, permissions: Permissions) -> Entry {
    disk.map_or(Entry::EMPTY, |disk| Entry::block(Block { disk, number: BlockNumber(first as u32) }, permissions))
}
