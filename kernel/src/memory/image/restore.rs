// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a cell that wakes up: clones of the base's trees, with the changes of a difference written into pages of its own.

use super::record::{BadRecord, DifferenceOperation, LINE, RecordReader};
use crate::limits::RESTORE_STEP;
use crate::memory::frames::{AccountId, Frames, Shortage};
use crate::memory::paging::{CopyAuthority, CopyError};
use crate::memory::spaces::{MountSource, Segment, Space, SpaceSet, can_hold_segment};
use crate::memory::tree::{Entry, TREE_PAGES, Tree, span};
use pando_abi::cell_image::TreeOrigin;
use pando_abi::layout::{SLOTS, SYSTEM_SLOT};
use pando_abi::limits::{MAX_MOUNTS, MAX_SEGMENTS, MAX_SPACES};
use pando_abi::{SegmentIndex, SpaceIndex};

/// Why a step of a restore did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoreError {
    /// Not enough memory, or a block of a disk must be read first, or cannot be read.
    Copy(CopyError),
    /// The record is damaged.
    Record(BadRecord),
}

impl From<CopyError> for RestoreError {
    fn from(error: CopyError) -> RestoreError {
        RestoreError::Copy(error)
    }
}

impl From<Shortage> for RestoreError {
    fn from(shortage: Shortage) -> RestoreError {
        RestoreError::Copy(CopyError::Shortage(shortage))
    }
}

impl From<BadRecord> for RestoreError {
    fn from(error: BadRecord) -> RestoreError {
        RestoreError::Record(error)
    }
}

/// How far a restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoreProgress {
    /// The memory is complete.
    Complete,
    /// There is more to do.
    Unfinished,
    /// The chunk is done, and the next one is needed ([`MemoryRestore::add_chunk`]).
    ChunkNeeded,
}

/// A restore in progress.
#[derive(Debug)]
pub(crate) struct MemoryRestore {
    memory: SpaceSet,
    /// The present chunk of the record.
    record: Vec<u8>,
    /// Bytes of it that are done.
    done: usize,
    /// The tree that is built, if its origin was cloned.
    tree: Option<usize>,
    /// Number of complete trees, and of all.
    complete: usize,
    trees: usize,
}

impl MemoryRestore {
    /// Begins to restore memory from the first chunk of a record, in a set without spaces. Builds its spaces and segments, without content.
    ///
    /// # Errors
    /// The record is damaged; no frame was taken.
    pub(crate) fn new(mut memory: SpaceSet, frames: &mut Frames, record: Vec<u8>) -> Result<MemoryRestore, BadRecord> {
        let mut reader = RecordReader::new(&record);
        read_spaces(&mut reader, &mut memory, frames)?;
        let done = record.len() - reader.left();
        let trees = memory.trees().count();
        Ok(MemoryRestore { memory, record, done, tree: None, complete: 0, trees })
    }

    /// Goes on with the next chunk of the record, after all of the present one.
    pub(crate) fn add_chunk(&mut self, chunk: Vec<u8>) {
        (self.record, self.done) = (chunk, 0);
    }

    /// Does some steps. `base` is the set of spaces that the difference refers to.
    ///
    /// # Errors
    /// The step that failed may be half done. It can be repeated after its cause is removed.
    pub(crate) fn next_step(&mut self, frames: &mut Frames, mut base: Option<&mut SpaceSet>) -> Result<RestoreProgress, RestoreError> {
        let MemoryRestore { memory, record, done, tree, complete, trees } = self;
        let mut budget = RESTORE_STEP;
        while budget > 0 {
            budget -= 1;
            if complete == trees {
                return if *done == record.len() { Ok(RestoreProgress::Complete) } else { Err(BadRecord.into()) };
            }
            if *done == record.len() {
                return Ok(RestoreProgress::ChunkNeeded);
            }
            let mut reader = RecordReader::new(&record[*done..]);
            let Some(index) = *tree else {
                let origin = reader.origin()?;
                let built = clone_origin(frames, memory, base.as_deref_mut(), origin, *complete)?;
                *memory.trees_mut().nth(*complete).ok_or(BadRecord)? = built;
                *tree = Some(*complete);
                *done = record.len() - reader.left();
                continue;
            };
            let account = memory.account();
            let current = memory.trees_mut().nth(index).ok_or(BadRecord)?;
            loop {
                let operation = reader.read_operation(TREE_PAGES)?;
                apply(frames, account, current, &operation, &mut reader)?;
                *done = record.len() - reader.left();
                if operation == DifferenceOperation::End {
                    (*tree, *complete) = (None, *complete + 1);
                    break;
                }
                if budget == 0 || *done == record.len() {
                    break;
                }
                budget -= 1;
            }
        }
        Ok(RestoreProgress::Unfinished)
    }

    /// The memory, complete or not.
    pub(crate) fn finish(self) -> SpaceSet {
        self.memory
    }
}

/// Applies a step to a tree. The bytes of a page follow in the record.
fn apply(
    frames: &mut Frames,
    account: AccountId,
    tree: &mut Tree,
    operation: &DifferenceOperation,
    record: &mut RecordReader<'_>,
) -> Result<(), RestoreError> {
    match *operation {
        DifferenceOperation::End => {}
        DifferenceOperation::Replace { first, count, entry } => {
            let entry = Some(Entry(entry)).filter(|entry| !entry.is_present()).ok_or(BadRecord)?;
            tree.replace(frames, account, first..first + count, entry)?;
        }
        DifferenceOperation::Protect { first, count, permissions } => {
            let mut page = first;
            while page < first + count {
                let end = ((page / span(2) + 1) * span(2)).min(first + count);
                tree.protect(frames, account, page..end, permissions)?;
                page = end;
            }
        }
        DifferenceOperation::Page { page, mask } => {
            let bytes = record.take(mask.count_ones() as usize * LINE)?;
            write_lines(frames, account, tree, (page, mask), bytes)?;
        }
    }
    Ok(())
}

/// The tree that a tree is a difference to, as a clone.
fn clone_origin(
    frames: &mut Frames,
    memory: &mut SpaceSet,
    base: Option<&mut SpaceSet>,
    origin: TreeOrigin,
    complete: usize,
) -> Result<Tree, BadRecord> {
    let original = match origin {
        TreeOrigin::Nothing => return Ok(Tree::default()),
        TreeOrigin::Base(index) => base.ok_or(BadRecord)?.trees_mut().nth(index as usize),
        TreeOrigin::Own(index) => memory.trees_mut().take(complete).nth(index as usize),
    };
    Ok(original.ok_or(BadRecord)?.clone_tree(frames))
}

/// Overwrites lines of a page.
fn write_lines(frames: &mut Frames, account: AccountId, tree: &mut Tree, (page, mask): (u64, u64), bytes: &[u8]) -> Result<(), CopyError> {
    let frame = tree.writable_frame(frames, account, page, CopyAuthority::Operator)?;
    let lines = (0..u64::BITS as usize).filter(|line| mask >> line & 1 != 0);
    for (line, bytes) in lines.zip(bytes.chunks_exact(LINE)) {
        frames.arena().write(frame, line * LINE, bytes);
    }
    Ok(())
}

/// Builds the spaces and segments that a record describes.
fn read_spaces(record: &mut RecordReader<'_>, memory: &mut SpaceSet, frames: &mut Frames) -> Result<(), BadRecord> {
    let bounded = |number: u64, most: u32| if number <= most.into() { Ok(number) } else { Err(BadRecord) };
    let current = bounded(record.number()?, MAX_SPACES)?;
    let mut segments = Vec::new();
    for _ in 0..bounded(record.number()?, MAX_SEGMENTS)? {
        let mounts = bounded(record.number()?, MAX_MOUNTS + 1)?;
        segments.push((mounts > 0).then(|| Segment { mounts: mounts as u32 - 1, ..Segment::default() }));
    }
    let mut spaces = Vec::new();
    for _ in 0..bounded(record.number()?, MAX_SPACES)? {
        let mounts = bounded(record.number()?, MAX_MOUNTS + 1)?;
        let mut space = Space::default();
        if mounts > 0 {
            space.cloned_from = bounded(record.number()?, MAX_SPACES)?.checked_sub(1).map(|original| SpaceIndex(original as u32));
        }
        for _ in 1..mounts {
            let (slot, source) = (record.number()? as usize, record.number()?);
            let is_system = slot == SYSTEM_SLOT;
            let segment = source.checked_sub(1);
            let is_sound = match segment {
                None => slot < SLOTS && !is_system,
                Some(index) => segments.get(index as usize).is_some_and(Option::is_some) && (is_system || can_hold_segment(slot)),
            };
            if !is_sound || space.at(slot).is_some() {
                return Err(BadRecord);
            }
            let source =
                segment.map_or_else(|| MountSource::Private(Tree::default()), |index| MountSource::Segment(SegmentIndex(index as u32)));
            space.mount(frames, slot, source);
        }
        spaces.push((mounts > 0).then_some(space));
    }
    if !spaces.get(current as usize).is_some_and(Option::is_some) {
        return Err(BadRecord);
    }
    (memory.segments, memory.spaces, memory.current) = (segments, spaces, SpaceIndex(current as u32));
    Ok(())
}
