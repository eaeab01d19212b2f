// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones: of a space for the same cell, and of all memory for another cell.

use super::set::{Segment, SpaceSet, insert_at_free_index};
use super::space::{MountSource, Space};
use crate::memory::frames::{AccountId, Frames};
use crate::memory::prefetch::{CopyClusters, PrefetchState};
use pando_abi::limits::MAX_SPACES;
use pando_abi::{Refusal, SpaceIndex};

impl SpaceSet {
    /// Clones a space: private memory copy-on-write, segments shared. Copies the pages that the space or its clone is expected to
    /// write ([`ForkPrefetch`](crate::memory::prefetch)). O(mounts).
    ///
    /// # Errors
    /// There is no such space, or the cell has too many.
    pub fn clone_space(&mut self, frames: &mut Frames, index: SpaceIndex) -> Result<SpaceIndex, Refusal> {
        let mounts = self.space(index)?.mounts.len();
        self.check_room(mounts)?;
        let copy = SpaceIndex(insert_at_free_index(&mut self.spaces, Space::default(), MAX_SPACES)?);
        let mounts = clone_mounts(frames, self.space(index)?);
        for (slot, source) in mounts {
            if let MountSource::Segment(segment) = source {
                self.segment(segment)?.mounts += 1;
            }
            self.space(copy)?.mount(frames, slot, source);
        }
        self.space(copy)?.cloned_from = Some(index);
        // The pages that are shared from now on may be written less densely.
        self.clusters.forget(index);
        self.clusters.forget(copy);
        let [by_parent, by_child] = self.space(index)?.fork_prefetch.next_clone();
        self.unshare_each(frames, copy, &by_child);
        self.unshare_each(frames, index, &by_parent);
        Ok(copy)
    }

    /// Clones everything for another cell, copy-on-write on both sides; `account` pays for its writes. O(mounts + segments).
    #[must_use]
    pub fn clone_set(&mut self, frames: &mut Frames, account: AccountId) -> SpaceSet {
        let segments = self
            .segments
            .iter_mut()
            .map(|segment| segment.as_mut().map(|segment| Segment { tree: segment.tree.clone_tree(frames), mounts: segment.mounts }))
            .collect();
        let mut copies = Vec::with_capacity(self.spaces.len());
        for space in &mut self.spaces {
            copies.push(space.as_mut().map(|space| {
                let mut copy = Space::default();
                copy.cloned_from = space.cloned_from;
                for (slot, source) in clone_mounts(frames, space) {
                    copy.mount(frames, slot, source);
                }
                copy
            }));
        }
        SpaceSet {
            account,
            spaces: copies,
            segments,
            disks: self.disks.clone(),
            current: self.current,
            training_trace: None,
            start_trace: None,
            is_starting: false,
            clone_traces: None,
            prefetch: PrefetchState::new(self.prefetch_set_for_clones()),
            clusters: CopyClusters::default(),
            had_pages_taken: self.had_pages_taken,
        }
    }
}

/// The mounts of a clone of a space.
fn clone_mounts(frames: &mut Frames, space: &mut Space) -> Vec<(usize, MountSource)> {
    let clone = |source: &mut MountSource, frames: &mut Frames| match source {
        MountSource::Private(tree) => MountSource::Private(tree.clone_tree(frames)),
        MountSource::Segment(index) => MountSource::Segment(*index),
    };
    space.mounts.iter_mut().map(|mount| (mount.slot, clone(&mut mount.source, frames))).collect()
}
