// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of a cell: all of its state, and for each page of its memory where the content is.

use pando_abi::cell_image::{LAYOUT_WORDS, LayoutMount, TreePlace};
use pando_abi::holding_record::HOLDING_WORDS;
use pando_abi::watch::REASON_WORDS;
use pando_abi::{HoldingName, PAGE_SIZE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// The content of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredContent {
    /// Zeros.
    Lazy { large: bool },
    /// Blocks of a disk of the cell's root, from this address on.
    Blocks(u64),
    /// Pages in files of checkpoints, from this number on.
    Stored(u32),
    /// Pages that the parent of a nested cell has taken, from this number of the parent's on.
    Taken(u32),
}

impl StoredContent {
    fn offset(self, pages: u64) -> StoredContent {
        match self {
            StoredContent::Lazy { .. } => self,
            StoredContent::Blocks(first) => StoredContent::Blocks(first.wrapping_add(pages)),
            StoredContent::Stored(first) => StoredContent::Stored(first.wrapping_add(pages as u32)),
            StoredContent::Taken(first) => StoredContent::Taken(first.wrapping_add(pages as u32)),
        }
    }
}

/// Consecutive pages with the same kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredExtent {
    pub(super) count: u64,
    pub(super) permissions: u8,
    pub(super) content: StoredContent,
}

impl StoredExtent {
    /// The part of it from page `skipped` on.
    fn after(self, skipped: u64) -> StoredExtent {
        StoredExtent { count: self.count - skipped, content: self.content.offset(skipped), ..self }
    }
}

/// The extents of a tree, by their first pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TreeExtents(BTreeMap<u64, StoredExtent>);

impl TreeExtents {
    /// Replaces the content of pages. `None`: nothing is mapped there.
    pub(super) fn replace(&mut self, first: u64, count: u64, extent: Option<StoredExtent>) {
        let end = first.saturating_add(count);
        let before = self.0.range(..first).next_back().map(|(start, extent)| (*start, *extent));
        if let Some((start, old)) = before.filter(|(start, old)| start + old.count > first) {
            self.0.insert(start, StoredExtent { count: first - start, ..old });
            if start + old.count > end {
                self.0.insert(end, old.after(end - start));
            }
        }
        let covered: Vec<(u64, StoredExtent)> = self.0.range(first..end).map(|(start, extent)| (*start, *extent)).collect();
        for (start, old) in covered {
            self.0.remove(&start);
            if start + old.count > end {
                self.0.insert(end, old.after(end - start));
            }
        }
        let Some(extent) = extent else { return };
        // It may continue the one before.
        if let Some((start, last)) = self.0.range_mut(..first).next_back()
            && start + last.count == first
            && (last.permissions, last.content.offset(last.count)) == (extent.permissions, extent.content)
        {
            last.count += count;
            return;
        }
        self.0.insert(first, extent);
    }

    /// The extents in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, StoredExtent)> {
        self.0.iter().map(|(first, extent)| (*first, *extent))
    }

    /// Whether they are in order, do not overlap, and have no pages beyond a tree's.
    pub(super) fn is_sound(&self) -> bool {
        let mut free = 0;
        self.0.iter().all(|(first, extent)| {
            let end = first.checked_add(extent.count);
            let is_sound = extent.count > 0 && *first >= free && end.is_some_and(|end| end <= 1 << 27);
            free = end.unwrap_or(u64::MAX);
            is_sound
        })
    }
}

/// The image of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CellImage {
    /// Registers, virtual registers and rings: opaque bytes of the kernel.
    pub(super) state: Vec<u8>,
    /// Spaces and segments.
    pub(super) layout: Vec<u8>,
    /// The trees in the order of the layout, each with its place.
    pub(super) trees: Vec<(u64, TreeExtents)>,
}

impl CellImage {
    /// Whether its extents are possible.
    pub(super) fn is_sound(&self) -> bool {
        self.trees.iter().all(|(place, extents)| TreePlace::from_bits(*place).is_some() && extents.is_sound())
    }

    /// Whether it has one of these stored pages.
    pub(super) fn uses(&self, pages: Range<u32>) -> bool {
        if pages.is_empty() {
            return false;
        }
        let pages = u64::from(pages.start)..u64::from(pages.end);
        self.trees.iter().flat_map(|(_, extents)| extents.iter()).any(|(_, extent)| match extent.content {
            StoredContent::Stored(first) => u64::from(first) < pages.end && u64::from(first) + extent.count > pages.start,
            StoredContent::Lazy { .. } | StoredContent::Blocks(_) | StoredContent::Taken(_) => false,
        })
    }

    /// Number of pages with content in files.
    pub(super) fn stored_pages(&self) -> u64 {
        let extents = self.trees.iter().flat_map(|(_, extents)| extents.iter());
        extents.filter(|(_, extent)| matches!(extent.content, StoredContent::Stored(_))).map(|(_, extent)| extent.count).sum()
    }
}

/// The run state of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MemberRunState {
    /// It was not started.
    New,
    /// It runs, or waits.
    Started,
    /// It is halted for its parent, with this reason.
    Halted([u64; REASON_WORDS]),
}

/// The state of a cell of a family that its image does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberRecord {
    /// The names by which the cells from the program's on hold the next one. The program's cell has none.
    pub(super) path: Vec<u64>,
    pub(super) state: MemberRunState,
    /// Its table of holdings, as records.
    pub(super) holdings: Vec<[u64; HOLDING_WORDS]>,
    /// Unread bytes of its console: opaque parts of the kernel.
    pub(super) console: Vec<Vec<u8>>,
}

/// The image of a program: its cell, and all below it, parents before their children.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FamilyImage {
    pub(super) members: Vec<(MemberRecord, CellImage)>,
}

impl FamilyImage {
    /// Whether its extents are possible, and each cell comes after its parent. The kernel checks the rest.
    pub(super) fn is_sound(&self) -> bool {
        let is_placed = |index: usize, path: &[u64]| match path.split_last() {
            None => index == 0,
            Some((_, parent)) => self.members[..index].iter().any(|(member_record, _)| member_record.path == parent),
        };
        let mut members = self.members.iter().enumerate();
        !self.members.is_empty() && members.all(|(index, (member_record, image))| image.is_sound() && is_placed(index, &member_record.path))
    }

    /// Whether it has one of these stored pages.
    pub(super) fn uses(&self, pages: &Range<u32>) -> bool {
        self.members.iter().any(|(_, image)| image.uses(pages.clone()))
    }

    /// Number of pages with content in files.
    pub(super) fn stored_pages(&self) -> u64 {
        self.members.iter().map(|(_, image)| image.stored_pages()).sum()
    }

    /// All extents.
    pub(super) fn extents(&self) -> impl Iterator<Item = StoredExtent> {
        let trees = self.members.iter().flat_map(|(_, image)| &image.trees);
        trees.flat_map(|(_, extents)| extents.iter()).map(|(_, extent)| extent)
    }
}

/// The `space` argument and the address at which a page of a tree of a child is mapped. `None`: no space mounts the tree.
pub(super) fn mapped_at(child: HoldingName, layout: &[u8], place: TreePlace, page: u64) -> Option<(u64, u64)> {
    let (space, slot) = match place {
        TreePlace::Private { space, slot } => (space, slot),
        TreePlace::Segment(segment) => {
            let words = layout.as_chunks::<4>().0.iter().skip(LAYOUT_WORDS).map(|word| u32::from_le_bytes(*word));
            let mount = words.filter_map(LayoutMount::from_bits).find(|mount| mount.segment == Some(segment))?;
            (mount.space, mount.slot)
        }
    };
    Some((child.space(space), LayoutMount { space, slot, segment: None }.address() + page * PAGE_SIZE))
}

#[cfg(test)]
mod tests {
    use super::{CellImage, StoredContent, StoredExtent, TreeExtents};

    fn stored(count: u64, first: u32) -> StoredExtent {
        StoredExtent { count, permissions: 3, content: StoredContent::Stored(first) }
    }

    #[test]
    fn an_extent_replaces_parts_of_others() {
        let mut tree = TreeExtents::default();
        tree.replace(10, 10, Some(stored(10, 100)));
        tree.replace(20, 5, Some(stored(5, 110)));
        assert_eq!(tree.iter().collect::<Vec<_>>(), [(10, stored(15, 100))], "they are one extent");
        tree.replace(12, 2, Some(stored(2, 7)));
        assert_eq!(tree.iter().collect::<Vec<_>>(), [(10, stored(2, 100)), (12, stored(2, 7)), (14, stored(11, 104))]);
        tree.replace(11, 6, None);
        assert_eq!(tree.iter().collect::<Vec<_>>(), [(10, stored(1, 100)), (17, stored(8, 107))]);
        tree.replace(0, 30, Some(StoredExtent { content: StoredContent::Lazy { large: true }, ..stored(30, 0) }));
        assert_eq!(tree.iter().count(), 1);
        tree.replace(0, 30, None);
        assert!(tree.iter().next().is_none());
    }

    #[test]
    fn an_image_uses_the_files_whose_pages_it_has_and_none_without_pages() {
        let mut tree = TreeExtents::default();
        tree.replace(0, 10, Some(stored(10, 100)));
        let image = CellImage { trees: vec![(0, tree)], ..CellImage::default() };
        assert!(image.uses(90..101) && image.uses(109..120) && image.uses(104..105));
        assert!(!image.uses(90..100) && !image.uses(110..120));
        assert!(!image.uses(105..105), "a file without pages lies within an extent of pages of two other files");
    }

    #[test]
    fn any_order_of_replacements_gives_the_content_of_the_last_at_each_page() {
        // A model: the content of each page.
        let (mut model, mut tree, mut seed) = ([None; 64], TreeExtents::default(), 12345_u64);
        for round in 0..2000_u32 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (first, count) = ((seed >> 33) % 60, (seed >> 40) % 12 + 1);
            let count = count.min(64 - first);
            let extent = (seed >> 60 > 3).then(|| stored(count, round * 100));
            tree.replace(first, count, extent);
            for page in first..first + count {
                model[page as usize] = extent.map(|_| round * 100 + (page - first) as u32);
            }
            let mut found = [None; 64];
            for (first, extent) in tree.iter() {
                let StoredContent::Stored(number) = extent.content else { panic!("all are stored") };
                for page in 0..extent.count {
                    found[(first + page) as usize] = Some(number + page as u32);
                }
            }
            assert_eq!(found, model);
            assert!(tree.is_sound());
        }
    }
}
