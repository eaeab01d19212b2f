// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shadow cache of page tables: an adversarial model of KVM's shadow paging, which forgets only what it must.
//!
//! KVM keeps a copy of each used table, identified by the table's frame, its level and the permissions of the entries above it. It does not
//! notice when the host process edits the original. Here each used entry is cached under that identity until the whole cache is dropped:
//! - a cached entry is used unchanged, whatever the table holds now;
//! - a missing one is read from the table, and non-present ones are never cached;
//! - a fault replaces the leaf that it reaches, and nothing above it: links stay, stale ones included, and large pages stay large;
//! - the seven neighbours of a leaf are fetched with it, so an entry need not have been used to be cached.

use super::tables::{ACCESSED, Access, DIRTY, EntryTarget, Path, ROOT_LEVEL};
use crate::{Arena, EntryIndex, FrameId};
use rustc_hash::FxHashMap;

/// Leaves that a fault fills: KVM's prefetch.
const PREFETCH: usize = 8;

/// A cached entry.
#[derive(Clone, Copy, Debug)]
enum ShadowEntry {
    /// A table of the next level, and the permissions of the entries down to it when the link was made.
    Link { table: FrameId, access: Access },
    /// A page: its first frame, the permissions of its own entry, whether writes may pass without setting the dirty bit.
    Page { first: FrameId, own: Access, dirty: bool },
}

/// The page at which an address ends in the shadow.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShadowPage {
    pub(super) first: FrameId,
    pub(super) level: u8,
    pub(super) access: Access,
    pub(super) dirty: bool,
}

/// The shadow cache.
#[derive(Default)]
pub(super) struct Shadow(FxHashMap<u64, ShadowEntry>);

/// A table in the shadow. The same frame with other permissions, or at another level, is another table.
#[derive(Clone, Copy)]
struct ShadowTable {
    table: FrameId,
    level: u8,
    access: Access,
}

impl ShadowTable {
    fn root(table: FrameId) -> ShadowTable {
        ShadowTable { table, level: ROOT_LEVEL, access: Access::ALL }
    }

    fn below(self, table: FrameId, access: Access) -> ShadowTable {
        ShadowTable { table, level: self.level - 1, access }
    }

    /// The key of one of its entries: frame, level, permissions and index packed into a word.
    fn entry(self, index: EntryIndex) -> u64 {
        u64::from(self.table.0) << 14 | u64::from(self.level - 1) << 12 | u64::from(self.access.bits()) << 9 | index.get() as u64
    }
}

impl Shadow {
    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.0 = FxHashMap::default();
    }

    /// Translates `address` through cached entries, and through the tables where there are none. `None`: it ends at no page.
    pub(super) fn look_up(&mut self, arena: &Arena, root: FrameId, address: u64) -> Option<ShadowPage> {
        let mut place = ShadowTable::root(root);
        loop {
            let index = EntryIndex::of(address, place.level);
            let remembered = match self.0.get(&place.entry(index)) {
                Some(remembered) => *remembered,
                None => self.take(arena, place, index)?,
            };
            match remembered {
                ShadowEntry::Link { table, access } => place = place.below(table, access),
                ShadowEntry::Page { first, own, dirty } => {
                    return Some(ShadowPage { first, level: place.level, access: place.access.and(own), dirty });
                }
            }
        }
    }

    /// Handles a fault on `address` that the tables permit, as KVM does: the page that `path` found replaces the leaf, links above it stay.
    pub(super) fn resync(&mut self, arena: &Arena, root: FrameId, address: u64, path: &Path, leaf: u64) {
        let mut place = ShadowTable::root(root);
        while place.level > path.level {
            let (_, entry) = path.step(place.level);
            let (child, _) = path.step(place.level - 1);
            let link = ShadowEntry::Link { table: child, access: place.access.and(Access::of(entry)) };
            match *self.0.entry(place.entry(EntryIndex::of(address, place.level))).or_insert(link) {
                ShadowEntry::Link { table, access } => place = place.below(table, access),
                ShadowEntry::Page { .. } => return,
            }
        }
        let index = EntryIndex::of(address, place.level);
        let page = ShadowEntry::Page { first: path.first, own: Access::of(leaf), dirty: leaf & DIRTY != 0 };
        self.0.insert(place.entry(index), page);
        self.prefetch(arena, place, index);
    }

    /// Caches an entry as its table has it now, if it is present and has been used.
    fn take(&mut self, arena: &Arena, place: ShadowTable, index: EntryIndex) -> Option<ShadowEntry> {
        let remembered = read(arena, place, index)?;
        self.0.insert(place.entry(index), remembered);
        self.prefetch(arena, place, index);
        Some(remembered)
    }

    /// Caches the neighbours of a leaf of 4 KiB.
    fn prefetch(&mut self, arena: &Arena, place: ShadowTable, index: EntryIndex) {
        if place.level != 1 {
            return;
        }
        let first = index.get() / PREFETCH * PREFETCH;
        for neighbour in (first..first + PREFETCH).map(EntryIndex::new) {
            let name = place.entry(neighbour);
            if let Some(remembered) = read(arena, place, neighbour)
                && !self.0.contains_key(&name)
            {
                self.0.insert(name, remembered);
            }
        }
    }
}

/// The cached form of an entry. `None`: it is not present, was never used (its accessed bit is clear), or leads nowhere valid.
fn read(arena: &Arena, place: ShadowTable, index: EntryIndex) -> Option<ShadowEntry> {
    let entry = arena.load(place.table, index);
    if entry & ACCESSED == 0 {
        return None;
    }
    match EntryTarget::of(arena, entry, place.level) {
        EntryTarget::Table(table) => Some(ShadowEntry::Link { table, access: place.access.and(Access::of(entry)) }),
        EntryTarget::Page(first) => Some(ShadowEntry::Page { first, own: Access::of(entry), dirty: entry & DIRTY != 0 }),
        EntryTarget::Absent | EntryTarget::Reserved | EntryTarget::Outside => None,
    }
}
