// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared anonymous memory as a file without a name, as Linux's `shmem_zero_setup` creates it.
//!
//! Usually it needs no file: it lies in the shared segment, or belongs to one process alone. It becomes a file when a process moves
//! pages that others share, and when a process that has such memory outside the segment forks. Then its mappings may lie at different
//! addresses, and are synchronised like those of other files ([`crate::mapped_files`]).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use pando_abi::Permissions;
use pando_rt::memory::{self, PageRange};
use pando_rt::{clock, user};

use super::everything;
use crate::credentials::Owner;
use crate::errno::Errno;
use crate::files::sharing::Sharing;
use crate::files::status::time;
use crate::files::tree::node::NodeId;
use crate::memory::AddressSpace;
use crate::memory::layout::is_shared;
use crate::memory::regions::{Backing, NodePages, Region, SharedObject};
use crate::system::System;

/// The pages of an object among some regions.
fn pages_of(object: SharedObject, regions: Vec<(PageRange, Region)>) -> Vec<(PageRange, Region)> {
    regions.into_iter().filter(|(_, region)| region.backing == Backing::Shared(object)).collect()
}

impl System {
    /// Whether other processes have pages of an object in the shared segment.
    pub(super) fn is_object_of_others(&self, object: SharedObject) -> bool {
        let has = |memory: &AddressSpace, all| !pages_of(object, memory.pieces(all)).is_empty();
        everything().is_some_and(|all| self.other_memories().any(|memory| has(memory, all)))
    }

    /// Turns an object in the shared segment into a file, for all processes. Returns the file at the object's addresses.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn make_file_of_shared(&mut self, object: SharedObject) -> Result<NodePages, Errno> {
        let all = everything().ok_or(Errno::ENOMEM)?;
        let file = self.make_file(object)?;
        let backing = Backing::Node(file);
        for (pages, region) in pages_of(object, self.others.shared.pieces(all)) {
            // Pages that the running process may not read are read here, too. `apply_permissions` restores the permissions.
            memory::protect(pages, Permissions::READ_WRITE)?;
            self.requeue_words(pages, file);
            self.others.shared.put(pages, Region { backing, ..region });
            self.others.contested.put(pages, Region { permissions: Permissions::READ_WRITE, backing });
        }
        for memory in self.others.memories.values_mut().chain([&mut self.memory]) {
            for (pages, region) in pages_of(object, memory.pieces(all)) {
                memory.note(pages, Region { backing, ..region });
            }
        }
        self.sync_mappings_of(file.node, &(0..u64::MAX));
        self.apply_permissions();
        Ok(file)
    }

    /// Turns the shared anonymous memory that the running process has outside the shared segment into files: a child inherits it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn make_files_before_fork(&mut self) -> Result<(), Errno> {
        for (pages, region) in self.memory.all() {
            let Backing::Shared(object) = region.backing else { continue };
            if is_shared(pages.start()) {
                continue;
            }
            let file = self.make_file(object)?;
            let regions = PageRange::new(0, user::END).map(|all| self.memory.pieces(all)).unwrap_or_default();
            // The loop meets later parts of the object, too; they have become the file's by then.
            for (pages, region) in pages_of(object, regions).into_iter().filter(|(pages, _)| !is_shared(pages.start())) {
                self.requeue_words(pages, file);
                self.memory.note(pages, Region { backing: Backing::Node(file), ..region });
                memory::protect(pages, Permissions::READ_WRITE)?;
                self.sync_mappings_of(file.node, &(0..u64::MAX));
                memory::protect(pages, region.permissions)?;
            }
        }
        Ok(())
    }

    /// Whether a mapping in the shared segment is out of reach of processes that do not have it. Files may be read there.
    pub(crate) fn is_hidden_from_others(&self, backing: Backing) -> bool {
        !backing.is_nothing() && backing.node().is_none_or(|file| self.others.anonymous_files.contains(&file.node))
    }

    /// Creates the file of an object, without content.
    fn make_file(&mut self, object: SharedObject) -> Result<NodePages, Errno> {
        self.free_unmapped_files();
        let owner = Owner { uid: 0, gid: 0, permissions: 0o777 };
        let root = self.files.tree.root();
        let node = self.files.nameless(root, owner, time(clock::wall())).map_err(|_| Errno::ENOMEM)?;
        self.others.anonymous_files.push(node);
        self.files.tree.node_mut(node)?.content_mut()?.resize(object.bytes()).map_err(|_| Errno::ENOMEM)?;
        Ok(NodePages::new(node, Sharing::Writes, object.start(), 0))
    }

    /// Removes the files of shared anonymous memory that no process has mapped any more.
    pub(crate) fn free_unmapped_files(&mut self) {
        if self.others.anonymous_files.is_empty() {
            return;
        }
        let memories = self.other_memories().chain([&*self.memory]).flat_map(AddressSpace::all);
        let regions = memories.chain(self.others.shared.all());
        let mapped: BTreeSet<NodeId> = regions.filter_map(|(_, region)| region.backing.node()).map(|file| file.node).collect();
        for node in core::mem::take(&mut self.others.anonymous_files) {
            if mapped.contains(&node) {
                self.others.anonymous_files.push(node);
            } else {
                self.files.tree.forget(node);
            }
        }
    }
}
