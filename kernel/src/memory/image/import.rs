// SPDX-License-Identifier: MIT OR Apache-2.0
//! Import of a cell's memory from a checked image. It reads no pages and allocates only tables.

use super::format::{ExtentKind, MemoryImage, MountImage, PageExtent};
use crate::limits::IMPORT_STEP;
use crate::memory::block::{Block, DiskId};
use crate::memory::frames::{Frames, Shortage};
use crate::memory::spaces::{MountSource, Segment, Space, SpaceSet};
use crate::memory::tree::{Entry, Tree};
use pando_abi::{BlockNumber, Permissions, SegmentIndex, SpaceIndex};

impl SpaceSet {
    /// Creates the spaces and segments of an image in a new set, all empty except the system segment, which exists already; content
    /// will be blocks of `backing`, if there is one. O(mounts + segments).
    pub(crate) fn build_spaces(&mut self, frames: &mut Frames, image: &MemoryImage, backing: Option<DiskId>) {
        for space in &mut self.spaces {
            if let Some(mut space) = space.take() {
                space.forget_root(frames);
            }
        }
        let mut mounts = vec![0; image.segments.len()];
        self.spaces.clear();
        for space in &image.spaces {
            self.spaces.push(space.as_ref().map(|mounts_of_space| {
                let mut space = Space::default();
                for (slot, image) in mounts_of_space {
                    let source = match image {
                        MountImage::Private(_) => MountSource::Private(Tree::default()),
                        MountImage::Segment(index) => {
                            mounts[*index as usize] += 1;
                            MountSource::Segment(SegmentIndex(*index))
                        }
                    };
                    space.mount(frames, *slot as usize, source);
                }
                space
            }));
        }
        let mut old = std::mem::take(&mut self.segments).into_iter().flatten();
        for (segment, mounts) in image.segments.iter().zip(mounts) {
            self.segments.push(segment.as_ref().map(|_| Segment { mounts, ..old.next().unwrap_or_default() }));
        }
        self.current = SpaceIndex(image.current);
        if let Some(backing) = backing {
            self.set_backing(backing);
        }
    }

    /// Maps some of the extents of an image's tree, and removes them from the front.
    ///
    /// # Errors
    /// Not enough memory for tables; the extents that are left show the progress.
    pub(crate) fn import_step(&mut self, frames: &mut Frames, tree: usize, extents: &mut &[PageExtent]) -> Result<(), Shortage> {
        let account = self.account();
        let attached: Vec<DiskId> = self.attached().map(|(disk, _)| disk).collect();
        let backing = self.backing();
        let Some(tree) = self.trees_mut().nth(tree) else { return Ok(()) };
        for _ in 0..IMPORT_STEP {
            let Some((extent, rest)) = extents.split_first() else { break };
            let permissions = extent.permissions().unwrap_or_default();
            let entry = match extent.kind {
                ExtentKind::Lazy { large } => Entry::lazy(permissions, large),
                ExtentKind::Blocks { disk, first } => block(attached.get(disk as usize).copied(), first, permissions),
                ExtentKind::Content { first } => block(backing, first, permissions),
            };
            tree.replace(frames, account, extent.first..extent.first + extent.count, entry)?;
            *extents = rest;
        }
        Ok(())
    }
}

fn block(disk: Option<DiskId>, first: u64, permissions: Permissions) -> Entry {
    disk.map_or(Entry::EMPTY, |disk| Entry::block(Block { disk, number: BlockNumber(first as u32) }, permissions))
}
