// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory of the overlay: the names added to those of the image, and those removed.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use super::InodeRef;
use super::volume::ImageInode;

/// The state of a name in an overlay directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dentry {
    /// It has this file.
    Positive(InodeRef),
    /// It was removed.
    Whiteout,
    /// Unknown here: the image decides.
    Unknown,
}

/// The entry of a name.
#[derive(Clone, Copy, Debug)]
struct Name {
    /// Its file; `None`: it was removed.
    inode: Option<InodeRef>,
    /// Its number in `order`; `None`: the image has the name too, and it is listed at the image's position.
    number: Option<u64>,
}

/// A directory of the overlay.
#[derive(Debug)]
pub struct Directory {
    /// The parent directory, as it was found.
    pub parent: InodeRef,
    /// The image's directory below.
    pub below: Option<ImageInode>,
    names: BTreeMap<Arc<[u8]>, Name>,
    /// The names that only the overlay has, numbered in order of addition, so that a listing can continue after additions and removals.
    order: BTreeMap<u64, Arc<[u8]>>,
    next: u64,
}

impl Directory {
    /// An empty directory.
    #[must_use]
    pub fn new(parent: InodeRef, below: Option<ImageInode>) -> Directory {
        Directory { parent, below, names: BTreeMap::new(), order: BTreeMap::new(), next: 0 }
    }

    /// The state of a name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Dentry {
        match self.names.get(name) {
            Some(Name { inode: Some(inode), .. }) => Dentry::Positive(*inode),
            Some(Name { inode: None, .. }) => Dentry::Whiteout,
            None => Dentry::Unknown,
        }
    }

    /// Sets the file of a name. `is_below`: the image has the name too.
    pub fn put(&mut self, name: &[u8], inode: InodeRef, is_below: bool) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.inode = Some(inode);
            return;
        }
        let name: Arc<[u8]> = name.into();
        let number = if is_below {
            None
        } else {
            self.order.insert(self.next, Arc::clone(&name));
            self.next += 1;
            Some(self.next - 1)
        };
        self.names.insert(name, Name { inode: Some(inode), number });
    }

    /// Removes a name. `is_below`: the image has it.
    pub fn remove(&mut self, name: &[u8], is_below: bool) {
        if is_below {
            match self.names.get_mut(name) {
                Some(entry) => entry.inode = None,
                None => drop(self.names.insert(name.into(), Name { inode: None, number: None })),
            }
        } else if let Some(Name { number: Some(number), .. }) = self.names.remove(name) {
            self.order.remove(&number);
        }
    }

    /// The number of a name that only the overlay has.
    #[must_use]
    pub fn number(&self, name: &[u8]) -> Option<u64> {
        self.names.get(name)?.number
    }

    /// The names that only the overlay has, from this number on.
    pub fn added(&self, from: u64) -> impl Iterator<Item = (u64, &[u8], InodeRef)> {
        self.order.range(from..).filter_map(|(&number, name)| match self.get(name) {
            Dentry::Positive(inode) => Some((number, &**name, inode)),
            Dentry::Whiteout | Dentry::Unknown => None,
        })
    }
}
