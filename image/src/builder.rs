// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree that an image is made from, with every name checked.

use std::collections::{BTreeMap, btree_map};

use crate::{Error, Layout, Source};

const NAME_MAX: usize = 255;
const TARGET_MAX: usize = 4095;

/// A point in time, counted from 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds that follow them, below a billion.
    pub nanoseconds: u32,
}

/// What an image says of a file besides its name, type and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The lower twelve bits of the mode; others are ignored.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// When the content last changed.
    pub modified: Time,
}

impl Attributes {
    /// Owned by root, last changed at time 0.
    pub const fn root(permissions: u16) -> Self {
        Attributes { permissions, uid: 0, gid: 0, modified: Time { seconds: 0, nanoseconds: 0 } }
    }
}

/// Collects the tree of an image.
///
/// Paths are bytes, read from the image's root whether they begin with a slash or not. Missing parents are made, owned
/// by root with permissions 755; adding such a directory later sets its attributes. An addition that fails changes
/// nothing.
#[derive(Debug)]
pub struct Builder {
    /// The root first, parents before their children. Indices are used instead of nested maps so that the depth of
    /// the tree is not the depth of a recursion.
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) attributes: Attributes,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    Directory(Directory),
    File(Source),
    /// The target, kept as a source because it is stored like a file's data.
    Symlink(Source),
}

#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) parent: usize,
    pub(crate) children: BTreeMap<Box<[u8]>, usize>,
    /// Made as a parent only, so that its attributes may still be given.
    implied: bool,
}

impl Node {
    fn implied_directory(parent: usize) -> Self {
        let content = Content::Directory(Directory { parent, children: BTreeMap::new(), implied: true });
        Node { attributes: Attributes::root(0o755), content }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A tree of nothing but its root.
    pub fn new() -> Self {
        Builder { nodes: vec![Node::implied_directory(0)] }
    }

    /// Adds a directory; `/` sets the root's attributes.
    ///
    /// # Errors
    /// [`Error::Path`], [`Error::Duplicate`], [`Error::NotADirectory`].
    pub fn directory(&mut self, path: impl AsRef<[u8]>, attributes: Attributes) -> Result<(), Error> {
        let path = path.as_ref();
        let index = self.descend(path, components(path)?)?;
        let Node { attributes: current, content: Content::Directory(directory) } = &mut self.nodes[index] else {
            return Err(Error::Duplicate { path: shown(path) });
        };
        if !directory.implied {
            return Err(Error::Duplicate { path: shown(path) });
        }
        directory.implied = false;
        *current = attributes;
        Ok(())
    }

    /// Adds a regular file.
    ///
    /// # Errors
    /// [`Error::Path`], [`Error::Duplicate`], [`Error::NotADirectory`].
    pub fn file(&mut self, path: impl AsRef<[u8]>, attributes: Attributes, data: impl Into<Source>) -> Result<(), Error> {
        self.add(path.as_ref(), Node { attributes, content: Content::File(data.into()) })
    }

    /// Adds a symbolic link. Its target need not exist; it may point anywhere, also above the root, where it ends.
    ///
    /// # Errors
    /// [`Error::Target`], [`Error::Path`], [`Error::Duplicate`], [`Error::NotADirectory`].
    pub fn symlink(&mut self, path: impl AsRef<[u8]>, attributes: Attributes, target: impl AsRef<[u8]>) -> Result<(), Error> {
        let (path, target) = (path.as_ref(), target.as_ref());
        if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
            return Err(Error::Target { path: shown(path) });
        }
        self.add(path, Node { attributes, content: Content::Symlink(target.into()) })
    }

    /// Decides where everything lies.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn layout(self) -> Result<Layout, Error> {
        Layout::new(self)
    }

    fn add(&mut self, path: &[u8], node: Node) -> Result<(), Error> {
        let names = components(path)?;
        let Some((name, parents)) = names.split_last() else {
            return Err(Error::Path { path: shown(path), reason: "the root must be a directory" });
        };
        let parent = self.descend(path, parents.to_vec())?;
        let index = self.nodes.len();
        let Content::Directory(directory) = &mut self.nodes[parent].content else {
            return Err(Error::NotADirectory { path: shown(path), ancestor: shown(&parents.join(&b'/')) });
        };
        match directory.children.entry((*name).into()) {
            btree_map::Entry::Occupied(_) => return Err(Error::Duplicate { path: shown(path) }),
            btree_map::Entry::Vacant(entry) => entry.insert(index),
        };
        self.nodes.push(node);
        Ok(())
    }

    /// Finds the node with these names, making missing directories.
    fn descend(&mut self, path: &[u8], names: Vec<&[u8]>) -> Result<usize, Error> {
        let mut here = 0;
        for (depth, name) in names.iter().enumerate() {
            let next = self.nodes.len();
            let Content::Directory(directory) = &mut self.nodes[here].content else {
                return Err(Error::NotADirectory { path: shown(path), ancestor: shown(&names[..depth].join(&b'/')) });
            };
            let child = *directory.children.entry((*name).into()).or_insert(next);
            if child == next {
                self.nodes.push(Node::implied_directory(here));
            }
            here = child;
        }
        Ok(here)
    }
}

/// Splits a path into names that can stand in a directory; none for the root.
fn components(path: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let refused = |reason| Err(Error::Path { path: shown(path), reason });
    let names = path.strip_prefix(b"/").unwrap_or(path);
    if names.is_empty() {
        return if path.is_empty() { refused("the path is empty") } else { Ok(Vec::new()) };
    }
    let names: Vec<&[u8]> = names.split(|&byte| byte == b'/').collect();
    for name in &names {
        match *name {
            b"" => return refused("a name is empty"),
            b"." | b".." => return refused("'.' and '..' cannot be names"),
            name if name.len() > NAME_MAX => return refused("a name has more than 255 bytes"),
            name if name.contains(&0) => return refused("a name has a NUL"),
            _ => {}
        }
    }
    Ok(names)
}

fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}
