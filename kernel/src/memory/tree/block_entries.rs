// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables that map blocks of disks, and the entries that replace the blocks when they are evicted.

use super::entry::{DecodedEntry, Entry};
use super::level::span;
use crate::memory::frames::Frames;
use pando_machine::{EntryIndex, FrameId};

/// Whether a last-level table maps a block.
pub(super) fn maps_blocks(frames: &Frames, table: FrameId) -> bool {
    let entries = frames.arena().load_table(table);
    entries.iter().any(|entry| matches!(Entry(*entry).decode(1), DecodedEntry::Page { frame, .. } if frames.is_registered(frame)))
}

/// The single entry that is equivalent to a whole last-level table once its blocks are evicted, if there is one.
pub(super) fn folded_entry(frames: &Frames, table: FrameId) -> Option<Entry> {
    let evicted = |position: u64| block_entry(frames, Entry(frames.arena().load(table, EntryIndex::new(position as usize))));
    let first = evicted(0)?;
    (1..span(2)).all(|position| evicted(position) == Some(first.offset(position))).then_some(first)
}

/// The entry of the block that a last-level entry maps, present or not. `None`: it maps no block.
pub(super) fn block_entry(frames: &Frames, entry: Entry) -> Option<Entry> {
    match entry.decode(1) {
        DecodedEntry::Block { .. } => Some(entry),
        DecodedEntry::Page { frame, permissions, .. } => frames.block_in(frame).map(|block| Entry::block(block, permissions)),
        _ => None,
    }
}
