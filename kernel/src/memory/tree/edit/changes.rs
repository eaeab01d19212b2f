// SPDX-License-Identifier: MIT OR Apache-2.0
//! The changes that edits make: one function each, with the rules of the [page-table discipline](crate::memory) that it relies on.
//!
//! A change computes an entry and knows nothing of paths. [`walk`](super::walk) stores the entry in place or on a fresh path: in place
//! if nothing was present before (rule 1), or if the change answers a write fault and keeps a leaf a leaf.

use super::tables::Edit;
use super::walk::{EntryChange, Visit};
use crate::memory::swapped_page::SwapNumber;
use crate::memory::tree::block_entries::{block_entry, folded_entry, maps_blocks};
use crate::memory::tree::entry::{DecodedEntry, Entry};
use crate::memory::tree::level::span;
use pando_abi::Permissions;
use pando_machine::{FrameId, HugeFrame};

/// Stores non-present entries: nothing, lazy memory, or consecutive blocks of a disk, at the highest level that fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replace {
    /// The first page of the range.
    pub(super) start: u64,
    /// The entry of the first page.
    pub(super) first: Entry,
}

impl Replace {
    /// The new entry that begins at `page`.
    fn at(self, page: u64) -> Entry {
        self.first.offset(page - self.start)
    }
}

impl EntryChange for Replace {
    /// Rule 2 where something was present: an entry never becomes non-present in place. The pages that it held are free at once, and
    /// rule 4 keeps them from other cells until no vCPU runs on the old root. The tables are retired (rule 3).
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        let new = self.at(visit.pages.start);
        if visit.old.offset(visit.pages.start % span(visit.level)) == new {
            return visit.old;
        }
        if visit.is_whole() {
            if visit.level == 1 {
                edit.frames.note_accessed_entry(visit.old);
            }
            edit.frames.release_decoded(visit.decoded, visit.level);
            return new;
        }
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            _ => edit.descend_into_split(visit, self),
        }
    }
}

/// Sets the permissions of mapped pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protect(pub(super) Permissions);

impl EntryChange for Protect {
    /// Rule 1 for lazy memory, blocks and taken pages, which are not present. Rule 2 for pages, also if they only gain permissions: without
    /// a fault, no CPU and no KVM reads a leaf again.
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        let Protect(permissions) = self;
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Empty => visit.old,
            _ if !visit.is_whole() => edit.descend_into_split(visit, self),
            DecodedEntry::Lazy { large, .. } => Entry::lazy(permissions, large),
            DecodedEntry::Block { block, .. } => Entry::block(block, permissions),
            DecodedEntry::Taken { number, .. } => Entry::taken(number, permissions),
            DecodedEntry::Page { frame, .. } => {
                let entry = edit.page_with(frame, visit.level, permissions);
                if visit.old.is_accessed() { entry } else { entry.unaccessed() }
            }
        }
    }
}

/// Makes lazy memory and blocks that are in memory present. The answer to a write fault also makes them exclusive to the tree, as far
/// as their permissions allow writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Populate {
    /// Whether it answers a write fault.
    pub(super) write: bool,
}

impl EntryChange for Populate {
    fn is_write_fault(self) -> bool {
        self.write
    }

    /// Rule 1 in all of its parts. Non-present entries become present in place. At a write fault, a leaf becomes writable or the
    /// private copy of its page in place; the edit keeps the shared page, because a CPU may read it until the write is confirmed. Rule 2
    /// if a large page must be split, because a link replaces it.
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Empty | DecodedEntry::Taken { .. } => visit.old,
            DecodedEntry::Block { .. } if visit.level > 1 => edit.descend_into_split(visit, self),
            DecodedEntry::Block { block, permissions } if self.write && permissions.writable() => {
                edit.block_copy(block, permissions).unwrap_or(visit.old)
            }
            DecodedEntry::Block { block, permissions } => edit.block_page(block, permissions).unwrap_or(visit.old),
            DecodedEntry::Lazy { permissions, large } => {
                edit.zero_page(permissions, visit.level, large).unwrap_or_else(|| edit.descend_into_split(visit, self))
            }
            DecodedEntry::Page { permissions, writable, .. } if !self.write || writable || !permissions.writable() => visit.old,
            DecodedEntry::Page { frame, permissions, .. } if visit.level > 1 => {
                let entry = edit.exclusive_large_page(frame.huge_frame(), permissions);
                entry.unwrap_or_else(|| edit.descend_into_split(visit, self))
            }
            DecodedEntry::Page { frame, permissions, .. } => {
                let page = edit.exclusive_page(frame, permissions);
                if let Some(frame) = page.replaced
                    && let Some(earlier) = edit.replaced.replace(frame)
                {
                    edit.frames.release(earlier);
                }
                page.entry
            }
        }
    }
}

/// Makes blocks present that are in memory, shared with the registry; leaves all other entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapResident;

impl EntryChange for MapResident {
    /// Rule 1 alone: only non-present entries change.
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Block { .. } if visit.level > 1 => edit.descend_into_split(visit, self),
            DecodedEntry::Block { block, permissions } => edit.block_page(block, permissions).unwrap_or(visit.old),
            DecodedEntry::Empty | DecodedEntry::Lazy { .. } | DecodedEntry::Taken { .. } | DecodedEntry::Page { .. } => visit.old,
        }
    }
}

/// Replaces the registry's pages by the entries of their blocks, and whole tables of them by one entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evict;

impl EntryChange for Evict {
    /// Rule 2: present entries become non-present. The registry may give the frames to other cells afterwards. So the cell must not be
    /// running (rule 4), and the tables are retired (rule 3).
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } if visit.level == 2 => {
                if !maps_blocks(edit.frames, table) {
                    return visit.old;
                }
                match folded_entry(edit.frames, table) {
                    Some(entry) => {
                        edit.frames.note_accessed_entries(table);
                        edit.frames.release_decoded(visit.decoded, visit.level);
                        entry
                    }
                    None => edit.descend(visit, (table, is_owned), self),
                }
            }
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Page { frame, .. } if visit.level == 1 => match block_entry(edit.frames, visit.old) {
                Some(entry) => {
                    edit.frames.note_accessed_entry(visit.old);
                    edit.frames.release(frame);
                    entry
                }
                None => visit.old,
            },
            DecodedEntry::Empty
            | DecodedEntry::Lazy { .. }
            | DecodedEntry::Block { .. }
            | DecodedEntry::Taken { .. }
            | DecodedEntry::Page { .. } => visit.old,
        }
    }
}

/// Moves the path to a page into fresh tables, and changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenewPath;

impl EntryChange for RenewPath {
    fn renews_path(self) -> bool {
        true
    }

    /// The end of rule 1: a copy that was put in place and not confirmed becomes visible to all CPUs at once by a fresh path (rule 2).
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            _ => visit.old,
        }
    }
}

/// Makes pages present and exclusive to the tree, whatever their permissions: the kernel is about to write (rule 5).
#[derive(Clone, Copy, Debug)]
pub(super) struct Unshare;

impl EntryChange for Unshare {
    /// Rule 1 where nothing was present. Rule 2 for a shared page: this is no answer to a write fault, so nothing makes a CPU read the
    /// leaf again. The shared page is released at once, because the fresh path no longer maps it (rule 4).
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Empty | DecodedEntry::Taken { .. } => visit.old,
            DecodedEntry::Block { .. } if visit.level > 1 => edit.descend_into_split(visit, self),
            DecodedEntry::Block { block, permissions } => edit.block_copy(block, permissions).unwrap_or(visit.old),
            DecodedEntry::Lazy { permissions, large } => {
                edit.zero_page(permissions, visit.level, large).unwrap_or_else(|| edit.descend_into_split(visit, self))
            }
            DecodedEntry::Page { frame, permissions, .. } if visit.level > 1 => {
                let huge_frame = frame.huge_frame();
                let entry = if visit.is_whole() {
                    edit.unshared_large_page(huge_frame, permissions)
                } else {
                    edit.exclusive_large_page(huge_frame, permissions)
                };
                entry.unwrap_or_else(|| edit.descend_into_split(visit, self))
            }
            DecodedEntry::Page { frame, permissions, .. } => edit.unshared_page(frame, permissions),
        }
    }
}

/// Replaces pages that are these frames by the entries of taken ones, whose numbers count up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Take<'a> {
    /// The first page of the range.
    pub(super) start: u64,
    /// The frame of each page. Other pages stay.
    pub(super) taken: &'a [FrameId],
    /// The number of the first page.
    pub(super) first: SwapNumber,
}

impl EntryChange for Take<'_> {
    /// Rule 2: present entries become non-present. The frames are free when the last space has lost them, so the cell must not be running
    /// (rule 4), and the tables are retired (rule 3). A large page is split on the fresh path.
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Page { .. } if visit.level > 1 => edit.descend_into_split(visit, self),
            DecodedEntry::Page { frame, permissions, .. } => {
                let page = visit.pages.start - self.start;
                if self.taken.get(page as usize) != Some(&frame) {
                    return visit.old;
                }
                edit.frames.release(frame);
                Entry::taken(self.first.offset(page), permissions)
            }
            DecodedEntry::Empty | DecodedEntry::Lazy { .. } | DecodedEntry::Block { .. } | DecodedEntry::Taken { .. } => visit.old,
        }
    }
}

/// Stores the entries of taken pages, whose numbers count up, where nothing is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct BuildTaken {
    /// The first page of the range.
    pub(super) start: u64,
    /// The number of the first page.
    pub(super) first: SwapNumber,
    /// The permissions of all pages.
    pub(super) permissions: Permissions,
}

impl EntryChange for BuildTaken {
    /// Rule 1 alone: only entries change that are not present, and they stay so.
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Empty if visit.level > 1 => edit.descend_into_split(visit, self),
            DecodedEntry::Empty => Entry::taken(self.first.offset(visit.pages.start - self.start), self.permissions),
            DecodedEntry::Lazy { .. } | DecodedEntry::Block { .. } | DecodedEntry::Taken { .. } | DecodedEntry::Page { .. } => visit.old,
        }
    }
}

/// Makes taken pages present again, exclusive to the tree, with these frames as their content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Give<'a> {
    /// The first page of the range.
    pub(super) start: u64,
    /// The frame to copy for each page; `None`: zeros.
    pub(super) sources: &'a [Option<FrameId>],
}

impl EntryChange for Give<'_> {
    /// Rule 1 alone: only non-present entries change.
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Taken { permissions, .. } => {
                let source = self.sources.get((visit.pages.start - self.start) as usize).copied().flatten();
                let frame = edit.frames.allocate(edit.account, source.is_none()).expect("the operation has reserved it");
                if let Some(source) = source {
                    edit.frames.arena().copy(source, frame);
                }
                Entry::page(frame, permissions, true)
            }
            DecodedEntry::Empty | DecodedEntry::Lazy { .. } | DecodedEntry::Block { .. } | DecodedEntry::Page { .. } => visit.old,
        }
    }
}

/// Collapses a table of pages into a large page that contains copies of them, as khugepaged does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collapse {
    /// The copies, exclusive to the tree.
    pub(super) huge_frame: HugeFrame,
    /// The permissions of all pages.
    pub(super) permissions: Permissions,
}

impl EntryChange for Collapse {
    /// Rule 2: a leaf replaces a link. The pages and the table are released, because the fresh path no longer maps them (rules 3 and 4).
    fn new_entry(self, edit: &mut Edit<'_>, visit: &Visit) -> Entry {
        match visit.decoded {
            DecodedEntry::Table { .. } if visit.level == 2 => {
                edit.frames.release_decoded(visit.decoded, visit.level);
                Entry::large_page(self.huge_frame, self.permissions, true)
            }
            DecodedEntry::Table { table, is_owned } => edit.descend(visit, (table, is_owned), self),
            DecodedEntry::Empty
            | DecodedEntry::Lazy { .. }
            | DecodedEntry::Block { .. }
            | DecodedEntry::Taken { .. }
            | DecodedEntry::Page { .. } => visit.old,
        }
    }
}
