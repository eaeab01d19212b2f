// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether what a tree maps is present, or blocks must be read first.

use super::block::{Block, Wanted};
use super::books::Presence;
use super::entry::View;
use super::frames::{Frames, Shortage};
use super::obstacle::Obstacle;
use super::tree::{Found, TREE_PAGES, Tree, span};
use crate::limits::BLOCK_GROUP;
use pando_abi::BlockNumber;
use pando_machine::FrameId;
use std::ops::Range;

/// Why a block is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// It must be read.
    Wanted(Wanted),
    /// It was tried just now, and cannot be read.
    Unreadable,
    /// There is no room for it.
    Short(Shortage),
}

/// The pages around `page` that make up its aligned group.
pub(super) fn group(page: u64) -> Range<u64> {
    let start = page - page % BLOCK_GROUP;
    start..start + BLOCK_GROUP
}

impl Tree {
    /// The frame of `block`, which is what `page` maps.
    pub(super) fn brought_in(&self, frames: &Frames, page: u64, block: Block) -> Result<FrameId, Absence> {
        match frames.presence(block) {
            Presence::Here(frame) => Ok(frame),
            Presence::Unreadable => Err(Absence::Unreadable),
            Presence::Absent if !frames.has_room() => Err(Absence::Short(Shortage::Machine)),
            Presence::Absent => Err(Absence::Wanted(self.wanted(frames, page, block))),
        }
    }

    /// What to read for `page`: of the block's aligned group what this tree maps in one run, and nobody has read.
    fn wanted(&self, frames: &Frames, page: u64, block: Block) -> Wanted {
        let place = u64::from(block.number.0) % BLOCK_GROUP;
        let absent = |page: u64, wanted: Block| {
            let found = self.find(frames, page).view;
            matches!(found, View::Block { block, .. } if block == wanted) && frames.presence(wanted) == Presence::Absent
        };
        let number = block.number.0;
        let earlier = |count: &u64| absent(page - count, Block { number: BlockNumber(number - *count as u32), ..block });
        let later = |count: &u64| absent(page + count, block.further(*count));
        let before = (1..=place.min(page)).take_while(earlier).count() as u32;
        let after = (1..(BLOCK_GROUP - place).min(TREE_PAGES - page)).take_while(later).count() as u32;
        Wanted { block, after, before }
    }

    /// How many of the first pages of `pages` are alike and can be made present at once: blocks that are in memory or cannot be read, or no blocks at all.
    ///
    /// # Errors
    /// Not even the first: its block must be read.
    pub(super) fn ready(&self, frames: &Frames, pages: &Range<u64>) -> Result<Ready, Obstacle> {
        let mut ready = Ready { pages: pages.start..pages.start, blocks: false };
        while ready.pages.end < pages.end {
            let page = ready.pages.end;
            let first = page == pages.start;
            let Found { view, level, .. } = self.find(frames, page);
            let length = match view {
                View::Block { block, .. } if first || ready.blocks => match self.brought_in(frames, page, block) {
                    Ok(_) | Err(Absence::Unreadable) => 1,
                    Err(Absence::Wanted(wanted)) if first => return Err(Obstacle::Absent(wanted)),
                    Err(Absence::Short(shortage)) if first => return Err(Obstacle::Short(shortage)),
                    Err(_) => break,
                },
                _ if ready.blocks || matches!(view, View::Block { .. }) => break,
                _ => span(level) - page % span(level),
            };
            ready.blocks |= matches!(view, View::Block { .. });
            ready.pages.end = (page + length).min(pages.end);
        }
        Ok(ready)
    }
}

/// Pages that can be made present at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    /// Which.
    pub(super) pages: Range<u64>,
    /// Whether they are blocks.
    pub(super) blocks: bool,
}
