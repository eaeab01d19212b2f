// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages that a cell has written since it was cloned, used as the expected writes of its copies.

use super::set::SpaceSet;
use super::space::MountSource;
use crate::limits::{WRITTEN_PAGES, WRITTEN_STEP, WRITTEN_STEPS, WRITTEN_TREES};
use crate::memory::frames::Frames;
use crate::memory::prefetch::{CellPage, TrainingTrace, VirtualPage};
use crate::memory::tree::Tree;
use std::collections::BTreeSet;

/// A list of written pages, while it is made.
#[derive(Debug, Default)]
pub(crate) struct WrittenPages {
    /// The tree that is searched, and the next page in it.
    tree: usize,
    page: u64,
    pages: Vec<CellPage>,
    /// Number of steps so far.
    steps: u32,
    /// The cell has too many trees, tables or pages.
    is_too_large: bool,
}

impl SpaceSet {
    /// Adds one step's pages to a list. `true`: it is complete, or the cell is too large for one.
    pub(crate) fn list_written(&self, frames: &Frames, list: &mut WrittenPages) -> bool {
        let trees = self.trees_by_place();
        let mut budget = WRITTEN_STEP;
        let WrittenPages { tree: position, page, pages, steps, is_too_large } = list;
        *steps += 1;
        if trees.len() > WRITTEN_TREES {
            *is_too_large = true;
            return true;
        }
        while let Some((space, slot, tree)) = trees.get(*position) {
            let mut note = |number| {
                if pages.len() <= WRITTEN_PAGES {
                    pages.push(CellPage { space: *space, at: VirtualPage { slot: *slot, number } });
                }
            };
            if !tree.list_charged(frames, self.account, page, &mut budget, &mut note) {
                *is_too_large = pages.len() > WRITTEN_PAGES || *steps >= WRITTEN_STEPS;
                return *is_too_large;
            }
            (*position, *page) = (*position + 1, 0);
        }
        true
    }

    /// A trace of the accesses that a copy of this memory is expected to make: those that it was expected to make itself, as a clone, and
    /// writes to the pages that it has written. Those of a cell that is too large are left out.
    pub(crate) fn expected_trace(&self, list: WrittenPages) -> TrainingTrace {
        let is_too_large = list.is_too_large || list.pages.len() > WRITTEN_PAGES;
        let written = if is_too_large { Vec::new() } else { list.pages };
        self.prefetch.trace().with_written(written.into_iter().collect::<BTreeSet<CellPage>>())
    }

    /// All trees, each with the first space and the slot in which it is mounted; of very many, some more than are searched.
    fn trees_by_place(&self) -> Vec<(u32, u32, &Tree)> {
        let (mut seen, mut trees) = (BTreeSet::new(), Vec::new());
        for (number, space) in (0..).zip(&self.spaces) {
            for mount in space.iter().flat_map(|space| &space.mounts) {
                let tree = match &mount.source {
                    MountSource::Private(tree) => Some(tree),
                    MountSource::Segment(index) if seen.insert(index.0) => {
                        self.segments.get(index.0 as usize).and_then(Option::as_ref).map(|segment| &segment.tree)
                    }
                    MountSource::Segment(_) => None,
                };
                trees.extend(tree.map(|tree| (number, mount.slot as u32, tree)));
                if trees.len() > WRITTEN_TREES {
                    return trees;
                }
            }
        }
        trees
    }
}
