// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the changes of the root volume. Trees may be deeper than the stack allows, so the pending directories are kept in a list.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use pando_rt::abi::channel::MAX_PATH;

use super::{EXCLUDED_PATHS, OPAQUE, WHITEOUT};
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::tree::node::{Body, NodeId};
use crate::files::tree::volume::{ImageInode, VolumeIndex};
use crate::files::tree::{InodeRef, Tree, room};

/// The content of an archive at a path.
#[derive(Clone, Copy, Debug)]
pub enum ChangeKind {
    /// A file.
    Present(InodeRef),
    /// Another name of the file of the change with this number.
    Link(usize),
    /// An empty file whose name says that files of lower layers are hidden.
    Whiteout,
}

/// A change at a path.
#[derive(Debug)]
pub struct PathChange {
    /// The path, relative to the root.
    pub path: Box<[u8]>,
    /// The change.
    pub kind: ChangeKind,
}

/// The first names of files with several.
#[derive(Default)]
struct Links {
    nodes: BTreeMap<NodeId, usize>,
    inodes: BTreeMap<ImageInode, usize>,
}

struct Walk<'a> {
    tree: &'a Tree,
    changes: Vec<PathChange>,
    links: Links,
    /// Files of the volume have changed, possibly in directories whose own names have not.
    has_nested_changes: bool,
    /// Directories whose names are to be visited: the directory now, and the one that the lower layers have there.
    pending: Vec<(Box<[u8]>, InodeRef, Option<ImageInode>)>,
}

/// The changes of the root volume, directories before their content.
///
/// # Errors
/// `ENOSPC`, `EIO`; `ENAMETOOLONG`: a path is too long.
pub fn changes(tree: &Tree) -> Result<Vec<PathChange>, Errno> {
    let top = ImageInode { volume: VolumeIndex::ROOT, nid: tree.volume(VolumeIndex::ROOT)?.image.root() };
    let is_changed = |(inode, id): (ImageInode, NodeId)| {
        inode != top && inode.volume == VolumeIndex::ROOT && has_changed(tree, InodeRef::Node(id), Some(inode)) != Ok(false)
    };
    let has_nested_changes = tree.nodes_of_inodes().any(is_changed);
    let mut walk = Walk { tree, changes: Vec::new(), links: Links::default(), has_nested_changes, pending: Vec::new() };
    walk.pending.push((Box::default(), tree.real_inode(InodeRef::Image(top)), Some(top)));
    while let Some((path, directory, below)) = walk.pending.pop() {
        walk.visit(path.into_vec(), directory, below)?;
    }
    Ok(walk.changes)
}

/// Whether a file differs from the one that the lower layers have at its path.
fn has_changed(tree: &Tree, inode: InodeRef, original: Option<ImageInode>) -> Result<bool, Errno> {
    match tree.real_inode(inode) {
        InodeRef::Image(image) => Ok(original != Some(image)),
        InodeRef::Node(id) => {
            let node = tree.node(id)?;
            // A node made from an inode starts with equal timestamps.
            Ok(node.origin.is_none() || node.origin != original || node.times.changed != node.times.born)
        }
        InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::EIO),
    }
}

impl Walk<'_> {
    /// Visits the names of a directory. `below` is the directory that the lower layers have there.
    fn visit(&mut self, mut path: Vec<u8>, directory: InodeRef, below: Option<ImageInode>) -> Result<(), Errno> {
        let tree = self.tree;
        let mut outcome = Ok(());
        tree.list(directory, 0, |listed| {
            if !matches!(listed.name, b"." | b"..") {
                outcome = self.child(&mut path, directory, below, listed.name);
            }
            outcome.is_ok()
        })?;
        outcome?;
        match below {
            Some(below) if !matches!(directory, InodeRef::Image(image) if image == below) => self.removed(&path, directory, below),
            _ => Ok(()),
        }
    }

    fn child(&mut self, path: &mut Vec<u8>, directory: InodeRef, below: Option<ImageInode>, name: &[u8]) -> Result<(), Errno> {
        let tree = self.tree;
        let inode = tree.real_inode(tree.lookup(directory, name)?);
        if tree.volume_of(inode) != Some(VolumeIndex::ROOT) {
            // Another file system is mounted there.
            return Ok(());
        }
        let length = path.len();
        append(path, name);
        let done = match EXCLUDED_PATHS.contains(&&path[..]) {
            true => Ok(()),
            false => below.map_or(Ok(None), |below| tree.original(below, name)).and_then(|original| self.file(path, inode, original)),
        };
        path.truncate(length);
        done
    }

    /// Compares a file with the one that the lower layers have at its path.
    fn file(&mut self, path: &[u8], inode: InodeRef, original: Option<ImageInode>) -> Result<(), Errno> {
        let tree = self.tree;
        if path.len() > MAX_PATH {
            return Err(Errno::ENAMETOOLONG);
        }
        match tree.kind(inode)? {
            FileType::Directory => {
                let merged = original.filter(|original| Some(*original) == directory_below(tree, inode));
                if merged.is_none() || has_changed(tree, inode, original)? {
                    self.add(path, ChangeKind::Present(inode))?;
                }
                if merged.is_none() && original.is_some() {
                    let mut marker = path.to_vec();
                    append(&mut marker, OPAQUE);
                    self.add(&marker, ChangeKind::Whiteout)?;
                }
                let is_untouched = matches!(inode, InodeRef::Image(image) if Some(image) == merged);
                if !is_untouched || self.has_nested_changes {
                    room()?;
                    self.pending.push((path.into(), inode, merged));
                }
                Ok(())
            }
            FileType::Socket => Ok(()),
            _ if !has_changed(tree, inode, original)? => Ok(()),
            _ => {
                let number = self.changes.len();
                let first = self.links.first(inode, tree, number)?;
                self.add(path, first.map_or(ChangeKind::Present(inode), ChangeKind::Link))
            }
        }
    }

    /// Adds whiteouts for the names that the lower layers have in a directory, and that were removed.
    fn removed(&mut self, path: &[u8], directory: InodeRef, below: ImageInode) -> Result<(), Errno> {
        let tree = self.tree;
        let mut names: Vec<Box<[u8]>> = Vec::new();
        tree.original_names(below, |name| names.push(name.into()))?;
        for name in names {
            match tree.lookup(directory, &name) {
                Ok(_) => continue,
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
            let mut marker = path.to_vec();
            append(&mut marker, &[WHITEOUT, &name].concat());
            self.add(&marker, ChangeKind::Whiteout)?;
        }
        Ok(())
    }

    fn add(&mut self, path: &[u8], kind: ChangeKind) -> Result<(), Errno> {
        room()?;
        self.changes.try_reserve(1).map_err(|_| Errno::ENOSPC)?;
        self.changes.push(PathChange { path: path.into(), kind });
        Ok(())
    }
}

impl Links {
    /// The change with the first name of this file, if it is not the one with this number.
    fn first(&mut self, inode: InodeRef, tree: &Tree, number: usize) -> Result<Option<usize>, Errno> {
        if tree.status(inode)?.links < 2 {
            return Ok(None);
        }
        room()?;
        let first = match inode {
            InodeRef::Node(id) => *self.nodes.entry(id).or_insert(number),
            InodeRef::Image(image) => *self.inodes.entry(image).or_insert(number),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => number,
        };
        Ok(Some(first).filter(|first| *first != number))
    }
}

/// The directory of the volume whose names a directory has.
fn directory_below(tree: &Tree, inode: InodeRef) -> Option<ImageInode> {
    match inode {
        InodeRef::Image(image) => Some(image),
        InodeRef::Node(id) => match &tree.node(id).ok()?.body {
            Body::Directory(directory) => directory.below,
            _ => None,
        },
        InodeRef::Proc(_) | InodeRef::Descriptor(_) => None,
    }
}

/// Appends a name to a path.
fn append(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
