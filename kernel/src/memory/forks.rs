// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages a space and its clone write first: those that were written after an earlier clone. Each of them would cost both a fault, which costs more than the copy.
//!
//! Only what is expected is lost if the expectation is wrong: a copy of a page.

use super::frames::Frames;
use super::space::Part;
use super::spaces::SpaceSet;
use pando_abi::SpaceIndex;

/// Pages that are remembered of each side.
const PAGES_MAX: usize = 32;
/// After so many clones everything is learned anew, since nobody can tell whether a page that was copied ahead was written.
const MEMORY: u32 = 32;

/// A page of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: usize,
    /// Pages from the start of the slot.
    pub(super) page: u64,
}

/// What was learned from a space's clones.
#[derive(Debug, Default)]
pub(super) struct Forks {
    clones: u32,
    by_parent: Vec<Place>,
    by_child: Vec<Place>,
}

impl Forks {
    /// What parent and child of a clone that is made now are expected to write.
    pub(super) fn expected(&mut self) -> [Vec<Place>; 2] {
        if self.clones.is_multiple_of(MEMORY) {
            self.by_parent.clear();
            self.by_child.clear();
        }
        self.clones = self.clones.wrapping_add(1);
        [self.by_parent.clone(), self.by_child.clone()]
    }

    /// The space itself wrote to a page that it had shared.
    pub(super) fn written_by_parent(&mut self, place: Place) {
        if self.clones > 0 {
            note(&mut self.by_parent, place);
        }
    }

    /// A clone did.
    pub(super) fn written_by_child(&mut self, place: Place) {
        note(&mut self.by_child, place);
    }
}

fn note(places: &mut Vec<Place>, place: Place) {
    if places.len() < PAGES_MAX && !places.contains(&place) {
        places.push(place);
    }
}

impl SpaceSet {
    /// Makes pages a space's own, as far as there is memory for it.
    pub(super) fn own_each(&mut self, frames: &mut Frames, index: SpaceIndex, places: &[Place]) {
        let account = self.account();
        let Ok(space) = self.space(index) else { return };
        for mount in &mut space.mounts {
            let Part::Private(tree) = &mut mount.part else { continue };
            let pages: Vec<u64> = places.iter().filter(|place| place.slot == mount.slot).map(|place| place.page).collect();
            if !pages.is_empty() && tree.own_each(frames, account, &pages).is_err() {
                return;
            }
        }
    }

    /// Takes note that the running space wrote to a page that it had shared.
    pub(super) fn note_written(&mut self, place: Place) {
        let Ok(space) = self.space(self.current) else { return };
        space.forks.written_by_parent(place);
        let parent = space.cloned_from;
        if let Some(parent) = parent.and_then(|parent| self.space(parent).ok()) {
            parent.forks.written_by_child(place);
        }
    }
}
