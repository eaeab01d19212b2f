// SPDX-License-Identifier: MIT OR Apache-2.0
//! Residency: whether mapped pages are present, or blocks must be read first.

use super::block_read::BlockRequest;
use super::error::MemoryError;
use crate::limits::BLOCK_GROUP;
use crate::memory::block::Block;
use crate::memory::frames::{Frames, Shortage};
use crate::memory::swapped_page::TakenPage;
use crate::memory::tree::{DecodedEntry, Lookup, TREE_PAGES, Tree, span};
use pando_abi::BlockNumber;
use pando_machine::FrameId;
use std::ops::Range;

/// Why a block is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockAbsence {
    /// It must be read.
    MustRead(BlockRequest),
    /// Reading it has just failed.
    Unreadable,
    /// There is no room for it.
    Shortage(Shortage),
}

/// The pages of the table that contains `page`.
pub(super) fn table_span(page: u64) -> Range<u64> {
    let start = page - page % span(2);
    start..start + span(2)
}

impl Tree {
    /// The frame of `block`, which `page` maps.
    pub(super) fn resident_frame(&self, frames: &Frames, page: u64, block: Block) -> Result<FrameId, BlockAbsence> {
        match frames.frame_of(block) {
            Some(frame) => Ok(frame),
            None if frames.is_unreadable(block) => Err(BlockAbsence::Unreadable),
            None if !frames.has_room_for_block() => Err(BlockAbsence::Shortage(Shortage::Machine)),
            None => Err(BlockAbsence::MustRead(self.requested(frames, page, block))),
        }
    }

    /// The blocks to read for `page`: those of the block's aligned group that this tree maps in one run, and that are not in
    /// memory.
    fn requested(&self, frames: &Frames, page: u64, block: Block) -> BlockRequest {
        let place = u64::from(block.number.0) % BLOCK_GROUP;
        let absent = |page: u64, requested: Block| {
            let found = self.find(frames, page).decoded;
            matches!(found, DecodedEntry::Block { block, .. } if block == requested)
                && frames.frame_of(requested).is_none()
                && !frames.is_unreadable(requested)
        };
        let number = block.number.0;
        let earlier = |count: &u64| absent(page - count, Block { number: BlockNumber(number - *count as u32), ..block });
        let later = |count: &u64| absent(page + count, block.offset(*count));
        let before = (1..=place.min(page)).take_while(earlier).count() as u32;
        let after = (1..(BLOCK_GROUP - place).min(TREE_PAGES - page)).take_while(later).count() as u32;
        BlockRequest { block, after, before }
    }

    /// The first of `pages` that are alike and can be made present at once: blocks that are in memory or cannot be read, or no
    /// blocks at all.
    ///
    /// # Errors
    /// The very first page is a block that must be read or was taken, or there is no room for it.
    pub(in crate::memory) fn ready(&self, frames: &Frames, pages: &Range<u64>) -> Result<ReadyPages, MemoryError> {
        let mut ready = ReadyPages { pages: pages.start..pages.start, blocks: false };
        while ready.pages.end < pages.end {
            let page = ready.pages.end;
            let first = page == pages.start;
            let Lookup { decoded, level, .. } = self.find(frames, page);
            let length = match decoded {
                DecodedEntry::Block { block, .. } if first || ready.blocks => match self.resident_frame(frames, page, block) {
                    Ok(_) | Err(BlockAbsence::Unreadable) => 1,
                    Err(BlockAbsence::MustRead(requested)) if first => return Err(MemoryError::Absent(requested)),
                    Err(BlockAbsence::Shortage(shortage)) if first => return Err(MemoryError::Shortage(shortage)),
                    Err(_) => break,
                },
                DecodedEntry::Taken { number, .. } if first => return Err(MemoryError::Taken(TakenPage::of_tree(page, number))),
                DecodedEntry::Taken { .. } => break,
                _ if ready.blocks || matches!(decoded, DecodedEntry::Block { .. }) => break,
                _ => span(level) - page % span(level),
            };
            ready.blocks |= matches!(decoded, DecodedEntry::Block { .. });
            ready.pages.end = (page + length).min(pages.end);
        }
        Ok(ready)
    }
}

/// Pages that can be made present at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::memory) struct ReadyPages {
    /// The pages.
    pub(in crate::memory) pages: Range<u64>,
    /// Whether they are blocks.
    pub(in crate::memory) blocks: bool,
}
