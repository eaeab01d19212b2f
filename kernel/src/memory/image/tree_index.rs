// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trees of a cell's memory by number and by place, and the tree that each is a difference to.

use crate::memory::spaces::{MountSource, SpaceSet};
use crate::memory::tree::Tree;
use pando_abi::cell_image::{TreeOrigin, TreePlace};

/// The numbers of the trees of a set of spaces, in the order of [`SpaceSet::trees`]. Creating it is O(mounts).
pub(super) struct TreeIndex<'a> {
    memory: &'a SpaceSet,
    /// The number of segments.
    segments: u32,
    /// The number of the first private tree of each space, or of the next one if it has none.
    firsts: Vec<u32>,
    len: u32,
}

impl<'a> TreeIndex<'a> {
    pub(super) fn new(memory: &'a SpaceSet) -> TreeIndex<'a> {
        let segments = memory.segments.iter().flatten().count() as u32;
        let mut len = segments;
        let firsts = (memory.spaces.iter())
            .map(|space| {
                let first = len;
                let mounts = space.iter().flat_map(|space| &space.mounts);
                len += mounts.filter(|mount| matches!(mount.source, MountSource::Private(_))).count() as u32;
                first
            })
            .collect();
        TreeIndex { memory, segments, firsts, len }
    }

    /// Number of trees.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// A tree and its place. O(segments) or O(mounts of its space).
    pub(super) fn get(&self, number: u32) -> Option<(TreePlace, &'a Tree)> {
        if number < self.segments {
            let mut segments = (0..).zip(&self.memory.segments).filter_map(|(index, segment)| Some((index, segment.as_ref()?)));
            return segments.nth(number as usize).map(|(index, segment)| (TreePlace::Segment(index), &segment.tree));
        }
        // The last of the spaces that begin there: those before it have no private tree.
        let space = self.firsts.partition_point(|first| *first <= number).checked_sub(1)?;
        let (slot, tree) = self.private_trees(space).nth((number - self.firsts[space]) as usize)?;
        Some((TreePlace::Private { space: space as u32, slot: slot as u32 }, tree))
    }

    /// The number of the tree at a place. O(segments) or O(mounts of its space).
    fn number(&self, place: TreePlace) -> Option<u32> {
        match place {
            TreePlace::Segment(index) => {
                self.memory.segments.get(index as usize)?.as_ref()?;
                Some(self.memory.segments[..index as usize].iter().flatten().count() as u32)
            }
            TreePlace::Private { space, slot } => {
                let position = self.private_trees(space as usize).position(|(other, _)| other == slot as usize)?;
                Some(self.firsts[space as usize] + position as u32)
            }
        }
    }

    /// The private trees of a space with their slots.
    fn private_trees(&self, space: usize) -> impl Iterator<Item = (usize, &'a Tree)> + use<'a> {
        let mounts = self.memory.spaces.get(space).and_then(Option::as_ref).into_iter().flat_map(|space| &space.mounts);
        mounts.filter_map(|mount| if let MountSource::Private(tree) = &mount.source { Some((mount.slot, tree)) } else { None })
    }

    /// Chooses the tree that a tree is a difference to. The choice decides about the size only. A space that was cloned differs little
    /// from the one at its place in the base, if both are clones of the same original, or else from that original, and a new one from
    /// the running space of the base.
    pub(super) fn origin(&self, number: u32, place: TreePlace, base: Option<&TreeIndex>) -> TreeOrigin {
        let of_base = |place| Some(TreeOrigin::Base(base?.number(place)?));
        let TreePlace::Private { space, slot } = place else { return of_base(place).unwrap_or(TreeOrigin::Nothing) };
        let clone_source = |memory: &SpaceSet| memory.spaces.get(space as usize)?.as_ref().map(|space| space.cloned_from);
        let original = clone_source(self.memory).flatten();
        let is_counterpart = base.and_then(|base| clone_source(base.memory)).is_some_and(|of_base| of_base == original);
        let counterpart = || if is_counterpart { of_base(place) } else { None };
        let own = || {
            let original = self.number(TreePlace::Private { space: original?.0, slot })?;
            (original < number).then_some(TreeOrigin::Own(original))
        };
        let running = || of_base(TreePlace::Private { space: base?.memory.current().0, slot });
        counterpart().or_else(own).or_else(|| of_base(place)).or_else(running).unwrap_or(TreeOrigin::Nothing)
    }
}

/// The tree that each tree is a difference to.
pub(super) fn tree_origins(memory: &SpaceSet, base: Option<&SpaceSet>) -> Vec<TreeOrigin> {
    let (own, base) = (TreeIndex::new(memory), base.map(TreeIndex::new));
    (0..own.len()).filter_map(|number| Some(own.origin(number, own.get(number)?.0, base.as_ref()))).collect()
}
