// SPDX-License-Identifier: MIT OR Apache-2.0
//! Export of a cell's memory as plain data, in steps.
//!
//! The export works on a clone of the memory: nothing in it changes, whatever happens to the cell, and its tables and pages stay
//! until it is released. So the bytes of a page can be copied without any lock.

use super::format::{ExtentKind, MemoryImage, MountImage, TreeImage, add};
use crate::limits::{EXPORT_STEP, STEP_PAGES};
use crate::memory::block::{Block, DiskId};
use crate::memory::frames::Frames;
use crate::memory::prefetch::{CellPage, PageAccess};
use crate::memory::spaces::{MountSource, SpaceSet};
use crate::memory::tree::{DecodedEntry, Lookup, TREE_PAGES, Tree, span};
use pando_abi::SpaceIndex;
use pando_abi::layout::SYSTEM_SLOT;
use pando_machine::FrameId;
use std::collections::HashMap;

/// The source of a content page's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PageSource {
    /// A frame, which is not written during the export.
    Frame(FrameId),
    /// A block of the disk that backs the cell.
    Block(Block),
}

/// The content pages found so far; each new one gets the next number.
#[derive(Debug, Default)]
struct Contents {
    numbers: HashMap<PageSource, u64>,
    /// Pages that were found since the last step.
    fresh: Vec<(u64, PageSource)>,
}

impl Contents {
    fn number(&mut self, source: PageSource) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(source).or_insert_with(|| {
            self.fresh.push((next, source));
            next
        })
    }
}

/// A memory export in progress.
#[derive(Debug)]
pub(crate) struct MemoryExport {
    memory: SpaceSet,
    attached: Vec<DiskId>,
    /// Pages that clones are expected to access, and how many of them are listed. Their contents come first, so that they are near each
    /// other in a file.
    expected: Vec<PageAccess>,
    listed: usize,
    /// The first page of the next tree.
    start: u64,
    /// The content of each tree so far.
    trees: Vec<TreeImage>,
    /// Position in the last of them.
    page: u64,
    contents: Contents,
}

impl MemoryExport {
    /// Begins to export `memory`, a clone without other users, without the first `reserved` pages of the system segment.
    pub(crate) fn new(memory: SpaceSet, reserved: u64) -> MemoryExport {
        let attached = memory.attached().map(|(disk, _)| disk).collect();
        let expected = memory.prefetch.trace().accesses;
        let (trees, contents) = (Vec::new(), Contents::default());
        MemoryExport { memory, attached, expected, listed: 0, start: reserved, trees, page: TREE_PAGES, contents }
    }

    /// Reserves capacity for the next step: without the lock, because all earlier pages may have to move.
    pub(crate) fn make_room(&mut self) {
        self.contents.numbers.reserve((EXPORT_STEP + STEP_PAGES) as usize);
    }

    /// Lists one step's pages. Returns the content pages that were found for the first time; `None`: all pages are listed.
    pub(crate) fn next_step(&mut self, frames: &Frames) -> Option<Vec<(u64, PageSource)>> {
        if self.listed < self.expected.len() {
            return Some(self.expected_step(frames));
        }
        let MemoryExport { memory, attached, start, trees, page, contents, .. } = self;
        let mut budget = EXPORT_STEP;
        let mut is_whole = true;
        for (index, tree) in memory.trees().enumerate().skip(trees.len().saturating_sub(1)) {
            if index == trees.len() {
                trees.push(TreeImage::new());
                *page = std::mem::take(start);
            }
            while *page < TREE_PAGES && budget > 0 {
                let next = list_entry(tree, frames, *page, attached, contents, &mut trees[index]);
                budget = budget.saturating_sub(next.1);
                *page = next.0;
            }
            if budget == 0 {
                is_whole = false;
                break;
            }
        }
        let fresh = std::mem::take(&mut contents.fresh);
        (!is_whole || !fresh.is_empty()).then_some(fresh)
    }

    /// Numbers the contents of one step's expected pages. Returns those that were found for the first time.
    fn expected_step(&mut self, frames: &Frames) -> Vec<(u64, PageSource)> {
        let end = self.expected.len().min(self.listed + EXPORT_STEP as usize);
        // The image has the reserved pages in another form. `start` is their number until a tree is listed.
        let is_reserved = |page: &CellPage| page.at.slot as usize == SYSTEM_SLOT && page.at.number < self.start;
        for PageAccess { page, .. } in self.expected[self.listed..end].iter().filter(|access| !is_reserved(&access.page)) {
            let tree = self.memory.tree(SpaceIndex(page.space), page.at.slot as usize);
            let source = tree.and_then(|tree| content_of(&tree.find(frames, page.at.number), frames, page.at.number, &self.attached));
            if let Some(source) = source {
                self.contents.number(source);
            }
        }
        self.listed = end;
        std::mem::take(&mut self.contents.fresh)
    }

    /// The image of all listed pages.
    pub(crate) fn image(&mut self) -> MemoryImage {
        let mut trees = std::mem::take(&mut self.trees).into_iter();
        let mut next = || trees.next().unwrap_or_default();
        let segments = self.memory.segments.iter().map(|segment| segment.as_ref().map(|_| next())).collect();
        let mut image_of = |source: &MountSource| match source {
            MountSource::Private(_) => MountImage::Private(next()),
            MountSource::Segment(index) => MountImage::Segment(index.0),
        };
        let spaces = self.memory.spaces.iter();
        let spaces = spaces.map(|space| {
            let mounts = &space.as_ref()?.mounts;
            Some(mounts.iter().map(|mount| (mount.slot as u32, image_of(&mount.source))).collect())
        });
        MemoryImage {
            current: self.memory.current().0,
            spaces: spaces.collect(),
            segments,
            disks: self.memory.attached().map(|(_, blocks)| blocks).collect(),
            contents: self.contents.numbers.len() as u64,
            prefetch_set: self.memory.prefetch.trace(),
        }
    }

    /// The disk that content blocks are on.
    pub(crate) fn backing(&self) -> Option<DiskId> {
        self.memory.backing()
    }

    /// Releases the clone.
    pub(crate) fn release(self, frames: &mut Frames) {
        self.memory.release(frames);
    }
}

/// The source of a page's bytes, if an image contains them.
fn content_of(found: &Lookup, frames: &Frames, page: u64, attached: &[DiskId]) -> Option<PageSource> {
    let frame = found.frame(page);
    let block = match found.decoded {
        DecodedEntry::Block { block, .. } => Some(block),
        _ => frame.and_then(|frame| frames.block_in(frame)),
    };
    match block {
        Some(block) if attached.contains(&block.disk) => None,
        Some(block) => Some(PageSource::Block(block)),
        None => frame.map(PageSource::Frame),
    }
}

/// Adds the content of `page` and of the pages behind it that the same entry covers. Returns the page behind them, and the cost.
fn list_entry(tree: &Tree, frames: &Frames, page: u64, attached: &[DiskId], contents: &mut Contents, image: &mut TreeImage) -> (u64, u64) {
    let found = tree.find(frames, page);
    let end = (page / span(found.level) + 1) * span(found.level);
    let Some(permissions) = found.permissions() else { return (end, 1) };
    let frame = found.frame(page);
    let block = match found.decoded {
        DecodedEntry::Block { block, .. } => Some(block),
        _ => frame.and_then(|frame| frames.block_in(frame)),
    };
    let disk = block.and_then(|block| attached.iter().position(|disk| *disk == block.disk).map(|disk| (disk as u32, block)));
    let kind = match (found.decoded, disk) {
        (DecodedEntry::Lazy { large, .. }, _) => ExtentKind::Lazy { large },
        (_, Some((disk, block))) => ExtentKind::Blocks { disk, first: block.number.0.into() },
        _ => {
            let end = end.min(page + STEP_PAGES);
            for (page, further) in (page..end).zip(0..) {
                let source = match (block, frame) {
                    (Some(block), _) => PageSource::Block(block.offset(further)),
                    (None, Some(frame)) => PageSource::Frame(frame.offset(further as u32)),
                    (None, None) => break,
                };
                let first = contents.number(source);
                add(image, page, 1, permissions, ExtentKind::Content { first });
            }
            return (end, end - page);
        }
    };
    add(image, page, end - page, permissions, kind);
    (end, 1)
}
