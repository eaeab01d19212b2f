// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listing what a cell's memory holds, in pieces, as plain data.
//!
//! What is listed is a clone of the memory: nothing in it changes whatever becomes of the cell, and its tables and pages stay until it is released. So the bytes of a page can be copied without any lock.

use super::block::{Block, DiskId};
use super::entry::View;
use super::frames::Frames;
use super::image::{Kind, MemoryImage, PartImage, TreeImage, add};
use super::space::Part;
use super::spaces::SpaceSet;
use super::tree::{TREE_PAGES, Tree, span};
use crate::limits::{LISTING_PIECE, PIECE_PAGES};
use pando_machine::FrameId;
use std::collections::HashMap;

/// Where the bytes of a page of content are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// In a frame, which nobody writes while the listing has it.
    Frame(FrameId),
    /// In a block of the disk that backs the cell.
    Block(Block),
}

/// The pages of content that were met so far; each that is met the first time gets the next number.
#[derive(Debug, Default)]
struct Contents {
    numbers: HashMap<Source, u64>,
    /// Those that are new since somebody last looked.
    fresh: Vec<(u64, Source)>,
}

impl Contents {
    fn number(&mut self, source: Source) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(source).or_insert_with(|| {
            self.fresh.push((next, source));
            next
        })
    }
}

/// Memory that is being listed, and how far.
#[derive(Debug)]
pub(crate) struct Listing {
    memory: SpaceSet,
    attached: Vec<DiskId>,
    /// The first page of the next tree.
    start: u64,
    /// What is known of each tree so far.
    trees: Vec<TreeImage>,
    /// Where the last of them goes on.
    page: u64,
    contents: Contents,
}

impl Listing {
    /// Begins to list `memory`, a clone that nobody else has, without the first `kept` pages of the system segment.
    pub(crate) fn new(memory: SpaceSet, kept: u64) -> Listing {
        let attached = memory.attached().map(|(disk, _)| disk).collect();
        Listing { memory, attached, start: kept, trees: Vec::new(), page: TREE_PAGES, contents: Contents::default() }
    }

    /// Makes room for what the next piece can meet: without the lock, because all that was met before may have to move.
    pub(crate) fn make_room(&mut self) {
        self.contents.numbers.reserve((LISTING_PIECE + PIECE_PAGES) as usize);
    }

    /// Lists a piece. The result is the content that was met for the first time; `None`: all is listed.
    pub(crate) fn piece(&mut self, frames: &Frames) -> Option<Vec<(u64, Source)>> {
        let Listing { memory, attached, start, trees, page, contents } = self;
        let mut budget = LISTING_PIECE;
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

    /// The image of all that was listed.
    pub(crate) fn image(&mut self) -> MemoryImage {
        let mut trees = std::mem::take(&mut self.trees).into_iter();
        let mut next = || trees.next().unwrap_or_default();
        let segments = self.memory.segments.iter().map(|segment| segment.as_ref().map(|_| next())).collect();
        let mut part = |part: &Part| match part {
            Part::Private(_) => PartImage::Private(next()),
            Part::Segment(index) => PartImage::Segment(index.0),
        };
        let spaces = self.memory.spaces.iter();
        let spaces = spaces.map(|space| {
            let mounts = &space.as_ref()?.mounts;
            Some(mounts.iter().map(|mount| (mount.slot as u32, part(&mount.part))).collect())
        });
        MemoryImage {
            current: self.memory.current().0,
            spaces: spaces.collect(),
            segments,
            disks: self.memory.attached().map(|(_, blocks)| blocks).collect(),
            contents: self.contents.numbers.len() as u64,
            expected: self.memory.foreseen.lesson(),
        }
    }

    /// The disk that blocks of content are on.
    pub(crate) fn backing(&self) -> Option<DiskId> {
        self.memory.backing
    }

    /// Lets the clone go.
    pub(crate) fn release(self, frames: &mut Frames) {
        self.memory.release(frames);
    }
}

/// Adds what `page` and those behind it hold, as far as one entry says it. Returns the page behind them, and how much work it was.
fn list_entry(tree: &Tree, frames: &Frames, page: u64, attached: &[DiskId], contents: &mut Contents, image: &mut TreeImage) -> (u64, u64) {
    let found = tree.find(frames, page);
    let end = (page / span(found.level) + 1) * span(found.level);
    let Some(permissions) = found.permissions() else { return (end, 1) };
    let frame = found.frame(page);
    let block = match found.view {
        View::Block { block, .. } => Some(block),
        _ => frame.and_then(|frame| frames.block_in(frame)),
    };
    let disk = block.and_then(|block| attached.iter().position(|disk| *disk == block.disk).map(|disk| (disk as u32, block)));
    let kind = match (found.view, disk) {
        (View::Lazy { large, .. }, _) => Kind::Lazy { large },
        (_, Some((disk, block))) => Kind::Blocks { disk, first: block.number.0.into() },
        _ => {
            let end = end.min(page + PIECE_PAGES);
            for (page, further) in (page..end).zip(0..) {
                let source = match (block, frame) {
                    (Some(block), _) => Source::Block(block.further(further)),
                    (None, Some(frame)) => Source::Frame(frame.offset(further as u32)),
                    (None, None) => break,
                };
                let first = contents.number(source);
                add(image, page, 1, permissions, Kind::Content { first });
            }
            return (end, end - page);
        }
    };
    add(image, page, end - page, permissions, kind);
    (end, 1)
}
