// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of a cell that falls asleep: its memory as the difference to a base.
//!
//! The difference names, for each tree, the pages whose mapping or permissions differ, and the lines of 64 bytes that differ in private
//! pages. The pages are listed in steps under the lock. Their bytes are compared without it: the memory belongs to nobody else meanwhile,
//! and the base is a clone that never changes. The record leaves in chunks, which end between two steps.

use super::record::{DifferenceOperation, LINE, RecordWriter};
use super::tree_index::tree_origins;
use crate::limits::{COMPARED_PAGES, DIFFERENCE_STEP, PROTECTED_PAGES, RECORD_CHUNK};
use crate::memory::block::DiskId;
use crate::memory::frames::Frames;
use crate::memory::spaces::{MountSource, SpaceSet};
use crate::memory::tree::{Comparison, DecodedEntry, Entry, Lookup, TREE_PAGES, Tree};
use pando_abi::cell_image::TreeOrigin;
use pando_machine::{Arena, FRAME_SIZE, FRAMES_PER_HUGE_FRAME, FrameId};
use std::mem;
use std::ops::Range;

/// Most bytes of a page in a record, with its step.
const PAGE_BYTES: usize = FRAME_SIZE + 32;

/// A page whose bytes are to be compared.
#[derive(Clone, Copy, Debug)]
struct PagePair {
    page: u64,
    frame: FrameId,
    /// The page of the base; `None`: zeros.
    base: Option<FrameId>,
}

/// One step's pages, whose bytes are to be compared.
#[derive(Debug, Default)]
pub(crate) struct DifferenceStep {
    pairs: Vec<PagePair>,
    /// Number of pages that are written.
    done: usize,
    /// Pages of the registry among them, which are held meanwhile.
    held: Vec<FrameId>,
    /// Whether the tree is complete with them.
    ends_tree: bool,
}

/// The difference between the memory of a cell and its base, while it is written.
#[derive(Debug)]
pub(crate) struct MemoryDifference {
    memory: SpaceSet,
    /// A clone of the base. Its trees do not change.
    base: Option<SpaceSet>,
    origins: Vec<TreeOrigin>,
    /// The tree that is listed, and the next page in it.
    tree: usize,
    page: u64,
    /// The last change of mappings, which later pages may continue.
    run: Option<DifferenceOperation>,
    /// Pages of the registry that are held.
    held: Vec<FrameId>,
    /// Number of private pages that differ.
    pages: u64,
    /// Number of private pages, and of changes of mappings.
    compared: u64,
    steps: u64,
    /// The present chunk of the record.
    record: RecordWriter,
}

/// Why no difference is written: it would be too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DifferenceTooLarge;

impl MemoryDifference {
    /// Begins to write the difference of `memory`, which was detached from its cell, to a clone of its base.
    pub(crate) fn new(memory: SpaceSet, base: Option<SpaceSet>) -> MemoryDifference {
        let origins = tree_origins(&memory, base.as_ref());
        let mut record = RecordWriter::default();
        write_spaces(&memory, &mut record);
        MemoryDifference { memory, base, origins, tree: 0, page: 0, run: None, held: Vec::new(), pages: 0, compared: 0, steps: 0, record }
    }

    /// Lists one step's pages, in one tree. `None`: all are listed.
    pub(crate) fn next_step(&mut self, frames: &mut Frames) -> Option<DifferenceStep> {
        self.held.drain(..).for_each(|frame| frames.release(frame));
        let origin = *self.origins.get(self.tree)?;
        let MemoryDifference { memory, base, run, record, page, steps, .. } = self;
        let backing = memory.backing();
        let empty = Tree::default();
        let own = memory.trees().nth(self.tree)?;
        let other = match origin {
            TreeOrigin::Nothing => None,
            TreeOrigin::Base(index) => base.as_ref().and_then(|base| base.trees().nth(index as usize)),
            TreeOrigin::Own(index) => memory.trees().nth(index as usize),
        };
        if *page == 0 {
            record.origin(origin);
        }
        let mut piece = DifferenceStep::default();
        // A large page is not divided between pieces: its mapping would come back in parts, as small pages.
        let (mut left, mut is_within_large) = (DIFFERENCE_STEP, false);
        while *page < TREE_PAGES && (left > 0 || is_within_large) {
            left = left.saturating_sub(1);
            let (comparison, end) = own.compare(frames, other.unwrap_or(&empty), *page);
            let Comparison::Different { own, base } = comparison else {
                is_within_large = false;
                *page = end;
                continue;
            };
            // Present pages are listed one by one: each has its own bytes.
            let end = if matches!(own.decoded, DecodedEntry::Page { .. }) { *page + 1 } else { end.min(TREE_PAGES) };
            let (change, pair) = list(frames, *page..end, (&own, &base), backing, &mut piece.held);
            if let Some(change) = change {
                add(run, record, change);
                *steps += 1;
            }
            piece.pairs.extend(pair);
            *page = end;
            is_within_large =
                own.level > 1 && matches!(own.decoded, DecodedEntry::Page { .. }) && !end.is_multiple_of(u64::from(FRAMES_PER_HUGE_FRAME));
        }
        let ends_tree = *page >= TREE_PAGES;
        // The mappings of pages come before their bytes.
        if let Some(last) = run.take_if(|_| ends_tree || !piece.pairs.is_empty()) {
            record.push_operation(&last);
        }
        if ends_tree {
            piece.ends_tree = true;
            (self.tree, self.page) = (self.tree + 1, 0);
        }
        self.held.clone_from(&piece.held);
        Some(piece)
    }

    /// Writes the pages that a step listed, in the order listed: compares their bytes with those of the base. `false`: the chunk is full.
    /// Take it ([`Self::take_chunk`]), and write the rest.
    ///
    /// # Errors
    /// The difference is too large.
    pub(crate) fn write(&mut self, arena: &Arena, piece: &mut DifferenceStep) -> Result<bool, DifferenceTooLarge> {
        if self.steps > COMPARED_PAGES {
            return Err(DifferenceTooLarge);
        }
        // Changes of mappings without pages fill it, too.
        if self.record.bytes.len() > RECORD_CHUNK {
            return Ok(false);
        }
        while let Some(pair) = piece.pairs.get(piece.done) {
            if self.compared >= COMPARED_PAGES {
                return Err(DifferenceTooLarge);
            }
            if self.record.bytes.len() + PAGE_BYTES > RECORD_CHUNK {
                return Ok(false);
            }
            self.write_page(arena, pair);
            self.compared += 1;
            piece.done += 1;
        }
        if piece.ends_tree {
            self.record.push_operation(&DifferenceOperation::End);
        }
        Ok(true)
    }

    fn write_page(&mut self, arena: &Arena, pair: &PagePair) {
        let (mut own, mut base) = ([0; FRAME_SIZE], [0; FRAME_SIZE]);
        arena.read(pair.frame, 0, &mut own);
        if let Some(frame) = pair.base {
            arena.read(frame, 0, &mut base);
        }
        let lines = || own.chunks_exact(LINE).zip(base.chunks_exact(LINE)).enumerate().filter(|(_, (own, base))| own != base);
        let mask = lines().fold(0, |mask, (line, _)| mask | 1 << line);
        if mask != 0 {
            self.pages += 1;
            self.record.push_operation(&DifferenceOperation::Page { page: pair.page, mask });
            lines().for_each(|(_, (own, _))| self.record.bytes.extend(own));
        }
    }

    /// Takes the present chunk of the record, and begins the next: when it is full, and once all pages are written.
    pub(crate) fn take_chunk(&mut self) -> Vec<u8> {
        mem::take(&mut self.record.bytes)
    }

    /// Number of private pages that differ from the base: a cell that wakes up makes as many.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Releases the clone of the base, and returns the cell's memory.
    pub(crate) fn finish(self, frames: &mut Frames) -> SpaceSet {
        self.held.into_iter().for_each(|frame| frames.release(frame));
        if let Some(base) = self.base {
            base.release(frames);
        }
        self.memory
    }
}

/// The change of mappings that pages need before their bytes are written, and their bytes if they are a present private page.
fn list(
    frames: &mut Frames,
    pages: Range<u64>,
    (own, base): (&Lookup, &Lookup),
    backing: Option<DiskId>,
    held: &mut Vec<FrameId>,
) -> (Option<DifferenceOperation>, Option<PagePair>) {
    let (first, count) = (pages.start, pages.end - pages.start);
    let replace = |entry: Entry| Some(DifferenceOperation::Replace { first, count, entry: entry.0 });
    if let Some(block) = Tree::block_of(frames, own) {
        return (replace(block), None);
    }
    let permissions = match own.decoded {
        DecodedEntry::Page { permissions, .. } => permissions,
        DecodedEntry::Lazy { permissions, large } => return (replace(Entry::lazy(permissions, large)), None),
        DecodedEntry::Taken { number, permissions } => return (replace(Entry::taken(number, permissions)), None),
        DecodedEntry::Empty | DecodedEntry::Block { .. } | DecodedEntry::Table { .. } => return (replace(Entry::EMPTY), None),
    };
    let Some(frame) = own.frame(first) else { return (None, None) };
    // A block of the host's files may have changed when it is read again. Those of a template's own file do not.
    let may_change = Tree::block_of(frames, base)
        .is_some_and(|entry| !matches!(entry.decode(1), DecodedEntry::Block { block, .. } if Some(block.disk) == backing));
    let below = match base.decoded {
        _ if may_change => None,
        DecodedEntry::Page { .. } => base.frame(first),
        // The block may be given up meanwhile.
        DecodedEntry::Block { block, .. } => frames.hold_block(block).inspect(|frame| held.push(*frame)),
        DecodedEntry::Lazy { .. } | DecodedEntry::Empty | DecodedEntry::Taken { .. } | DecodedEntry::Table { .. } => None,
    };
    // A small page does not come back as a large one.
    let is_kept = below.is_some() || matches!(base.decoded, DecodedEntry::Lazy { large, .. } if !large || own.level > 1);
    let change = match is_kept {
        true if base.permissions() == Some(permissions) => None,
        true => Some(DifferenceOperation::Protect { first, count, permissions }),
        false => replace(Entry::lazy(permissions, own.level > 1)),
    };
    (change, Some(PagePair { page: first, frame, base: below }))
}

/// Adds a change of mappings to the last one, if it continues that.
fn add(run: &mut Option<DifferenceOperation>, record: &mut RecordWriter, change: DifferenceOperation) {
    match (run.as_mut(), &change) {
        (
            Some(DifferenceOperation::Replace { first, count, entry }),
            DifferenceOperation::Replace { first: next, count: more, entry: other },
        ) if *first + *count == *next && Entry(*entry).offset(*count).0 == *other => {
            *count += more;
        }
        (
            Some(DifferenceOperation::Protect { first, count, permissions }),
            DifferenceOperation::Protect { first: next, count: more, permissions: other },
        ) if *first + *count == *next && permissions == other && *count < PROTECTED_PAGES => {
            *count += more;
        }
        _ => {
            if let Some(last) = run.replace(change) {
                record.push_operation(&last);
            }
        }
    }
}

/// Writes the spaces and segments without their trees.
fn write_spaces(memory: &SpaceSet, record: &mut RecordWriter) {
    record.number(memory.current().0.into());
    record.number(memory.segments.len() as u64);
    memory.segments.iter().for_each(|segment| record.number(segment.as_ref().map_or(0, |segment| u64::from(segment.mounts) + 1)));
    record.number(memory.spaces.len() as u64);
    for space in &memory.spaces {
        let Some(space) = space else {
            record.number(0);
            continue;
        };
        record.number(space.mounts.len() as u64 + 1);
        record.number(space.cloned_from.map_or(0, |original| u64::from(original.0) + 1));
        for mount in &space.mounts {
            record.number(mount.slot as u64);
            record.number(match mount.source {
                MountSource::Private(_) => 0,
                MountSource::Segment(index) => u64::from(index.0) + 1,
            });
        }
    }
}
