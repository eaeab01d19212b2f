// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of children: the memory of a child as records, which its parent lists by `image_list` and builds by `state_write`.
//!
//! A stream has a record for each tree of the child's memory, followed by the extents of that tree. Trees are numbered: those of segments
//! first, then the private ones of spaces, in the order of the mounts in the layout.

use crate::layout::{SLOT_SIZE, SLOTS};
use crate::{BlockAddress, Permissions};

/// Words of a record.
pub const RECORD_WORDS: usize = 4;
/// Bytes of a record.
pub const RECORD_BYTES: usize = RECORD_WORDS * 8;
/// The position behind the last record of a list.
pub const END: u64 = u64::MAX;
/// Words of 32 bits before the mounts in a layout: the running space, the number of spaces, and two with a bit for each segment.
pub const LAYOUT_WORDS: usize = 4;

const SEGMENT: u64 = 1 << 63;

/// The memory that a tree describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TreePlace {
    /// A segment.
    Segment(u32),
    /// Private memory in a slot of a space.
    Private {
        /// The space.
        space: u32,
        /// The slot.
        slot: u32,
    },
}

impl TreePlace {
    /// The place as a word.
    #[must_use]
    pub const fn bits(self) -> u64 {
        match self {
            TreePlace::Segment(index) => SEGMENT | index as u64,
            TreePlace::Private { space, slot } => space as u64 | (slot as u64) << 32,
        }
    }

    /// Decodes a word. `None`: it is no place, for example in a slot that no space has.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<TreePlace> {
        let low = bits as u32;
        let place = match bits & SEGMENT {
            0 => TreePlace::Private { space: low, slot: (bits >> 32) as u32 },
            _ => TreePlace::Segment(low),
        };
        let has_slot = !matches!(place, TreePlace::Private { slot, .. } if slot as usize >= SLOTS);
        (has_slot && place.bits() == bits).then_some(place)
    }
}

/// The tree whose content a tree has, but for the extents that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOrigin {
    /// An empty one.
    Nothing,
    /// A tree of the base, by its number.
    Base(u32),
    /// An earlier tree of the same cell, by its number.
    Own(u32),
}

/// The content of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentContent {
    /// Nothing is mapped.
    Empty,
    /// Zero memory that is made present on access.
    Lazy {
        /// Whether it becomes 2 MiB pages.
        large: bool,
    },
    /// Blocks of an attached disk, from this one on.
    Blocks(BlockAddress),
    /// Pages, whose bytes `read` copies.
    Pages,
    /// Pages that the parent has taken, with consecutive swap numbers from this one on.
    Taken(u32),
}

impl ExtentContent {
    /// The content `pages` pages later in the same extent.
    #[must_use]
    pub const fn offset(self, pages: u64) -> ExtentContent {
        match self {
            ExtentContent::Blocks(first) => ExtentContent::Blocks(BlockAddress::from_bits(first.bits().wrapping_add(pages))),
            ExtentContent::Taken(first) => ExtentContent::Taken(first.wrapping_add(pages as u32)),
            ExtentContent::Empty | ExtentContent::Lazy { .. } | ExtentContent::Pages => self,
        }
    }
}

/// Consecutive pages of a tree with the same kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageExtent {
    /// The first page, from the start of the slot.
    pub first: u64,
    /// Number of pages.
    pub count: u64,
    /// Access permissions of programs.
    pub permissions: Permissions,
    /// The content.
    pub content: ExtentContent,
}

/// A record of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRecord {
    /// The extents of this tree follow.
    Tree {
        /// The tree.
        place: TreePlace,
        /// The tree whose content it has.
        origin: TreeOrigin,
    },
    /// An extent of the last tree.
    Extent(ImageExtent),
}

impl ImageRecord {
    /// The record as words.
    #[must_use]
    pub fn to_words(self) -> [u64; RECORD_WORDS] {
        match self {
            ImageRecord::Tree { place, origin } => {
                let (kind, number) = match origin {
                    TreeOrigin::Nothing => (0, 0),
                    TreeOrigin::Base(number) => (1, number),
                    TreeOrigin::Own(number) => (2, number),
                };
                [0, place.bits(), kind, number.into()]
            }
            ImageRecord::Extent(ImageExtent { first, count, permissions, content }) => {
                let (kind, detail) = match content {
                    ExtentContent::Empty => (1, 0),
                    ExtentContent::Lazy { large } => (2, large.into()),
                    ExtentContent::Blocks(first) => (3, first.bits()),
                    ExtentContent::Pages => (4, 0),
                    ExtentContent::Taken(first) => (5, first.into()),
                };
                [kind | permissions.bits() << 8, first, count, detail]
            }
        }
    }

    /// Decodes words. `None`: no record has these.
    #[must_use]
    pub fn from_words(words: [u64; RECORD_WORDS]) -> Option<ImageRecord> {
        let [head, second, third, fourth] = words;
        let record = if head == 0 {
            let number = u32::try_from(fourth).ok()?;
            let origin = match third {
                0 => TreeOrigin::Nothing,
                1 => TreeOrigin::Base(number),
                2 => TreeOrigin::Own(number),
                _ => return None,
            };
            ImageRecord::Tree { place: TreePlace::from_bits(second)?, origin }
        } else {
            let content = match head as u8 {
                1 => ExtentContent::Empty,
                2 => ExtentContent::Lazy { large: fourth != 0 },
                3 => ExtentContent::Blocks(BlockAddress::from_bits(fourth)),
                4 => ExtentContent::Pages,
                5 => ExtentContent::Taken(fourth as u32),
                _ => return None,
            };
            let permissions = Permissions::from_bits(head >> 8)?;
            ImageRecord::Extent(ImageExtent { first: second, count: third, permissions, content })
        };
        (record.to_words() == words).then_some(record)
    }
}

/// A mount in a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutMount {
    /// The space.
    pub space: u32,
    /// The slot.
    pub slot: u32,
    /// The segment; `None`: private memory.
    pub segment: Option<u32>,
}

impl LayoutMount {
    const SPACE: u32 = 0x3ff;
    const SLOT: u32 = 0xff;

    /// The mount as a word.
    #[must_use]
    pub fn bits(self) -> u32 {
        let segment = self.segment.map_or(0, |segment| (segment & 0x7f) + 1);
        self.space & LayoutMount::SPACE | (self.slot & LayoutMount::SLOT) << 10 | segment << 18
    }

    /// Decodes a word. `None`: no mount has this.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<LayoutMount> {
        let segment = (bits >> 18 & 0xff).checked_sub(1);
        let mount = LayoutMount { space: bits & LayoutMount::SPACE, slot: bits >> 10 & LayoutMount::SLOT, segment };
        (mount.bits() == bits).then_some(mount)
    }

    /// The tree of private memory that it mounts.
    #[must_use]
    pub const fn private(self) -> Option<TreePlace> {
        match self.segment {
            None => Some(TreePlace::Private { space: self.space, slot: self.slot }),
            Some(_) => None,
        }
    }

    /// The address of the slot.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.slot as u64 * SLOT_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::{ExtentContent, ImageExtent, ImageRecord, LayoutMount, TreeOrigin, TreePlace};
    use crate::limits::{MAX_SEGMENTS, MAX_SPACES};
    use crate::{BlockAddress, BlockNumber, DiskIndex, Permissions, layout::SLOTS};

    #[test]
    fn records_decode_to_the_encoded_ones() {
        let block = BlockAddress { disk: DiskIndex(3), block: BlockNumber(u32::MAX - 1) };
        let contents = [
            ExtentContent::Empty,
            ExtentContent::Lazy { large: true },
            ExtentContent::Blocks(block),
            ExtentContent::Pages,
            ExtentContent::Taken(u32::MAX),
        ];
        let extents = contents
            .map(|content| ImageRecord::Extent(ImageExtent { first: 1 << 26, count: 5, permissions: Permissions::READ_WRITE, content }));
        let trees = [
            (TreePlace::Segment(63), TreeOrigin::Nothing),
            (TreePlace::Private { space: 1023, slot: 255 }, TreeOrigin::Base(7)),
            (TreePlace::Private { space: 0, slot: 0 }, TreeOrigin::Own(u32::MAX)),
        ];
        for record in extents.into_iter().chain(trees.map(|(place, origin)| ImageRecord::Tree { place, origin })) {
            assert_eq!(ImageRecord::from_words(record.to_words()), Some(record));
        }
        for words in [
            [6, 0, 1, 0],
            [1 | 8 << 8, 0, 1, 0],
            [2, 0, 1, 2],
            [0, 0, 3, 0],
            [0, 0, 0, 1],
            [5, 0, 1, 1 << 32],
            [6, (SLOTS as u64) << 32, 0, 0],
        ] {
            assert_eq!(ImageRecord::from_words(words), None, "{words:?}");
        }
    }

    #[test]
    fn mounts_decode_to_the_encoded_ones() {
        for segment in [None, Some(0), Some(MAX_SEGMENTS - 1)] {
            let mount = LayoutMount { space: MAX_SPACES - 1, slot: SLOTS as u32 - 1, segment };
            assert_eq!(LayoutMount::from_bits(mount.bits()), Some(mount));
        }
        assert_eq!(LayoutMount::from_bits(u32::MAX), None);
    }
}
