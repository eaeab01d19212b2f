// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fork prefetch: the pages that a space and its clone write first, learned from writes after earlier clones. Each of them would
//! cost both sides a fault, which costs more than the copy.
//!
//! A wrong prediction costs only a copy of a page.

use crate::memory::frames::frame_table::Frames;
use crate::memory::spaces::set::SpaceSet;
use crate::memory::spaces::space::SpacePart;
use pando_abi::SpaceIndex;

/// Pages that are remembered for each side.
const PAGES_MAX: usize = 32;
/// Number of clones after which learning starts anew, because it is unknown whether a page that was copied ahead was written.
const MEMORY: u32 = 32;

/// A page of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) struct PageLocation {
    pub(in crate::memory) slot: usize,
    /// Pages from the start of the slot.
    pub(in crate::memory) page: u64,
}

/// The pages learned from a space's clones.
#[derive(Debug, Default)]
pub(in crate::memory) struct ForkPrefetch {
    clones: u32,
    by_parent: Vec<PageLocation>,
    by_child: Vec<PageLocation>,
}

impl ForkPrefetch {
    /// The pages that the parent and the child of a new clone are expected to write.
    pub(in crate::memory) fn prefetch_set(&mut self) -> [Vec<PageLocation>; 2] {
        if self.clones.is_multiple_of(MEMORY) {
            self.by_parent.clear();
            self.by_child.clear();
        }
        self.clones = self.clones.wrapping_add(1);
        [self.by_parent.clone(), self.by_child.clone()]
    }

    /// Records that the space itself has written to a shared page.
    pub(in crate::memory) fn written_by_parent(&mut self, place: PageLocation) {
        if self.clones > 0 {
            note(&mut self.by_parent, place);
        }
    }

    /// Records that a clone has written to a shared page.
    pub(in crate::memory) fn written_by_child(&mut self, place: PageLocation) {
        note(&mut self.by_child, place);
    }
}

fn note(places: &mut Vec<PageLocation>, place: PageLocation) {
    if places.len() < PAGES_MAX && !places.contains(&place) {
        places.push(place);
    }
}

impl SpaceSet {
    /// Makes pages a space's own, as far as there is memory for it.
    pub(in crate::memory) fn own_each(&mut self, frames: &mut Frames, index: SpaceIndex, places: &[PageLocation]) {
        let account = self.account();
        let Ok(space) = self.space(index) else { return };
        for mount in &mut space.mounts {
            let SpacePart::Private(tree) = &mut mount.part else { continue };
            let pages: Vec<u64> = places.iter().filter(|place| place.slot == mount.slot).map(|place| place.page).collect();
            if !pages.is_empty() && tree.own_each(frames, account, &pages).is_err() {
                return;
            }
        }
    }

    /// Records that the running space has written to a shared page.
    pub(in crate::memory) fn note_written(&mut self, place: PageLocation) {
        let Ok(space) = self.space(self.current) else { return };
        space.fork_prefetch.written_by_parent(place);
        let parent = space.cloned_from;
        if let Some(parent) = parent.and_then(|parent| self.space(parent).ok()) {
            parent.fork_prefetch.written_by_child(place);
        }
    }
}
