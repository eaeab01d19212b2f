// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shadow cache of page tables: what KVM keeps under shadow paging, made as forgetful as it may count on and no more.
//!
//! KVM keeps a copy of each table that was used, named by the table's frame, its level and what the entries above it allow, and is not told when the
//! host process edits the original. Here each used entry is remembered under that name until the whole cache is dropped:
//! - a remembered entry is used as it is, whatever the table says now;
//! - a missing one is taken from the table, and non-present ones are never remembered;
//! - a fault replaces the leaf it arrives at, and nothing above it: links stay, also stale ones, and large pages stay large;
//! - the seven neighbours of a leaf are fetched with it, so an entry need not have been used to be remembered.

use super::tables::{ACCESSED, Access, DIRTY, Path, ROOT_LEVEL, Target};
use crate::{Arena, EntryIndex, FrameId};
use rustc_hash::FxHashMap;

/// How many leaves a fault fills: KVM's prefetch.
const PREFETCH: usize = 8;

/// A remembered entry.
#[derive(Clone, Copy, Debug)]
enum Remembered {
    /// A table of the next level, and what the entries down to it allowed when the link was made.
    Link { table: FrameId, access: Access },
    /// A page: its first frame, what its own entry allows, whether writes may pass without setting the dirty bit.
    Page { first: FrameId, own: Access, dirty: bool },
}

/// Where an address ends in the shadow.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShadowPage {
    pub(super) first: FrameId,
    pub(super) level: u8,
    pub(super) access: Access,
    pub(super) dirty: bool,
}

/// The shadow cache.
#[derive(Default)]
pub(super) struct Shadow(FxHashMap<u64, Remembered>);

/// A table in the shadow: the same frame reached with other permissions, or at another level, is another.
#[derive(Clone, Copy)]
struct Place {
    table: FrameId,
    level: u8,
    access: Access,
}

impl Place {
    fn root(table: FrameId) -> Place {
        Place { table, level: ROOT_LEVEL, access: Access::ALL }
    }

    fn below(self, table: FrameId, access: Access) -> Place {
        Place { table, level: self.level - 1, access }
    }

    /// The name of one of its entries: frame, level, permissions and index packed into a word.
    fn entry(self, index: EntryIndex) -> u64 {
        u64::from(self.table.0) << 14 | u64::from(self.level - 1) << 12 | u64::from(self.access.bits()) << 9 | index.get() as u64
    }
}

impl Shadow {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.0 = FxHashMap::default();
    }

    /// Follows `address` through what is remembered, and through the tables where nothing is. `None`: it ends at no page.
    pub(super) fn look_up(&mut self, arena: &Arena, root: FrameId, address: u64) -> Option<ShadowPage> {
        let mut place = Place::root(root);
        loop {
            let index = EntryIndex::of(address, place.level);
            let remembered = match self.0.get(&place.entry(index)) {
                Some(remembered) => *remembered,
                None => self.take(arena, place, index)?,
            };
            match remembered {
                Remembered::Link { table, access } => place = place.below(table, access),
                Remembered::Page { first, own, dirty } => {
                    return Some(ShadowPage { first, level: place.level, access: place.access.and(own), dirty });
                }
            }
        }
    }

    /// Answers a fault on `address` that the tables permit, as KVM does: the page that `path` found replaces the leaf, links above it stay.
    pub(super) fn resync(&mut self, arena: &Arena, root: FrameId, address: u64, path: &Path, leaf: u64) {
        let mut place = Place::root(root);
        while place.level > path.level {
            let (_, entry) = path.step(place.level);
            let (child, _) = path.step(place.level - 1);
            let link = Remembered::Link { table: child, access: place.access.and(Access::of(entry)) };
            match *self.0.entry(place.entry(EntryIndex::of(address, place.level))).or_insert(link) {
                Remembered::Link { table, access } => place = place.below(table, access),
                Remembered::Page { .. } => return,
            }
        }
        let index = EntryIndex::of(address, place.level);
        let page = Remembered::Page { first: path.first, own: Access::of(leaf), dirty: leaf & DIRTY != 0 };
        self.0.insert(place.entry(index), page);
        self.prefetch(arena, place, index);
    }

    /// Remembers an entry as its table has it now, if it is present and has been used.
    fn take(&mut self, arena: &Arena, place: Place, index: EntryIndex) -> Option<Remembered> {
        let remembered = read(arena, place, index)?;
        self.0.insert(place.entry(index), remembered);
        self.prefetch(arena, place, index);
        Some(remembered)
    }

    /// Remembers the neighbours of a leaf of 4 KiB.
    fn prefetch(&mut self, arena: &Arena, place: Place, index: EntryIndex) {
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

/// What an entry would be remembered as. `None`: it is not present, was never used (its accessed bit is clear), or is none that can be followed.
fn read(arena: &Arena, place: Place, index: EntryIndex) -> Option<Remembered> {
    let entry = arena.load(place.table, index);
    if entry & ACCESSED == 0 {
        return None;
    }
    match Target::of(arena, entry, place.level) {
        Target::Table(table) => Some(Remembered::Link { table, access: place.access.and(Access::of(entry)) }),
        Target::Page(first) => Some(Remembered::Page { first, own: Access::of(entry), dirty: entry & DIRTY != 0 }),
        Target::Absent | Target::Reserved | Target::Outside => None,
    }
}
