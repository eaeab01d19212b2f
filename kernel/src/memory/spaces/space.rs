// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spaces: lists of mounts, and the root tables built from them.
//!
//! A root is a cache. It records the version of its content and is built anew, in a fresh frame, when a version has changed (rules
//! 2 and 4).

use crate::memory::frames::{AccountId, Frames, Shortage};
use crate::memory::prefetch::ForkPrefetch;
use crate::memory::rules::OmittedRules;
use crate::memory::tree::Tree;
use pando_abi::{SegmentIndex, SpaceIndex};
use pando_machine::{EntryIndex, Root, SUPERVISOR_SLOT};

/// The memory that a space maps in a slot.
#[derive(Debug)]
pub(in crate::memory) enum MountSource {
    /// Memory of this space alone.
    Private(Tree),
    /// A segment of the cell, shared by all spaces that mount it.
    Segment(SegmentIndex),
}

/// A slot of a space, and the memory that it maps.
#[derive(Debug)]
pub(in crate::memory) struct Mount {
    pub(in crate::memory) slot: usize,
    pub(in crate::memory) source: MountSource,
}

/// A root table, and the version of the content that it was built from.
#[derive(Clone, Copy, Debug)]
struct CachedRoot {
    root: Root,
    version: u64,
}

/// An address space.
#[derive(Debug, Default)]
pub(in crate::memory) struct Space {
    pub(in crate::memory) mounts: Vec<Mount>,
    root: Option<CachedRoot>,
    /// The fork prefetch learned from its clones.
    pub(in crate::memory) fork_prefetch: ForkPrefetch,
    /// The space that it is a clone of.
    pub(in crate::memory) cloned_from: Option<SpaceIndex>,
    /// Version of the list of mounts.
    version: u64,
}

impl Space {
    /// Mounts memory in a free slot.
    pub(in crate::memory) fn mount(&mut self, frames: &mut Frames, slot: usize, source: MountSource) {
        self.mounts.push(Mount { slot, source });
        self.version = frames.next_number();
    }

    /// The memory mounted in a slot.
    pub(in crate::memory) fn at(&mut self, slot: usize) -> Option<&mut MountSource> {
        self.mounts.iter_mut().find(|mount| mount.slot == slot).map(|mount| &mut mount.source)
    }

    /// The root on which a CPU runs next. Builds it if its content has changed: one table, O(mounts).
    ///
    /// # Errors
    /// No memory for the table.
    pub(in crate::memory) fn root<'a>(
        &mut self,
        frames: &mut Frames,
        account: AccountId,
        segment: impl Fn(SegmentIndex) -> &'a Tree,
    ) -> Result<Root, Shortage> {
        let trees = self.mounts.iter().map(|mount| tree_of(&mount.source, &segment));
        let version = trees.clone().map(Tree::version).fold(self.version, u64::max);
        trees.for_each(|tree| tree.note_entry(frames));
        if let Some(cached) = self.root
            && (cached.version == version || frames.rules().omits(OmittedRules::WITHOUT_NEW_ROOT))
        {
            return Ok(cached.root);
        }
        let table = frames.allocate_table(account, true)?;
        for mount in &self.mounts {
            let link = tree_of(&mount.source, &segment).map_in_root();
            frames.arena().store(table, EntryIndex::new(mount.slot), link.0);
        }
        let supervisor = frames.machine().supervisor_entry();
        frames.arena().store(table, EntryIndex::new(SUPERVISOR_SLOT), supervisor);
        self.forget_root(frames);
        let root = Root { table, stamp: frames.next_number() };
        self.root = Some(CachedRoot { root, version });
        Ok(root)
    }

    /// Gives the root another stamp: its cell has run on another vCPU, and this one may have stale translations (rule 6).
    pub(in crate::memory) fn restamp(&mut self, frames: &mut Frames) {
        if let Some(cached) = &mut self.root
            && !frames.rules().omits(OmittedRules::WITHOUT_STAMPS)
        {
            cached.root.stamp = frames.next_number();
        }
    }

    /// Retires the root.
    pub(in crate::memory) fn forget_root(&mut self, frames: &mut Frames) {
        if let Some(cached) = self.root.take() {
            frames.retire(cached.root.table);
        }
    }
}

fn tree_of<'a, 'b: 'a>(source: &'a MountSource, segment: &impl Fn(SegmentIndex) -> &'b Tree) -> &'a Tree {
    match source {
        MountSource::Private(tree) => tree,
        MountSource::Segment(index) => segment(*index),
    }
}
