// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eviction from the cache of a mount: the server has an open descriptor for each inode that the cell knows.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pando_rt::memory;

use crate::erofs::FileType;
use crate::files::Files;
use crate::files::tree::InodeRef;
use crate::files::tree::node::NodeId;

/// Inodes of a mount that are kept, if more are in use the next eviction comes later.
const INODES: usize = 14_000;
/// Bytes of a closed file that stay in the cache.
const CLOSED_MAX: u64 = 256 << 10;
/// Free pages below which no content of a closed file stays: 64 MiB.
const LEFT_MIN: u64 = 16 << 10;

impl Files {
    /// Forgets files of mounts that know too many. Files and directories in use stay.
    pub fn evict_live(&mut self) {
        for index in 0..self.mounts.list.len() {
            let mount = &self.mounts.list[index];
            if mount.nodes.len() <= INODES.max(mount.kept) {
                continue;
            }
            let all: Vec<NodeId> = mount.nodes.values().copied().collect();
            for id in all {
                if let Some((directory, name)) = self.evictable(id) {
                    self.remove_entry(directory, &name);
                }
            }
            let mount = &mut self.mounts.list[index];
            mount.kept = mount.nodes.len() + INODES / 4;
        }
    }

    /// The name of a file that can be forgotten.
    fn evictable(&self, id: NodeId) -> Option<(NodeId, Box<[u8]>)> {
        let node = self.tree.node(id).ok()?;
        let live = node.live.as_deref()?;
        let (directory, name, _) = live.entry.as_ref()?;
        let is_used = live.handle.is_some() || live.in_flight > 0 || live.is_mapped || live.is_watched || node.links > 1;
        let is_file = matches!(node.kind(), FileType::Regular | FileType::Symlink);
        let is_idle = is_file && !is_used && !self.is_open(InodeRef::Node(id)) && !self.is_open(InodeRef::Node(*directory));
        is_idle.then(|| (*directory, name.clone()))
    }

    /// Forgets the content of a file that no process has open, if it is large or memory is short.
    pub(super) fn shrink_closed(&mut self, id: NodeId) {
        let size = self.tree.node(id).and_then(|node| node.content()).map_or(0, |content| content.size());
        if size > CLOSED_MAX || memory::free_pages() < LEFT_MIN {
            self.forget_content(id);
        }
    }
}
