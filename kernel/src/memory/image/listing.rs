// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's memory as records, or its difference to the memory of another cell, which a parent reads to store the image of a child.
//!
//! A list has no state in the kernel: each step begins at a position that the caller gives. So neither memory may change meanwhile.

use super::tree_index::TreeIndex;
use crate::limits::{EXPORT_STEP, EXPORT_TREE};
use crate::memory::frames::Frames;
use crate::memory::spaces::SpaceSet;
use crate::memory::tree::{Comparison, DecodedEntry, Lookup, TREE_PAGES, Tree};
use pando_abi::Permissions;
use pando_abi::cell_image::{self, ExtentContent, ImageExtent, ImageRecord, TreeOrigin, TreePlace};

/// Bits of the page in a position. It is one more than the page; 0: the record of the tree comes first.
const PAGE_BITS: u32 = 28;

const _: () = assert!(TREE_PAGES + 1 < 1 << PAGE_BITS);

/// Lists some of a cell's memory, from a position on: at most `most` records, which is at least one. `reserved` is the number of pages at
/// the start of the system segment that are left out. Returns the records and the next position.
pub(crate) fn list_image(
    frames: &Frames,
    memory: &SpaceSet,
    base: Option<&SpaceSet>,
    (position, most): (u64, usize),
    reserved: u64,
) -> (Vec<ImageRecord>, u64) {
    let (own_trees, base_trees) = (TreeIndex::new(memory), base.map(TreeIndex::new));
    let (mut tree, mut page) = ((position >> PAGE_BITS) as u32, position & ((1 << PAGE_BITS) - 1));
    let (mut records, mut budget) = (Vec::new(), EXPORT_STEP);
    let empty = Tree::default();
    while budget > 0 && records.len() < most {
        let Some((place, own)) = own_trees.get(tree) else { return (records, cell_image::END) };
        let origin = own_trees.origin(tree, place, base_trees.as_ref());
        budget = budget.saturating_sub(EXPORT_TREE);
        if page == 0 {
            records.push(ImageRecord::Tree { place, origin });
            page = if place == TreePlace::Segment(0) { reserved + 1 } else { 1 };
            continue;
        }
        let other = match origin {
            TreeOrigin::Nothing => None,
            TreeOrigin::Base(number) => base_trees.as_ref().and_then(|base| base.get(number)),
            TreeOrigin::Own(number) => own_trees.get(number),
        };
        let other = other.map_or(&empty, |(_, tree)| tree);
        list_tree(frames, memory, (own, other), &mut page, (&mut records, most), &mut budget);
        if page > TREE_PAGES {
            (tree, page) = (tree + 1, 0);
        }
    }
    (records, u64::from(tree) << PAGE_BITS | page)
}

/// Lists some of a tree, from page `position - 1` on.
fn list_tree(
    frames: &Frames,
    memory: &SpaceSet,
    (own, base): (&Tree, &Tree),
    position: &mut u64,
    (records, most): (&mut Vec<ImageRecord>, usize),
    budget: &mut u64,
) {
    // The record before, if it is of this step.
    let mut run: Option<ImageExtent> = None;
    while *position <= TREE_PAGES && *budget > 0 {
        let first = *position - 1;
        let (comparison, end) = own.compare(frames, base, first);
        let end = end.min(TREE_PAGES);
        *budget -= 1;
        if let Comparison::Different { own, .. } = comparison {
            let extent = extent_of(frames, memory, &own, (first, end));
            match &mut run {
                Some(last) if continues(last, &extent) => last.count += extent.count,
                _ => {
                    records.extend(run.take().map(ImageRecord::Extent));
                    if records.len() >= most {
                        return;
                    }
                    run = Some(extent);
                }
            }
        }
        *position = end + 1;
    }
    records.extend(run.map(ImageRecord::Extent));
}

/// Whether an extent continues another one.
fn continues(last: &ImageExtent, next: &ImageExtent) -> bool {
    let is_adjacent = last.first + last.count == next.first && last.permissions == next.permissions;
    is_adjacent && last.content.offset(last.count) == next.content
}

/// The content of pages that one entry spans.
fn extent_of(frames: &Frames, memory: &SpaceSet, own: &Lookup, (first, end): (u64, u64)) -> ImageExtent {
    let block = match Tree::block_of(frames, own).map(|entry| entry.decode(1)) {
        Some(DecodedEntry::Block { block, .. }) => Some(block),
        _ => None,
    };
    let content = match (own.decoded, block) {
        // Of a disk that the cell cannot name, the bytes are listed.
        (_, Some(block)) => memory.address_of(block).map_or(ExtentContent::Pages, ExtentContent::Blocks),
        (DecodedEntry::Page { .. } | DecodedEntry::Block { .. }, None) => ExtentContent::Pages,
        (DecodedEntry::Lazy { large, .. }, None) => ExtentContent::Lazy { large },
        (DecodedEntry::Taken { number, .. }, None) => ExtentContent::Taken(number.0),
        (DecodedEntry::Empty | DecodedEntry::Table { .. }, None) => ExtentContent::Empty,
    };
    let permissions = own.permissions().unwrap_or(Permissions::NONE);
    ImageExtent { first, count: end - first, permissions, content }
}
