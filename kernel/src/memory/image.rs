// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's memory as plain data: no frames, no addresses of this process, no names of this kernel's disks.
//!
//! Who makes one lists what trees hold ([`super::listing`]). One that comes from a file is a claim: [`MemoryImage::check`] makes every check, and building it can then fail for want of memory only.

use super::lesson::Lesson;
use super::spaces::can_hold_segment;
use super::tree::TREE_PAGES;
use pando_abi::layout::{SLOT_SIZE, SLOTS, SYSTEM_SLOT, USER_END, USER_START};
use pando_abi::limits::{MAX_DISKS, MAX_MOUNTS, MAX_SEGMENTS, MAX_SPACES};
use pando_abi::{PAGE_SIZE, Permissions};
use serde::{Deserialize, Serialize};

/// Why no cell can be made of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadImage(pub(crate) &'static str);

/// What the pages of an extent are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Zero memory that is made when it is touched.
    Lazy { large: bool },
    /// Blocks of an attached disk, from this one on.
    Blocks { disk: u32, first: u64 },
    /// Pages whose bytes stand elsewhere, from this number on.
    Content { first: u64 },
}

impl Kind {
    /// What lies `pages` further on in the same extent.
    fn further(self, pages: u64) -> Kind {
        match self {
            Kind::Lazy { .. } => self,
            Kind::Blocks { disk, first } => Kind::Blocks { disk, first: first + pages },
            Kind::Content { first } => Kind::Content { first: first + pages },
        }
    }
}

/// Pages of a tree that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) first: u64,
    pub(crate) count: u64,
    permissions: u8,
    pub(crate) kind: Kind,
}

impl Extent {
    pub(super) fn permissions(&self) -> Option<Permissions> {
        Permissions::from_bits(self.permissions.into())
    }
}

/// What a tree holds, in order.
pub(crate) type TreeImage = Vec<Extent>;

/// Adds pages behind all that an image holds.
pub(super) fn add(image: &mut TreeImage, first: u64, count: u64, permissions: Permissions, kind: Kind) {
    let permissions = permissions.bits() as u8;
    match image.last_mut() {
        Some(last) if last.first + last.count == first && last.permissions == permissions && last.kind.further(last.count) == kind => {
            last.count += count;
        }
        _ => image.push(Extent { first, count, permissions, kind }),
    }
}

/// What a space mounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PartImage {
    Private(TreeImage),
    Segment(u32),
}

/// All spaces and segments of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryImage {
    pub(crate) current: u32,
    /// How many blocks each attached disk has.
    pub(crate) disks: Vec<u64>,
    /// How many pages of content there are.
    pub(crate) contents: u64,
    pub(crate) segments: Vec<Option<TreeImage>>,
    /// Each part with its slot.
    pub(crate) spaces: Vec<Option<Vec<(u32, PartImage)>>>,
    /// What clones are expected to touch.
    pub(crate) expected: Lesson,
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), BadImage> {
    if holds { Ok(()) } else { Err(BadImage(otherwise)) }
}

impl MemoryImage {
    /// Checks that a cell could have made this. `kept`: pages at the start of the system segment that are no part of an image. O(extents).
    ///
    /// # Errors
    /// It could not.
    pub(crate) fn check(&self, kept: u64) -> Result<(), BadImage> {
        ensure(self.segments.len() <= MAX_SEGMENTS as usize, "it has too many segments")?;
        ensure(self.spaces.len() <= MAX_SPACES as usize, "it has too many spaces")?;
        ensure(self.disks.len() <= MAX_DISKS as usize, "it has too many disks")?;
        ensure(self.disks.iter().chain([&self.contents]).all(|blocks| *blocks <= u32::MAX.into()), "a disk has too many blocks")?;
        ensure(self.spaces.get(self.current as usize).is_some_and(Option::is_some), "its running space is missing")?;
        ensure(self.segments.first().is_some_and(Option::is_some), "the system segment is missing")?;
        let mounts: usize = self.spaces.iter().flatten().map(Vec::len).sum();
        ensure(mounts <= MAX_MOUNTS as usize, "its spaces mount too much")?;
        ensure(self.expected.is_possible(), "it expects what no clone can touch")?;
        for (index, segment) in self.segments.iter().enumerate() {
            let start = if index == 0 { kept } else { 0 };
            self.check_tree(segment.as_deref().unwrap_or_default(), start, TREE_PAGES)?;
        }
        self.spaces.iter().flatten().try_for_each(|space| self.check_space(space))
    }

    fn check_space(&self, space: &[(u32, PartImage)]) -> Result<(), BadImage> {
        let mut taken = [false; SLOTS];
        for (slot, part) in space {
            let place = taken.get_mut(*slot as usize).ok_or(BadImage("a slot is none that cells have"))?;
            ensure(!std::mem::replace(place, true), "two parts of a space lie in one slot")?;
            let is_system = *slot as usize == SYSTEM_SLOT;
            match part {
                PartImage::Segment(segment) => {
                    ensure(self.segments.get(*segment as usize).is_some_and(Option::is_some), "a mounted segment is missing")?;
                    ensure(is_system == (*segment == 0), "the system segment is not where it belongs")?;
                    ensure(can_hold_segment(*slot as usize), "a segment is mounted where none can be")?;
                }
                PartImage::Private(tree) => {
                    ensure(!is_system, "the system segment is not where it belongs")?;
                    let within = |address: u64| address.saturating_sub(u64::from(*slot) * SLOT_SIZE) / PAGE_SIZE;
                    self.check_tree(tree, within(USER_START), within(USER_END).min(TREE_PAGES))?;
                }
            }
        }
        ensure(taken[SYSTEM_SLOT], "the system segment is not where it belongs")
    }

    fn check_tree(&self, tree: &[Extent], start: u64, end: u64) -> Result<(), BadImage> {
        let mut free = start;
        for extent in tree {
            let behind = extent.first.checked_add(extent.count).filter(|behind| extent.count > 0 && extent.first >= free && *behind <= end);
            free = behind.ok_or(BadImage("memory lies where none can"))?;
            ensure(extent.permissions().is_some(), "memory has permissions that do not exist")?;
            let (first, room) = match extent.kind {
                Kind::Lazy { .. } => continue,
                Kind::Blocks { disk, first } => (first, *self.disks.get(disk as usize).ok_or(BadImage("a mapped disk is not attached"))?),
                Kind::Content { first } => (first, self.contents),
            };
            let is_there = first.checked_add(extent.count).is_some_and(|behind| behind <= room);
            ensure(is_there, "memory holds blocks that its disk does not have")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Extent, Kind, MemoryImage, PartImage, TREE_PAGES};
    use pando_abi::layout::{SLOTS, SYSTEM_SLOT};

    /// An image with one more part than every cell has, in a slot.
    fn with(slot: usize, part: PartImage) -> MemoryImage {
        let system = (SYSTEM_SLOT as u32, PartImage::Segment(0));
        MemoryImage {
            segments: vec![Some(Vec::new()), Some(Vec::new())],
            spaces: vec![Some(vec![system, (slot as u32, part)])],
            ..MemoryImage::default()
        }
    }

    fn page(number: u64) -> PartImage {
        PartImage::Private(vec![Extent { first: number, count: 1, permissions: 3, kind: Kind::Lazy { large: false } }])
    }

    #[test]
    fn nothing_lies_at_the_edges_of_what_cells_own() {
        let good = [
            (0, page(16)),
            (1, page(0)),
            (SLOTS - 1, page(TREE_PAGES - 2)),
            (1, PartImage::Segment(1)),
            (SLOTS - 3, PartImage::Segment(1)),
        ];
        for (slot, part) in good {
            assert_eq!(with(slot, part.clone()).check(0), Ok(()), "{part:?} in slot {slot}");
        }
        let bad = [
            (0, page(0)),
            (0, page(2)),
            (0, page(15)),
            (SLOTS - 1, page(TREE_PAGES - 1)),
            (0, PartImage::Segment(1)),
            (SLOTS - 1, PartImage::Segment(1)),
        ];
        for (slot, part) in bad {
            assert!(with(slot, part.clone()).check(0).is_err(), "{part:?} in slot {slot}");
        }
    }
}
