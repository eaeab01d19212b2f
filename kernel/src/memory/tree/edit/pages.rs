// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of an edit: new ones, and copies of shared ones.

use super::tables::{Edit, PATH_TABLES};
use crate::memory::block::Block;
use crate::memory::frames::Garbage;
use crate::memory::tree::entry::Entry;
use pando_abi::Permissions;
use pando_machine::{FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame};

/// A page that has no other holder, in place of a page that may have some.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExclusivePage {
    /// Its entry.
    pub(super) entry: Entry,
    /// The shared page, if this one is a copy of it. The edit still holds it.
    pub(super) replaced: Option<FrameId>,
}

impl Edit<'_> {
    /// A new page for lazy memory at `level`; 2 MiB if the memory is `large` and there is room. `None`: the entry must be split.
    pub(super) fn zero_page(&mut self, permissions: Permissions, level: u8, large: bool) -> Option<Entry> {
        if level == 1 {
            let frame = self.frames.allocate(self.account, true).expect("the operation has reserved it");
            return Some(Entry::page(frame, permissions, true));
        }
        // The path's tables were reserved along with the page; a large page must leave room for them.
        let needed = u64::from(FRAMES_PER_HUGE_FRAME) + PATH_TABLES;
        let fits = large && level == 2 && self.frames.ensure(self.account, needed).is_ok();
        let huge_frame = if fits { self.frames.allocate_large(self.account).ok()? } else { return None };
        Some(Entry::large_page(huge_frame, permissions, true))
    }

    /// The registry's page of a block, shared. `None`: the block is not in memory.
    pub(super) fn block_page(&mut self, block: Block, permissions: Permissions) -> Option<Entry> {
        let frame = self.frames.hold_block(block)?;
        let entry = Entry::page(frame, permissions, false);
        Some(if self.frames.tracks_accesses() { entry.unaccessed() } else { entry })
    }

    /// A copy of the registry's page of a block. `None`: the block is not in memory. No CPU has seen the registry's page at this
    /// entry, so its hold ends at once.
    pub(super) fn block_copy(&mut self, block: Block, permissions: Permissions) -> Option<Entry> {
        let frame = self.frames.hold_block(block)?;
        Some(self.unshared_page(frame, permissions))
    }

    /// The page itself if it has no other holder, otherwise a copy.
    pub(super) fn exclusive_page(&mut self, frame: FrameId, permissions: Permissions) -> ExclusivePage {
        if self.frames.is_exclusive(frame) {
            return ExclusivePage { entry: Entry::page(frame, permissions, true), replaced: None };
        }
        self.frames.note_accessed_frame(frame);
        let copy = self.frames.allocate(self.account, false).expect("the operation has reserved it");
        self.frames.arena().copy(frame, copy);
        ExclusivePage { entry: Entry::page(copy, permissions, true), replaced: Some(frame) }
    }

    /// The page itself if it has no other holder, otherwise a copy. The edit releases the shared page.
    pub(super) fn unshared_page(&mut self, frame: FrameId, permissions: Permissions) -> Entry {
        let ExclusivePage { entry, replaced } = self.exclusive_page(frame, permissions);
        if let Some(frame) = replaced {
            self.frames.release(frame);
        }
        entry
    }

    /// The large page itself if it has no other holder. `None`: it must be split, or copied as a whole.
    pub(super) fn exclusive_large_page(&self, huge_frame: HugeFrame, permissions: Permissions) -> Option<Entry> {
        self.frames.is_exclusive_large(huge_frame).then(|| Entry::large_page(huge_frame, permissions, true))
    }

    /// The large page itself if it has no other holder, otherwise a copy as a whole; the edit releases the shared page. `None`: no
    /// huge frame is available.
    pub(super) fn unshared_large_page(&mut self, huge_frame: HugeFrame, permissions: Permissions) -> Option<Entry> {
        if let Some(entry) = self.exclusive_large_page(huge_frame, permissions) {
            return Some(entry);
        }
        let copy = self.frames.allocate_large(self.account).ok()?;
        for (from, to) in huge_frame.frames().zip(copy.frames()) {
            self.frames.arena().copy(from, to);
        }
        self.frames.discard(Garbage::Large(huge_frame));
        Some(Entry::large_page(copy, permissions, true))
    }

    /// The page with other permissions; writable at once if it has no other holder.
    pub(super) fn page_with(&self, frame: FrameId, level: u8, permissions: Permissions) -> Entry {
        if level == 1 {
            Entry::page(frame, permissions, self.frames.is_exclusive(frame))
        } else {
            Entry::large_page(frame.huge_frame(), permissions, self.frames.is_exclusive_large(frame.huge_frame()))
        }
    }
}
