// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spaces: lists of mounts, and the root tables built from them.
//!
//! A root is a cache. It records the version of its content and is built anew, in a fresh frame, when a version has changed (rules
//! 2 and 4).

use crate::memory::frames::account::AccountId;
use crate::memory::frames::frame_table::{Frames, Shortage};
use crate::memory::prefetch::fork_prefetch::ForkPrefetch;
use crate::memory::rules::Rules;
use crate::memory::tree::handle::Tree;
use pando_abi::{SegmentIndex, SpaceIndex};
use pando_machine::{EntryIndex, Root, SUPERVISOR_SLOT};

/// The content of a slot.
#[derive(Debug)]
pub(in crate::memory) enum SpacePart {
    /// Memory of this space alone.
    Private(Tree),
    /// A segment of the cell, shared by all spaces that mount it.
    Segment(SegmentIndex),
}

/// A part in its slot.
#[derive(Debug)]
pub(in crate::memory) struct Mount {
    pub(in crate::memory) slot: usize,
    pub(in crate::memory) part: SpacePart,
}

/// A root table that was built, and the version of its content.
#[derive(Clone, Copy, Debug)]
struct Built {
    root: Root,
    version: u64,
}

/// An address space.
#[derive(Debug, Default)]
pub(in crate::memory) struct Space {
    pub(in crate::memory) mounts: Vec<Mount>,
    built: Option<Built>,
    /// The fork prefetch learned from its clones.
    pub(in crate::memory) fork_prefetch: ForkPrefetch,
    /// The space that it is a clone of.
    pub(in crate::memory) cloned_from: Option<SpaceIndex>,
    /// Version of the list of mounts.
    version: u64,
}

impl Space {
    /// Mounts a part in a free slot.
    pub(in crate::memory) fn mount(&mut self, frames: &mut Frames, slot: usize, part: SpacePart) {
        self.mounts.push(Mount { slot, part });
        self.version = frames.next_number();
    }

    /// The part mounted in a slot.
    pub(in crate::memory) fn at(&mut self, slot: usize) -> Option<&mut SpacePart> {
        self.mounts.iter_mut().find(|mount| mount.slot == slot).map(|mount| &mut mount.part)
    }

    /// The root to run on. Builds it if its content has changed: one table, O(mounts).
    ///
    /// # Errors
    /// No memory for the table.
    pub(in crate::memory) fn root<'a>(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        segment: impl Fn(SegmentIndex) -> &'a Tree,
    ) -> Result<Root, Shortage> {
        let version = self.mounts.iter().map(|mount| version_of(&mount.part, &segment)).fold(self.version, u64::max);
        if let Some(built) = self.built
            && (built.version == version || frames.rules().contains_rule(Rules::WITHOUT_NEW_ROOT))
        {
            return Ok(built.root);
        }
        let table = frames.take_table(account, true)?;
        for mount in &self.mounts {
            let link = match &mount.part {
                SpacePart::Private(tree) => tree.show(),
                SpacePart::Segment(index) => segment(*index).show(),
            };
            frames.arena().store(table, EntryIndex::new(mount.slot), link.0);
        }
        let supervisor = frames.machine().supervisor_entry();
        frames.arena().store(table, EntryIndex::new(SUPERVISOR_SLOT), supervisor);
        self.forget_root(frames);
        let root = Root { table, stamp: frames.next_number() };
        self.built = Some(Built { root, version });
        Ok(root)
    }

    /// Gives the root another stamp: its cell has run on another vCPU, and this one may have stale translations (rule 6).
    pub(in crate::memory) fn restamp(&mut self, frames: &mut Frames) {
        if let Some(built) = &mut self.built
            && !frames.rules().contains_rule(Rules::WITHOUT_STAMPS)
        {
            built.root.stamp = frames.next_number();
        }
    }

    /// Retires the root.
    pub(in crate::memory) fn forget_root(&mut self, frames: &mut Frames) {
        if let Some(built) = self.built.take() {
            frames.retire(built.root.table);
        }
    }
}

fn version_of<'a>(part: &SpacePart, segment: &impl Fn(SegmentIndex) -> &'a Tree) -> u64 {
    match part {
        SpacePart::Private(tree) => tree.version(),
        SpacePart::Segment(index) => segment(*index).version(),
    }
}
