// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trees of a cell's memory, and the tree that each is a difference to.

use super::record::TreeSource;
use crate::memory::spaces::{MountSource, SpaceSet};
use std::collections::HashMap;

/// Where a tree lies in a set of spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum TreePlace {
    /// A segment, by index.
    Segment(usize),
    /// Private memory: the index of its space, and its slot.
    Private(usize, usize),
}

/// The places of all trees, in their order.
pub(super) fn places(memory: &SpaceSet) -> Vec<TreePlace> {
    let segments = memory.segments.iter().enumerate().filter(|(_, segment)| segment.is_some());
    let segments = segments.map(|(index, _)| TreePlace::Segment(index));
    let mounts = memory.spaces.iter().enumerate().filter_map(|(index, space)| Some((index, space.as_ref()?)));
    let mounts = mounts.flat_map(|(index, space)| space.mounts.iter().map(move |mount| (index, mount)));
    let private = mounts.filter(|(_, mount)| matches!(mount.source, MountSource::Private(_)));
    segments.chain(private.map(|(index, mount)| TreePlace::Private(index, mount.slot))).collect()
}

/// Chooses the tree that each tree is a difference to. The choice decides about the size only. A space that was cloned differs little
/// from the one at its place in the base, if both are clones of the same original, or else from that original, and a new one from the
/// running space of the base.
pub(super) fn pair_trees(memory: &SpaceSet, base: Option<&SpaceSet>) -> Vec<TreeSource> {
    let index = |places: Vec<TreePlace>| -> HashMap<TreePlace, u64> { places.into_iter().zip(0..).collect() };
    let own_places = places(memory);
    let own = index(own_places.clone());
    let of_base = base.map(|base| index(places(base))).unwrap_or_default();
    let running = base.map_or(0, |base| base.current().0 as usize);
    let source = |position: u64, place: &TreePlace| {
        let TreePlace::Private(space, slot) = *place else { return of_base.get(place).copied().map(TreeSource::Base) };
        let original = memory.spaces[space].as_ref().and_then(|space| space.cloned_from);
        let counterpart = base.and_then(|base| base.spaces.get(space)?.as_ref());
        if let Some(of_base) = of_base.get(place)
            && counterpart.is_some_and(|counterpart| counterpart.cloned_from == original)
        {
            return Some(TreeSource::Base(*of_base));
        }
        let original = original.and_then(|original| own.get(&TreePlace::Private(original.0 as usize, slot)).copied());
        original
            .filter(|original| *original < position)
            .map(TreeSource::Own)
            .or_else(|| of_base.get(place).or_else(|| of_base.get(&TreePlace::Private(running, slot))).copied().map(TreeSource::Base))
    };
    (0..).zip(&own_places).map(|(position, place)| source(position, place).unwrap_or(TreeSource::Nothing)).collect()
}
