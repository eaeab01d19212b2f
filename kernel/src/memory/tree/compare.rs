// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison of two trees: the pages at which one differs from the other.

use super::block_entries::block_entry;
use super::entry::{DecodedEntry, Entry};
use super::handle::Tree;
use super::level::{TOP, index, span};
use super::lookup::Lookup;
use crate::memory::frames::Frames;

/// The content of a page in two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) enum Comparison {
    /// Both trees have the same content there.
    Same,
    /// The content may differ.
    Different {
        /// The page in the first tree.
        own: Lookup,
        /// The page in the second tree.
        base: Lookup,
    },
}

/// A path down a tree: the entry that covers a page, and the level of its table.
#[derive(Clone, Copy)]
struct Descent {
    entry: Entry,
    level: u8,
}

impl Descent {
    fn new(tree: &Tree) -> Descent {
        Descent { entry: tree.link(), level: TOP + 1 }
    }

    /// Follows the entry if it links to a table. `false`: it does not.
    fn follow(&mut self, frames: &Frames, page: u64) -> bool {
        let DecodedEntry::Table { table, .. } = self.entry.decode(self.level) else { return false };
        self.level -= 1;
        self.entry = Entry(frames.arena().load(table, index(page, self.level)));
        true
    }

    fn lookup(self, page: u64) -> Lookup {
        let decoded = match self.entry.decode(self.level) {
            DecodedEntry::Block { block, permissions } => DecodedEntry::Block { block: block.offset(page % span(self.level)), permissions },
            decoded => decoded,
        };
        Lookup { decoded, level: self.level, is_owned: false }
    }
}

impl Tree {
    /// Compares the content of `page` with another tree's. Returns the page behind those for which the answer holds. Tables that both
    /// trees share are not examined.
    pub(in crate::memory) fn compare(&self, frames: &Frames, base: &Tree, page: u64) -> (Comparison, u64) {
        let (mut own, mut other) = (Descent::new(self), Descent::new(base));
        loop {
            let end = (page / span(own.level.min(other.level)) + 1) * span(own.level.min(other.level));
            if own.level == other.level && own.entry.sealed() == other.entry.sealed() {
                return (Comparison::Same, end);
            }
            let deeper = own.level.max(other.level);
            let own_follows = own.level == deeper && own.follow(frames, page);
            let other_follows = other.level == deeper && other.follow(frames, page);
            if own_follows || other_follows {
                continue;
            }
            // The side at the higher level is no table; the other may still be one.
            if own.follow(frames, page) || other.follow(frames, page) {
                continue;
            }
            let (own, base) = (own.lookup(page), other.lookup(page));
            let is_same = is_equal(frames, page, &own, &base);
            return (if is_same { Comparison::Same } else { Comparison::Different { own, base } }, end);
        }
    }

    /// The block that a present page of the registry contains, or that an entry names.
    pub(in crate::memory) fn block_of(frames: &Frames, lookup: &Lookup) -> Option<Entry> {
        match lookup.decoded {
            DecodedEntry::Block { block, permissions } => Some(Entry::block(block, permissions)),
            DecodedEntry::Page { frame, permissions, .. } if lookup.level == 1 => {
                block_entry(frames, Entry::page(frame, permissions, false))
            }
            _ => None,
        }
    }
}

/// Whether two entries give a page the same content and permissions.
fn is_equal(frames: &Frames, page: u64, own: &Lookup, base: &Lookup) -> bool {
    if own.permissions() != base.permissions() {
        return false;
    }
    match (own.decoded, base.decoded) {
        (DecodedEntry::Empty, DecodedEntry::Empty) => true,
        (DecodedEntry::Lazy { large, .. }, DecodedEntry::Lazy { large: other, .. }) => large == other,
        (DecodedEntry::Page { .. }, DecodedEntry::Page { .. }) if own.frame(page) == base.frame(page) => true,
        _ => Tree::block_of(frames, own).is_some_and(|block| Tree::block_of(frames, base) == Some(block)),
    }
}
