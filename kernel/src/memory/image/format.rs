// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's memory as plain data: no frames, no addresses of this process, no identifiers of this kernel's disks.
//!
//! An [export](super::export) creates it from trees. An image from a file is not trusted: [`MemoryImage::check`] makes every
//! check, and building the memory can then fail only for want of memory.

use crate::memory::prefetch::TrainingTrace;
use crate::memory::spaces::can_hold_segment;
use crate::memory::tree::TREE_PAGES;
use pando_abi::layout::{SLOT_SIZE, SLOTS, SYSTEM_SLOT, USER_END, USER_START};
use pando_abi::limits::{MAX_DISKS, MAX_MOUNTS, MAX_SEGMENTS, MAX_SPACES};
use pando_abi::{PAGE_SIZE, Permissions};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Why no cell can be made from an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadImage(pub(crate) &'static str);

/// The content of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExtentKind {
    /// Zero memory that is made present on access.
    Lazy { large: bool },
    /// Blocks of an attached disk, from this one on.
    Blocks { disk: u32, first: u64 },
    /// Pages whose bytes are stored separately, from this number on.
    Content { first: u64 },
}

impl ExtentKind {
    /// The content `pages` pages later in the same extent.
    fn offset(self, pages: u64) -> ExtentKind {
        match self {
            ExtentKind::Lazy { .. } => self,
            ExtentKind::Blocks { disk, first } => ExtentKind::Blocks { disk, first: first + pages },
            ExtentKind::Content { first } => ExtentKind::Content { first: first + pages },
        }
    }
}

/// Consecutive pages of a tree with the same kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageExtent {
    pub(crate) first: u64,
    pub(crate) count: u64,
    permissions: u8,
    pub(crate) kind: ExtentKind,
}

impl PageExtent {
    pub(in crate::memory) fn permissions(&self) -> Option<Permissions> {
        Permissions::from_bits(self.permissions.into())
    }
}

/// The content of a tree, in order.
pub(crate) type TreeImage = Vec<PageExtent>;

/// Appends pages to an image of a tree, to its last extent if they continue it.
pub(in crate::memory) fn add(image: &mut TreeImage, first: u64, count: u64, permissions: Permissions, kind: ExtentKind) {
    let permissions = permissions.bits() as u8;
    match image.last_mut() {
        Some(last) if last.first + last.count == first && last.permissions == permissions && last.kind.offset(last.count) == kind => {
            last.count += count;
        }
        _ => image.push(PageExtent { first, count, permissions, kind }),
    }
}

/// The memory that a space maps in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MountImage {
    Private(TreeImage),
    Segment(u32),
}

/// All spaces and segments of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryImage {
    pub(crate) current: u32,
    /// Number of blocks of each attached disk.
    pub(crate) disks: Vec<u64>,
    /// Number of content pages.
    pub(crate) contents: u64,
    pub(crate) segments: Vec<Option<TreeImage>>,
    /// The mounts of each space, with their slots.
    pub(crate) spaces: Vec<Option<Vec<(u32, MountImage)>>>,
    /// A training trace with the prefetch set for clones.
    pub(crate) prefetch_set: TrainingTrace,
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), BadImage> {
    if holds { Ok(()) } else { Err(BadImage(otherwise)) }
}

impl MemoryImage {
    /// The trees, in the order in which a set of spaces has them.
    pub(crate) fn trees(&self) -> impl Iterator<Item = &TreeImage> {
        let private = self.spaces.iter().flatten().flatten();
        let private = private.filter_map(|(_, mount)| if let MountImage::Private(tree) = mount { Some(tree) } else { None });
        self.segments.iter().flatten().chain(private)
    }

    /// The mapped blocks of an attached disk, but not those of a mapping of the whole disk.
    pub(crate) fn mapped_blocks(&self, disk: usize) -> Vec<Range<u64>> {
        let ranges = self.trees().flatten().filter_map(|extent| match extent.kind {
            ExtentKind::Blocks { disk: of, first } if of as usize == disk && first != extent.first => Some(first..first + extent.count),
            _ => None,
        });
        ranges.collect()
    }

    /// Checks that a cell could have this memory. `reserved`: pages at the start of the system segment that are not part of an image.
    /// O(extents).
    ///
    /// # Errors
    /// No cell can have this memory.
    pub(crate) fn check(&self, reserved: u64) -> Result<(), BadImage> {
        ensure(self.segments.len() <= MAX_SEGMENTS as usize, "it has too many segments")?;
        ensure(self.spaces.len() <= MAX_SPACES as usize, "it has too many spaces")?;
        ensure(self.disks.len() <= MAX_DISKS as usize, "it has too many disks")?;
        ensure(self.disks.iter().chain([&self.contents]).all(|blocks| *blocks <= u32::MAX.into()), "a disk has too many blocks")?;
        ensure(self.spaces.get(self.current as usize).is_some_and(Option::is_some), "its running space is missing")?;
        ensure(self.segments.first().is_some_and(Option::is_some), "the system segment is missing")?;
        let mounts: usize = self.spaces.iter().flatten().map(Vec::len).sum();
        ensure(mounts <= MAX_MOUNTS as usize, "its spaces have too many mounts")?;
        ensure(self.prefetch_set.is_possible(), "its prefetch set has pages that no clone can access")?;
        for (index, segment) in self.segments.iter().enumerate() {
            let start = if index == 0 { reserved } else { 0 };
            self.check_tree(segment.as_deref().unwrap_or_default(), start, TREE_PAGES)?;
        }
        self.spaces.iter().flatten().try_for_each(|space| self.check_space(space))
    }

    fn check_space(&self, space: &[(u32, MountImage)]) -> Result<(), BadImage> {
        let mut taken = [false; SLOTS];
        for (slot, mount) in space {
            let place = taken.get_mut(*slot as usize).ok_or(BadImage("a slot is out of range"))?;
            ensure(!std::mem::replace(place, true), "two mounts of a space are in the same slot")?;
            let is_system = *slot as usize == SYSTEM_SLOT;
            match mount {
                MountImage::Segment(segment) => {
                    ensure(self.segments.get(*segment as usize).is_some_and(Option::is_some), "a mounted segment is missing")?;
                    ensure(is_system == (*segment == 0), "the system segment is not mounted in its own slot")?;
                    ensure(can_hold_segment(*slot as usize), "a segment is mounted in a slot that cannot hold one")?;
                }
                MountImage::Private(tree) => {
                    ensure(!is_system, "the system segment is not mounted in its own slot")?;
                    let within = |address: u64| address.saturating_sub(u64::from(*slot) * SLOT_SIZE) / PAGE_SIZE;
                    self.check_tree(tree, within(USER_START), within(USER_END).min(TREE_PAGES))?;
                }
            }
        }
        ensure(taken[SYSTEM_SLOT], "the system segment is not mounted in its own slot")
    }

    fn check_tree(&self, tree: &[PageExtent], start: u64, end: u64) -> Result<(), BadImage> {
        let mut free = start;
        for extent in tree {
            let behind = extent.first.checked_add(extent.count).filter(|behind| extent.count > 0 && extent.first >= free && *behind <= end);
            free = behind.ok_or(BadImage("an extent overlaps another, or is out of range"))?;
            ensure(extent.permissions().is_some(), "an extent has invalid permissions")?;
            let (first, room) = match extent.kind {
                ExtentKind::Lazy { .. } => continue,
                ExtentKind::Blocks { disk, first } => {
                    (first, *self.disks.get(disk as usize).ok_or(BadImage("a mapped disk is not attached"))?)
                }
                ExtentKind::Content { first } => (first, self.contents),
            };
            let is_there = first.checked_add(extent.count).is_some_and(|behind| behind <= room);
            ensure(is_there, "an extent has blocks beyond the end of its disk")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{ExtentKind, MemoryImage, MountImage, PageExtent, TREE_PAGES};
    use pando_abi::layout::{SLOTS, SYSTEM_SLOT};

    /// An image of the minimum of every cell, with one more mount in `slot`.
    fn with(slot: usize, mount: MountImage) -> MemoryImage {
        let system = (SYSTEM_SLOT as u32, MountImage::Segment(0));
        MemoryImage {
            segments: vec![Some(Vec::new()), Some(Vec::new())],
            spaces: vec![Some(vec![system, (slot as u32, mount)])],
            ..MemoryImage::default()
        }
    }

    fn page(number: u64) -> MountImage {
        MountImage::Private(vec![PageExtent { first: number, count: 1, permissions: 3, kind: ExtentKind::Lazy { large: false } }])
    }

    #[test]
    fn mounts_do_not_touch_the_edges_of_cell_memory() {
        let good = [
            (0, page(16)),
            (1, page(0)),
            (SLOTS - 1, page(TREE_PAGES - 2)),
            (1, MountImage::Segment(1)),
            (SLOTS - 3, MountImage::Segment(1)),
        ];
        for (slot, mount) in good {
            assert_eq!(with(slot, mount.clone()).check(0), Ok(()), "{mount:?} in slot {slot}");
        }
        let bad = [
            (0, page(0)),
            (0, page(2)),
            (0, page(15)),
            (SLOTS - 1, page(TREE_PAGES - 1)),
            (0, MountImage::Segment(1)),
            (SLOTS - 1, MountImage::Segment(1)),
        ];
        for (slot, mount) in bad {
            assert!(with(slot, mount.clone()).check(0).is_err(), "{mount:?} in slot {slot}");
        }
    }
}
